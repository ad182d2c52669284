"""More is due at one moment than a turn of the loop may do: the rest is done in the turns that follow."""

from typing import Any

import msgspec
from tests.broker.node import Node, run
from tests.broker.queue.world import NAME, QueueWorld

from headrace.broker.queue.partition_queue import PartitionQueue
from headrace.model.queue import QueueConfig


def partition_of(world: QueueWorld) -> PartitionQueue:
    partition: PartitionQueue = world.queues._live.find(NAME).partitions.at(0)
    return partition


async def leased(count: int, **config: Any) -> QueueWorld:
    """So many messages under leases that end after a second, of which ten are ended in a turn."""
    world = await QueueWorld(Node()).start(**config)
    partition_of(world).fold.step_count = 10
    await world.send(*[b"x"] * count)
    assert len(await world.receive(count, lease_ms=1000)) == count
    return world


def test_one_turn_ends_a_bounded_number_of_leases_and_the_next_ones_end_the_others() -> None:
    async def main() -> None:
        world = await leased(95)
        clock = world.node.clock
        left: list[int] = []
        await clock.elapse(999)
        while not left or left[-1]:
            # One timer at a time, as in the loop, which looks at its sockets in between.
            next_ms = clock.next_timer_ms()
            assert next_ms is not None
            assert clock._fire_next(next_ms)
            left.append(partition_of(world).fold.leased_count)
        assert [count for count in dict.fromkeys(left) if count < 95] == [85, 75, 65, 55, 45, 35, 25, 15, 5, 0]
        assert clock.monotonic_ms() == 1000

    run(main())


def test_whoever_waits_in_line_gets_what_the_first_turn_has_brought_back() -> None:
    async def main() -> None:
        world = await leased(95)
        waiting = world.queues.receive(NAME, count_max=10, wait_ms=20_000)
        await world.node.clock.elapse(1000)
        assert [message.offset for message in await waiting.promise] == list(range(10))

    run(main())


def test_a_state_that_is_behind_is_not_written_down() -> None:
    async def main() -> None:
        world = await leased(95)
        await world.node.clock.elapse(999)
        partition = partition_of(world)
        partition.write_now()
        world.node.clock._now_ms += 1
        assert partition.snapshot() is None
        await world.node.clock.elapse(0)
        assert partition.snapshot() is not None

    run(main())


def test_another_configuration_waits_until_all_is_done_by_the_old_one() -> None:
    async def main() -> None:
        world = await leased(95, max_deliveries=1)
        await world.node.clock.elapse(999)
        world.node.clock._now_ms += 1
        live = world.queues._live.find(NAME)
        await live.reconfigure(msgspec.structs.replace(live.queue, config=QueueConfig(max_deliveries=None)))
        fold = partition_of(world).fold
        assert fold.leased_count == 0
        assert fold.counts.dead_lettered + len(fold.dying_reasons) == 95

    run(main())


def test_all_messages_whose_life_is_over_are_gone_though_they_are_more_than_are_written_down_at_a_time() -> None:
    async def main() -> None:
        world = await QueueWorld(Node()).start(ttl_ms=10_000)
        for _ in range(3):
            await world.send(*[b"x"] * 1000)
        await world.node.clock.elapse(11_000)
        assert (world.counts().expired, world.counts().visible) == (3000, 0)

    run(main())
