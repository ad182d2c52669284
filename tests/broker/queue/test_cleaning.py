"""What a queue keeps on disk: little more than what waits in it, and all that a reader by offset has not read."""

import msgspec
import pytest
from tests.broker.node import LOG_CONFIG, Node, run
from tests.broker.queue.world import NAME, QueueWorld

from headrace.log.config import LogConfig
from headrace.model.errors import CorruptLogError, PartitionOfflineError
from headrace.model.ids import Offset
from headrace.testing.clock import settle

KIB = 1024
DELAY_MS = 600_000
# Small files, cleaned eagerly, so that a test of kilobytes shows what gigabytes would.
SMALL = msgspec.structs.replace(
    LOG_CONFIG,
    journal_bytes=256 * KIB,
    clean_gain_bytes_min=1024,
    clean_merge_bytes=16 * KIB,
    clean_active_bytes=64 * KIB,
    checkpoint_bytes=64 * KIB,
    maintenance_interval_ms=1000,
)
assert isinstance(SMALL, LogConfig)


async def work_through(world: QueueWorld, *, rounds: int, delayed_every: int) -> set[bytes]:
    """Send, receive and acknowledge; now and then leave a message for later."""
    kept = set()
    for number in range(rounds):
        await world.send(*(b"%d-%d" % (number, at) + b"x" * 1000 for at in range(10)))
        if number % delayed_every == 0:
            body = b"later %d" % number
            await world.send(body, delay_ms=DELAY_MS)
            kept.add(body)
        messages = await world.receive(100)
        assert await world.acknowledge(*messages) == [None] * len(messages)
    return kept


def make(world_config: LogConfig = SMALL) -> Node:
    return Node(log_config=world_config)


async def small_queue(node: Node, **config: object) -> QueueWorld:
    world = await QueueWorld(node).start(**config)  # type: ignore[arg-type]
    topic = node.broker.topic(NAME)
    await node.broker.alter_config(NAME, {**topic.overrides, "segment.bytes": str(32 * KIB)})
    return world


def test_a_few_delayed_messages_scattered_over_a_long_past_keep_little_on_disk() -> None:
    async def main() -> None:
        world = await small_queue(make())
        kept = await work_through(world, rounds=200, delayed_every=20)
        log = world.node.broker.partition(NAME, 0).log
        assert log.end_offset > 2000
        await world.node.clock.elapse(60_000)
        assert log.size_bytes < 150 * KIB, f"{log.size_bytes} bytes for {len(kept)} messages"
        await world.node.kill()
        assert world.counts().delayed == len(kept)
        await world.node.clock.elapse(DELAY_MS)
        assert {message.body for message in await world.receive(100)} == kept

    run(main())


def test_a_reader_that_registered_first_misses_nothing() -> None:
    async def main() -> None:
        world = await small_queue(make())
        await world.queues.move_reader(NAME, "mirror", {0: 0})
        await work_through(world, rounds=60, delayed_every=1000)
        await world.node.clock.elapse(60_000)
        read = [value for value in await world.node.values(NAME) if value is not None]
        assert len(read) == 601
        await world.node.restart()
        (reader,) = world.queues.readers(NAME)
        assert (reader.name, reader.positions) == ("mirror", {0: 0})
        end = world.node.broker.partition(NAME, 0).high_watermark
        await world.queues.move_reader(NAME, "mirror", {0: end})
        await world.node.clock.elapse(60_000)
        assert world.node.broker.partition(NAME, 0).log.size_bytes < 100 * KIB
        assert b"later 0" in (left := await world.node.values(NAME))
        assert len(left) < 100

    run(main())


def test_a_reader_that_has_read_all_holds_nothing_behind_the_last_message() -> None:
    async def main() -> None:
        world = await small_queue(make())
        await world.queues.move_reader(NAME, "mirror", {0: 0})
        await work_through(world, rounds=60, delayed_every=1000)
        partition = world.node.broker.partition(NAME, 0)
        await world.queues.move_reader(NAME, "mirror", {0: partition.high_watermark})
        partition.log.roll(now_ms=world.node.clock.wall_ms())
        await world.node.clock.elapse(60_000)
        assert partition.log.size_bytes < 2 * KIB
        assert [value for value in await world.node.values(NAME) if value is not None] == [b"later 0"]

    run(main())


@pytest.mark.parametrize("is_killed", [False, True])
def test_a_reader_misses_nothing_of_partitions_that_were_added_after_it_registered(is_killed: bool) -> None:
    async def main() -> None:
        world = await small_queue(make())
        await world.queues.move_reader(NAME, "mirror", {0: 0})
        await world.node.broker.create_partitions(NAME, 2)
        await settle()
        if is_killed:
            await world.node.kill()
        (reader,) = world.queues.readers(NAME)
        assert reader.positions == {0: 0, 1: 0}
        await work_through(world, rounds=60, delayed_every=1000)
        await world.node.clock.elapse(60_000)
        read = [*await world.node.values(NAME), *await world.node.values(NAME, 1)]
        assert len([value for value in read if value is not None]) == 601

    run(main())


def test_history_keeps_what_was_acknowledged_for_its_time() -> None:
    async def main() -> None:
        world = await small_queue(make(), history_ms=600_000)
        await work_through(world, rounds=60, delayed_every=1000)
        await world.node.clock.elapse(300_000)
        assert len(await world.node.values(NAME)) == 601
        await world.node.clock.elapse(400_000)
        assert world.node.broker.partition(NAME, 0).log.size_bytes < 100 * KIB

    run(main())


def test_history_begins_with_the_acknowledgement_however_long_a_message_has_waited() -> None:
    async def main() -> None:
        world = await small_queue(make(), history_ms=600_000)
        for number in range(60):
            await world.send(*(b"%d-%d" % (number, at) + b"x" * 1000 for at in range(10)))
        await world.node.clock.elapse(3_600_000)
        for _ in range(2):
            messages = await world.receive(300)
            assert await world.acknowledge(*messages) == [None] * 300
            await world.node.clock.elapse(590_000)
            assert {message.body for message in messages} <= set(await world.node.values(NAME))
        assert world.counts().visible == 0
        await world.node.clock.elapse(300_000)
        assert world.node.broker.partition(NAME, 0).log.size_bytes < 100 * KIB

    run(main())


def test_history_outlasts_a_restart_for_what_is_acknowledged_afterwards() -> None:
    async def main() -> None:
        world = await small_queue(make(), history_ms=600_000)
        for number in range(60):
            await world.send(*(b"%d-%d" % (number, at) + b"x" * 1000 for at in range(10)))
        await world.node.clock.elapse(3_600_000)
        await world.node.restart()
        while messages := await world.receive(100):
            await world.acknowledge(*messages)
        await world.node.clock.elapse(590_000)
        assert len([value for value in await world.node.values(NAME) if value is not None]) == 600

    run(main())


@pytest.mark.parametrize("is_killed", [False, True])
def test_history_outlasts_a_restart_for_what_was_acknowledged_before(is_killed: bool) -> None:
    async def main() -> None:
        world = await small_queue(make(), history_ms=600_000)
        for number in range(60):
            await world.send(*(b"%d-%d" % (number, at) + b"x" * 1000 for at in range(10)))
        await world.node.clock.elapse(3_600_000)
        while messages := await world.receive(100):
            await world.acknowledge(*messages)
        for _ in range(2):
            await world.node.clock.elapse(290_000)
            await (world.node.kill() if is_killed else world.node.restart())
        assert len([value for value in await world.node.values(NAME) if value is not None]) == 600
        await world.node.clock.elapse(150_000)
        assert world.node.broker.partition(NAME, 0).log.size_bytes < 100 * KIB

    run(main())


def test_retention_drops_what_nobody_acknowledged_and_counts_it() -> None:
    async def main() -> None:
        world = await small_queue(make(), retention_ms=60_000)
        await world.send(b"old")
        await world.node.clock.elapse(50_000)
        await world.send(b"new")
        await world.node.clock.elapse(20_000)
        assert world.counts().expired == 1
        assert await world.bodies() == [b"new"]

    run(main())


def test_deleted_records_are_gone_from_the_queue() -> None:
    async def main() -> None:
        world = await small_queue(make())
        first, second = await world.send(b"a", b"b")
        assert second.offset == first.offset + 1
        await world.node.broker.partition(NAME, 0).delete_records(Offset(second.offset))
        await world.node.clock.elapse(10_000)
        assert await world.bodies() == [b"b"]
        assert world.counts().expired == 1

    run(main())


def test_a_cleaned_queue_without_its_snapshot_is_refused_and_keeps_no_other_shut() -> None:
    async def main() -> None:
        world = await small_queue(make())
        await work_through(world, rounds=100, delayed_every=20)
        await world.queues.create("other")
        await world.send(b"x", queue="other")
        await world.node.clock.elapse(60_000)
        await world.node.queues.stop()
        await world.node.logs.stop()
        for path in [path for path in world.node.disk.files() if "queue-" in path and path.endswith(".snapshot")]:
            if str(world.queues.find(NAME).id)[:8] in path:
                world.node.disk.overwrite(path, b"nonsense")
        await world.node.start()
        assert await world.bodies(queue="other") == [b"x"]
        (promise,) = [world.queues.send(NAME, [])]
        with pytest.raises((PartitionOfflineError, CorruptLogError)):
            await promise

    run(main())


def test_a_delay_longer_than_the_retention_loses_nothing() -> None:
    async def main() -> None:
        world = await small_queue(make(), retention_ms=60_000)
        await world.send(b"later", delay_ms=DELAY_MS)
        await world.send(b"too late", b"for these")
        await world.node.clock.elapse(DELAY_MS - 60_000)
        assert (world.counts().delayed, world.counts().visible, world.counts().expired) == (1, 0, 2)
        await world.node.restart()
        await world.node.clock.elapse(60_000)
        (message,) = await world.receive(lease_ms=1_000)
        assert message.body == b"later"
        await world.node.clock.elapse(30_000)
        assert world.counts().visible == 1
        await world.node.clock.elapse(60_000)
        assert (world.counts().visible, world.counts().expired) == (0, 3)

    run(main())
