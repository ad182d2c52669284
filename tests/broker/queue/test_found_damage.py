"""Damage that nobody saw when the node started: what comes by it takes its partition offline, and no more (row 17)."""

import pytest
from tests.broker.group.share_world import ShareNode
from tests.broker.node import Node, run
from tests.broker.queue.damaged import COUNT, LOST, check_says_all, damage, files_of, fill, key_of, refusal
from tests.broker.queue.world import NAME, QueueWorld, bodies_of

from headrace.broker.group.share_port import Holder
from headrace.model.errors import PartitionOfflineError
from headrace.model.message import Message
from headrace.model.queue import Guarantee
from headrace.testing.clock import settle


async def damaged_unseen(*, is_cold: bool = False, **config: object) -> QueueWorld:
    """A queue with a damaged message, at work in all its partitions."""
    world = await QueueWorld(Node()).start(partitions=COUNT, **config)
    await fill(world)
    await damage(world, LOST, is_found_at_start=False)
    world.node.disk.all_cold = is_cold
    assert world.queues.describe(NAME).offline == []
    return world


@pytest.mark.parametrize("is_cold", [False, True], ids=["from the page cache", "from the device"])
@pytest.mark.parametrize("guarantee", list(Guarantee))
def test_a_receive_that_comes_by_damage_gets_what_the_others_have(guarantee: Guarantee, is_cold: bool) -> None:
    async def main() -> None:
        world = await damaged_unseen(guarantee=guarantee, is_cold=is_cold)
        assert sorted(await world.bodies()) == [b"old 0", b"old 2"]
        assert [one.partition for one in world.queues.describe(NAME).offline] == [LOST]
        assert await world.bodies() == []
        check_says_all(await refusal(world.queues.send_one(NAME, Message(b"new", key=key_of(LOST)))))
        world.node.abandon()

    run(main())


def test_a_receive_that_finds_nothing_but_damage_is_told_and_the_next_ones_go_on() -> None:
    async def main() -> None:
        world = await damaged_unseen()
        outcomes: list[object] = []
        for _ in range(COUNT + 1):
            try:
                outcomes += await world.bodies(1)
            except PartitionOfflineError as error:
                outcomes.append(error)
        (refused,) = [outcome for outcome in outcomes if isinstance(outcome, PartitionOfflineError)]
        check_says_all(refused)
        assert sorted(outcome for outcome in outcomes if isinstance(outcome, bytes)) == [b"old 0", b"old 2"]
        world.node.abandon()

    run(main())


def test_a_line_is_served_on_when_damage_is_found_for_somebody_in_it() -> None:
    async def main() -> None:
        world = await QueueWorld(Node()).start(partitions=COUNT)
        for index in range(COUNT):
            await world.send(b"late %d" % index, key=key_of(index), delay_ms=10_000)
        await damage(world, LOST, is_found_at_start=False)
        waiting = [world.queues.receive(NAME, count_max=1, wait_ms=20_000) for _ in range(COUNT)]
        await world.node.clock.elapse(11_000)
        done = [receive.promise for receive in waiting if receive.promise.done()]
        refused = [promise.exception() for promise in done if promise.exception() is not None]
        handed = [body for promise in done if promise.exception() is None for body in bodies_of(promise.result())]
        assert len(refused) == 1
        check_says_all(refused[0])
        assert sorted(handed) == [b"late 0", b"late 2"]
        world.node.abandon()

    run(main())


def test_a_page_leaves_out_a_partition_in_which_it_comes_by_damage() -> None:
    async def main() -> None:
        world = await damaged_unseen()
        page = await world.queues.browse(NAME)
        assert [message.partition for message in page.messages] == [0, 2]
        assert [one.partition for one in page.offline] == [LOST]
        world.node.abandon()

    run(main())


def test_files_in_which_damage_was_found_stay_as_they_are() -> None:
    async def main() -> None:
        world = await damaged_unseen()
        files = files_of(world, LOST)
        await world.acknowledge(*await world.receive(10))
        await world.send(*(b"%d" % number for number in range(50)))
        await world.node.clock.elapse(120_000)
        await settle()
        await world.node.queues.stop()
        await world.node.logs.stop()
        assert files_of(world, LOST) == files
        world.node.abandon()

    run(main())


def test_damage_that_only_the_queue_comes_by_takes_its_partition_offline_for_all() -> None:
    async def main() -> None:
        world = await QueueWorld(Node()).start(partitions=COUNT)
        await fill(world)
        log = world.node.broker.partition(NAME, LOST).log
        await world.node.queues.stop()
        await world.node.logs.stop()
        world.node.abandon()
        for path in [path for path in world.node.disk.files() if path.startswith(log.directory)]:
            if "queue-" in path and path.endswith(".snapshot"):
                world.node.disk.remove(path)
        world.node.disk.flip_bit(log.active.path, 16 * 8)
        await world.node.start()
        assert [one.partition for one in world.queues.describe(NAME).offline] == [LOST]
        with pytest.raises(PartitionOfflineError):
            world.node.broker.partition(NAME, LOST)
        assert sorted(await world.bodies()) == [b"old 0", b"old 2"]
        world.node.abandon()

    run(main())


@pytest.mark.parametrize("is_found_at_start", [True, False])
def test_a_share_consumer_gets_what_the_others_have_and_is_told_of_the_lost_one(is_found_at_start: bool) -> None:
    async def main() -> None:
        node = ShareNode()
        world = await QueueWorld(node).start(partitions=COUNT)
        await fill(world)
        await damage(world, LOST, is_found_at_start=is_found_at_start)
        holder = Holder()
        found = {part.place.partition: part for part in (await node.acquire(holder)).parts}
        assert {index: part.error is None for index, part in found.items()} == {0: True, LOST: False, 2: True}
        check_says_all(found[LOST].error)
        for index in (0, 2):
            (lease,) = found[index].acquired
            assert await node.acknowledge(holder, lease.first, lease.last, place=node.places()[index]) is None
        assert world.counts().acknowledged == 2
        check_says_all(await node.acknowledge(holder, 0, 0, place=node.places()[LOST]))
        node.abandon()

    run(main())
