"""What is written and synced but not committed: nobody is told of it, shown it, or loses anything by it."""

from tests.broker.node import Node, batch, gathered, produced, run
from tests.broker.queue.world import NAME, QueueWorld
from tests.broker.test_published_snapshots import CONFIG, snapshots_of

from headrace.broker.partition import Partition
from headrace.model.ids import Epoch
from headrace.model.message import Message
from headrace.testing.clock import settle


def test_a_send_is_answered_and_shown_when_it_is_committed_and_not_when_it_is_synced() -> None:
    async def main() -> None:
        node = await Node(late_seed=1).start()
        partition = await node.make()
        await gathered([partition.append(batch(b"a"))])
        rule = node.rules[partition.id]
        rule.is_held = True
        sent = partition.append(batch(b"b"))
        await settle()
        assert partition.log.durable_offset == 2
        assert not sent.done()
        assert await node.values() == [b"a"]
        rule.release()
        await settle()
        assert sent.result().base_offset == 1
        assert await node.values() == [b"a", b"b"]
        node.abandon()

    run(main())


def test_a_queue_hands_out_nothing_that_is_not_committed() -> None:
    async def main() -> None:
        world = await QueueWorld(Node(late_seed=1)).start()
        partition = world.node.broker.partition(NAME, 0)
        await world.send(b"a")
        rule = world.node.rules[partition.id]
        rule.is_held = True
        sent = world.queues.send(NAME, [Message(b"b")])
        await settle()
        assert await world.bodies() == [b"a"]
        rule.release()
        await sent
        assert await world.bodies() == [b"b"]
        world.node.abandon()

    run(main())


def test_a_dead_letter_that_is_not_committed_yet_is_not_taken_for_lost() -> None:
    """A new leader has leases above its committed offset. It cannot read their messages, and must not drop them."""

    async def main() -> None:
        world = await QueueWorld(Node(late_seed=1)).start(max_deliveries=1)
        await world.send(b"a")
        assert await world.bodies(lease_ms=1000) == [b"a"]
        world.node.holds_commits = True
        await world.node.clock.elapse(100)
        await world.node.kill()
        await world.node.clock.elapse(60_000)
        assert (world.counts().expired, world.counts().dead_lettered) == (0, 0)
        world.node.holds_commits = False
        for rule in world.node.rules.values():
            rule.release()
        await world.node.clock.elapse(60_000)
        assert (world.counts().expired, world.counts().dead_lettered) == (0, 1)
        assert await world.bodies(queue=f"{NAME}-dead") == [b"a"]
        world.node.abandon()

    run(main())


def test_retention_keeps_what_is_not_committed_and_no_snapshot_speaks_of_it() -> None:
    async def main() -> None:
        node = await Node(late_seed=1, log_config=CONFIG).start()
        partition = await node.make(segment_bytes="4096", retention_bytes="4096")
        for _ in range(5):
            await gathered([partition.append(batch(b"x" * 1500))])
        rule = node.rules[partition.id]
        rule.is_held = True
        for _ in range(40):
            partition.append(batch(b"x" * 1500))
            await settle()
        await node.clock.elapse(60_000)
        committed = partition.high_watermark
        assert (partition.log.durable_offset, committed) == (45, 5)
        assert partition.start_offset <= committed
        files = snapshots_of(node.disk, partition.log.directory, "producer")
        assert all(int(path[-29:-9]) <= committed for path in files)
        rule.release()
        await node.clock.elapse(60_000)
        assert partition.start_offset > 40
        node.abandon()

    run(main())


def test_a_log_that_was_cut_goes_on_from_its_new_end() -> None:
    """Before, the high watermark stayed above the end, and the first send hit an assertion."""

    async def main() -> None:
        node = await Node(late_seed=1).start()
        partition = await node.make()
        for sequence in range(3):
            await gathered([partition.append(produced(b"a", sequence=sequence))])
        rule = node.rules[partition.id]
        rule.is_held = True
        unheard = partition.append(produced(b"b", sequence=3))
        await settle()
        log = partition.log
        for end in (3, 2):  # what was never committed, and what an operator gives up
            await node.logs.truncate(log, end)  # type: ignore[arg-type]
            assert partition.high_watermark == log.end_offset == end
        assert not unheard.done()
        following = Partition(log=log, store=node.logs, clock=node.clock, epoch=Epoch(partition.epoch + 1))
        following.restore_folds()
        (sent,) = await gathered([following.append(produced(b"c", sequence=2))])
        assert sent.base_offset == 2  # type: ignore[union-attr]
        assert (following.high_watermark, log.end_offset) == (3, 3)
        node.abandon()

    run(main())
