"""What arrives together is synced once, what is synced is a prefix, and nothing is promised before (rows 15 and 24)."""

import asyncio

from headrace.model.ids import Offset, PartitionId
from headrace.model.topic import Durability
from headrace.testing.disk import SimulatedDisk
from headrace.testing.threads import HeldThreads

from .world import World, check_promises, make_batch, partition_id, run, topic_config


def new_world(partitions: int = 3) -> World:
    return World(SimulatedDisk(), {partition_id(index): topic_config() for index in range(partitions)})


async def started(partitions: int = 3) -> tuple[World, HeldThreads]:
    """A world whose syncs wait for the test."""
    world = new_world(partitions)
    await world.start()
    held = HeldThreads()
    world.store._sync_threads = held
    world.store.committer._threads = held
    return world, held


def test_small_appends_of_many_partitions_in_one_turn_share_one_sync() -> None:
    async def main() -> None:
        world = new_world(20)
        await world.start()
        world.disk.calls.clear()
        for index in range(20):
            world.append(index, [b"a"])
            world.append(index, [b"b"])
        await world.settle()
        assert world.disk.calls["fdatasync"] == 1
        stats = world.store.committer.stats
        assert (stats.journal_syncs, stats.segment_syncs) == (1, 0)
        assert set(world.promised_end.values()) == {2}
        world.abandon()

    run(main())


def test_nothing_is_promised_before_the_sync_and_the_next_group_gathers_meanwhile() -> None:
    async def main() -> None:
        world, held = await started()
        world.append(0, [b"a"])
        await world.settle()
        assert len(held) == 1
        for index in range(3):
            world.append(index, [b"b"])
            await world.settle()
        assert len(held) == 1, "one write at a time"
        assert set(world.promised_end.values()) == {0}
        held.release()
        await world.settle()
        assert list(world.promised_end.values()) == [1, 0, 0]
        assert len(held) == 1, "the three that gathered are one write"
        held.release()
        await world.settle()
        assert list(world.promised_end.values()) == [2, 1, 1]
        assert world.store.committer.stats.journal_syncs == 2
        world.abandon()

    run(main())


def test_a_large_append_syncs_its_own_segment_and_small_ones_behind_it_ride_along() -> None:
    async def main() -> None:
        world, held = await started()
        world.append(0, [b"x" * 2000])
        await world.settle()
        world.append(0, [b"small"])
        world.append(1, [b"small"])
        await world.settle()
        assert len(held) == 2, "the segment of one, the journal for the other"
        held.release()
        await world.settle()
        assert list(world.promised_end.values()) == [1, 1, 0]
        held.release()
        await world.settle()
        assert list(world.promised_end.values()) == [2, 1, 0]
        stats = world.store.committer.stats
        assert (stats.journal_syncs, stats.segment_syncs) == (1, 2)
        await check_promises(world)
        world.abandon()

    run(main())


def test_many_small_appends_that_are_large_together_go_direct() -> None:
    async def main() -> None:
        world = new_world()
        await world.start()
        for _ in range(10):
            world.append(0, [b"x" * 300])
        await world.settle()
        assert world.store.committer.stats.journal_syncs == 0
        assert world.promised_end[partition_id(0)] == 10
        world.abandon()

    run(main())


def test_a_small_append_after_one_that_nobody_synced_goes_direct() -> None:
    # Its record in the journal would be of no use: what stands before it in the log could be lost.
    async def main() -> None:
        world = new_world(1)
        await world.start()
        log = world.log()
        batch = make_batch([b"from memory"])
        log.append([batch], epoch=world.epoch, now_ms=0)
        world.sent[log.id][0] = b"from memory"
        world.append(0, [b"synced"])
        await world.settle()
        stats = world.store.committer.stats
        assert (stats.journal_syncs, stats.segment_syncs) == (0, 1)
        assert world.promised_end[log.id] == 2
        world.append(0, [b"journaled again"])
        await world.settle()
        assert stats.journal_syncs == 1
        world.abandon()

    run(main())


def test_listeners_hear_of_rising_offsets_in_order() -> None:
    async def main() -> None:
        world = new_world(2)
        await world.start()
        heard: dict[PartitionId, list[Offset]] = {}
        for log in world.store.logs.values():
            heard[log.id] = []
            log.listener = lambda log=log: heard[log.id].append(log.durable_offset)  # type: ignore[misc]
        for number in range(30):
            world.append(number % 2, [b"x" * (2000 if number % 7 == 0 else 50)] * (1 + number % 3))
            if number % 4 == 0:
                await world.settle()
        await world.settle()
        for log in world.store.logs.values():
            assert heard[log.id] == sorted(heard[log.id])
            assert heard[log.id][-1] == log.end_offset
        world.abandon()

    run(main())


def test_syncs_of_one_log_never_overlap() -> None:
    async def main() -> None:
        world, held = await started(1)
        log = world.log()
        world.append(0, [b"x" * 2000])
        await world.settle()
        others = [
            asyncio.ensure_future(world.store.checkpoint(log)),
            asyncio.ensure_future(world.store.committer.flush(log)),
            asyncio.ensure_future(world.store.maintain(log, floor=Offset(0))),
        ]
        world.append(0, [b"x" * 2000])
        while not all(task.done() for task in others):
            await world.settle()
            assert len(held) <= 1
            held.release(1)
        await world.settle()
        held.release()
        world.abandon()

    run(main())


def test_the_loop_goes_on_while_a_sync_takes_its_time() -> None:
    async def main() -> None:
        world, held = await started(2)
        world.append(0, [b"durable first"])
        while len(held) == 0:
            await world.settle()
        await world.settle()
        log = world.log()
        part = await world.store.read(log.read(Offset(0), bytes_max=1000, upto=log.end_offset))
        assert len(part.data) > 0
        assert world.promised_end[log.id] == 0
        assert len(held) == 1, "no thread but the one that syncs was asked for"
        held.release()
        world.abandon()

    run(main())


def test_topics_in_memory_are_synced_behind_if_they_are_replicated() -> None:
    async def main() -> None:
        configs = {
            partition_id(0): topic_config(Durability.REPLICATED),
            partition_id(1): topic_config(Durability.MEMORY),
        }
        world = World(SimulatedDisk(), configs)
        await world.start()
        world.append(0, [b"a"])
        world.append(1, [b"a"])
        await world.clock.elapse(world.config.flush_interval_ms)
        assert [world.log(index).durable_offset for index in (0, 1)] == [1, 0]
        world.abandon()

    run(main())


def test_a_stop_waits_for_the_sync_that_is_running() -> None:
    # Two syncs of a log at once: the kernel tells a failure to one of them only.
    async def main() -> None:
        world, held = await started(1)
        for _ in range(6):
            world.append(0, [b"x" * 1400])
            await world.settle()
            held.release()
            await world.settle()
        running = asyncio.ensure_future(world.clock.elapse(world.config.maintenance_interval_ms))
        await running
        assert len(held) == 1, "maintenance is at its checkpoint"
        stopping = asyncio.ensure_future(world.store.stop())
        await world.settle()
        assert len(held) == 1, "the stop waits for it"
        while not stopping.done():
            held.release(1)
            await world.settle()
            assert len(held) <= 1
        await stopping
        assert any(path.endswith("clean-shutdown") for path in world.disk.files())

    run(main())
