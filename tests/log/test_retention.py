"""What retention lets go, and what it must not (row 35)."""

import asyncio
import errno
import random

import pytest

from headrace.log.retention import SegmentFacts, count_expired
from headrace.model.ids import Offset
from headrace.model.topic import Durability, TopicConfig
from headrace.testing.disk import SimulatedDisk
from headrace.testing.threads import HeldThreads

from .world import World, check_promises, partition_id, run, successor

HOUR_MS = 3_600_000


def config(**settings: int) -> TopicConfig:
    values = {"segment_bytes_max": 1000, "index_interval_bytes": 300, "retention_ms": -1, **settings}
    return TopicConfig(**values)  # type: ignore[arg-type]


async def filled(topic_config: TopicConfig, *, segments: int = 5) -> World:
    """A partition with segments of two batches each, an hour apart."""
    world = World(SimulatedDisk(), {partition_id(0): topic_config})
    await world.start()
    for _ in range(segments):
        for _ in range(2):
            world.append(0, [b"x" * 350])
            await world.settle()
        world.clock.jump_wall(HOUR_MS)
    await world.store.checkpoint(world.log())
    return world


def stored(world: World) -> list[int]:
    names = [path.rpartition("/")[2] for path in world.disk.files() if path.startswith(world.directory())]
    return sorted(int(name.removesuffix(".log")) for name in names if name.endswith(".log"))


def test_segments_older_than_the_topics_age_go_with_all_their_files() -> None:
    async def main() -> None:
        world = await filled(config(retention_ms=3 * HOUR_MS))
        log = world.log()
        await world.store.maintain(log, floor=log.end_offset)
        assert (log.start_offset, stored(world)) == (4, [4, 6, 8])
        assert not any("trash/" in path for path in world.disk.files())
        indexes = [path for path in world.disk.files() if path.endswith("index")]
        assert all(int(path.rpartition("/")[2].partition(".")[0]) >= 4 for path in indexes)
        await check_promises(world)
        world.abandon()

    run(main())


@pytest.mark.parametrize("jump_ms", [100 * HOUR_MS, -100 * HOUR_MS])
def test_nothing_is_too_old_by_a_clock_that_is_not_believed(jump_ms: int) -> None:
    async def main() -> None:
        world = await filled(config(retention_ms=6 * HOUR_MS))
        log = world.log()
        world.clock.jump_wall(jump_ms, is_believed=False)
        await world.store.maintain(log, floor=log.end_offset)
        assert (log.start_offset, stored(world)[:5]) == (0, [0, 2, 4, 6, 8])
        world.clock.jump_wall(-jump_ms)
        world.clock.jump_wall(3 * HOUR_MS)
        await world.store.maintain(log, floor=log.end_offset)
        assert log.start_offset > 0
        world.abandon()

    run(main())


def test_the_oldest_segments_above_the_topics_size_go() -> None:
    async def main() -> None:
        world = await filled(config(retention_bytes=2000))
        log = world.log()
        await world.store.maintain(log, floor=log.end_offset)
        assert log.size_bytes >= 2000
        assert log.size_bytes - log.segments[0].size < 2000
        assert stored(world) == [segment.base_offset for segment in log.segments]
        world.abandon()

    run(main())


def test_nothing_at_or_above_the_floor_goes_however_old_it_is() -> None:
    async def main() -> None:
        for floor in range(11):
            world = await filled(config(retention_ms=1, retention_bytes=0))
            log = world.log()
            world.clock.jump_wall(100 * HOUR_MS)
            await world.store.maintain(log, floor=Offset(floor))
            assert log.start_offset == floor - floor % 2
            await check_promises(world)
            world.abandon()

    run(main())


@pytest.mark.parametrize("was_stopped", [True, False])
def test_an_unfinished_rewrite_of_a_segment_that_retention_took_is_no_damage(was_stopped: bool) -> None:
    async def main() -> None:
        world = await filled(config(retention_ms=3 * HOUR_MS))
        await world.store.maintain(world.log(), floor=world.log().end_offset)
        assert stored(world) == [4, 6, 8]
        if was_stopped:
            await world.store.stop()
        world.abandon()
        rewrite = f"{world.directory()}/{0:020d}.1.log"
        world.disk.open(rewrite, create=True).close()
        heir = successor(world, world.disk)
        await heir.start()
        assert heir.store.refused == {}
        assert heir.log().start_offset == 4
        assert not world.disk.exists(rewrite)
        await check_promises(heir)
        heir.abandon()

    run(main())


def test_a_drop_that_cannot_be_written_down_removes_no_file_and_is_done_later() -> None:
    async def main() -> None:
        world = await filled(config(retention_ms=3 * HOUR_MS))
        log = world.log()
        world.disk.fail("pwritev", times=-1, error=errno.ENOSPC, path_part="checkpoint")
        with pytest.raises(OSError, match="space"):
            await world.store.maintain(log, floor=log.end_offset)
        assert (log.start_offset, stored(world)) == (4, [0, 2, 4, 6, 8])
        heir = successor(world, world.disk.copy())
        await heir.start()
        assert heir.store.refused == {}
        heir.abandon()
        world.disk.heal()
        await world.store.maintain(log, floor=log.end_offset)
        assert stored(world) == [4, 6, 8]
        world.abandon()

    run(main())


def test_what_is_not_durable_stays() -> None:
    async def main() -> None:
        world = World(SimulatedDisk(), {partition_id(0): config(retention_bytes=0)})
        await world.start()
        held = HeldThreads()
        world.store.committer._threads = held
        for _ in range(3):
            world.append(0, [b"x" * 600])
            await world.settle()
        world.disk.fail("fdatasync", path_part=".log")
        await world.clock.elapse(world.config.maintenance_interval_ms)
        assert stored(world) == [0, 1, 2]
        world.abandon()

    run(main())


def test_the_segment_that_the_last_checkpoint_names_stays_when_a_newer_one_cannot_be_written() -> None:
    async def main() -> None:
        world = World(SimulatedDisk(), {partition_id(0): config(retention_bytes=0)})
        await world.start()
        world.append(0, [b"x" * 600])
        await world.settle()
        await world.store.checkpoint(world.log())
        for _ in range(4):
            world.append(0, [b"x" * 600])
            await world.settle()
        world.disk.fail("pwritev", times=-1, error=errno.ENOSPC, path_part="checkpoint")
        await world.store.maintain(world.log(), floor=world.log().end_offset)
        assert stored(world) == [0, 1, 2, 3, 4]
        world.abandon()
        world.disk.heal()
        heir = successor(world, world.disk)
        await heir.start()
        assert heir.store.refused == {}
        await heir.store.maintain(heir.log(), floor=heir.log().end_offset)
        assert heir.log().start_offset == 4
        heir.abandon()

    run(main())


def test_records_deleted_on_demand_free_their_segments() -> None:
    async def main() -> None:
        world = await filled(config())
        log = world.log()
        log.raise_start(Offset(5))
        await world.store.maintain(log, floor=log.end_offset)
        assert stored(world) == [4, 6, 8]
        assert sorted(await world.read_all(0)) == list(range(5, 10))
        log.raise_start(log.end_offset)
        await world.store.maintain(log, floor=log.end_offset)
        await world.store.maintain(log, floor=log.end_offset)
        assert (log.size_bytes, stored(world)) == (0, [10]), "the active segment was rolled away too"
        assert world.append(0, [b"next"]) == 10
        await world.settle()
        await world.restart()
        assert await world.read_all(0) == {10: b"next"}
        world.abandon()

    run(main())


def test_an_old_active_segment_is_rolled_and_then_goes() -> None:
    async def main() -> None:
        world = await filled(config(retention_ms=HOUR_MS), segments=1)
        world.clock.jump_wall(HOUR_MS)
        log = world.log()
        await world.store.maintain(log, floor=log.end_offset)
        assert (log.start_offset, stored(world)) == (2, [2])
        world.abandon()
        world = await filled(config(segment_ms_max=30 * HOUR_MS), segments=1)
        world.clock.jump_wall(30 * HOUR_MS)
        await world.store.maintain(world.log(), floor=Offset(0))
        assert stored(world) == [0, 2]
        world.abandon()

    run(main())


def test_retention_goes_on_after_a_start_that_read_no_index() -> None:
    async def main() -> None:
        world = await filled(config(retention_ms=3 * HOUR_MS))
        await world.restart()
        assert [segment.max_timestamp_ms for segment in world.log().segments[:-1]] == [None] * 4
        await world.clock.elapse(world.config.maintenance_interval_ms)
        assert (world.log().start_offset, stored(world)) == (6, [6, 8])
        world.abandon()

    run(main())


def test_messages_from_the_future_and_without_time_stay_until_their_size_makes_them_go() -> None:
    facts = [SegmentFacts(Offset(2), 100, -1), SegmentFacts(Offset(4), 100, 10)]
    for settings, expected in [({"retention_ms": 5}, 0), ({"retention_bytes": 150}, 1), ({"retention_bytes": 0}, 2)]:
        count = count_expired(
            facts, config(**settings), active_bytes=50, log_start=Offset(0), floor=Offset(9), now_ms=1000
        )
        assert count == expected
    facts = [SegmentFacts(Offset(2), 100, 5000), SegmentFacts(Offset(4), 100, 10)]
    aged = config(retention_ms=5)
    assert count_expired(facts, aged, active_bytes=1, log_start=Offset(0), floor=Offset(9), now_ms=1000) == 0


def test_a_crash_during_retention_leaves_no_hole() -> None:
    async def main() -> None:
        for call in range(1, 60):
            world = await filled(config(retention_ms=2 * HOUR_MS))
            images: list[SimulatedDisk] = []
            left = [call]

            def count(operation: str, path: str, world: World = world, left: list[int] = left) -> None:
                left[0] -= 1
                if left[0] == 0:
                    images.append(world.disk.copy())  # noqa: B023

            world.disk.on_call = count
            await world.store.maintain(world.log(), floor=world.log().end_offset)
            world.disk.on_call = None
            start = world.log().start_offset
            world.abandon()
            if not images:
                break
            images[0].crash(random.Random(call))
            heir = successor(world, images[0])
            await heir.start()
            await check_promises(heir)
            assert heir.log().start_offset <= start
            heir.abandon()
        assert call > 20

    run(main())


def test_trash_is_emptied_at_the_start() -> None:
    async def main() -> None:
        world = await filled(config())
        await world.store.stop()
        world.disk.make_directory("/data/trash/some-partition-0")
        for path in ("/data/trash/x-0.log", "/data/trash/some-partition-0/0.log"):
            world.disk.open(path, create=True).close()
        await world.start()
        assert world.disk.list_directory("/data/trash") == []
        world.abandon()

    run(main())


def test_maintenance_outlives_a_full_disk_and_damage_in_one_partition() -> None:
    async def main() -> None:
        configs = {partition_id(0): config(retention_ms=HOUR_MS), partition_id(1): config(retention_ms=HOUR_MS)}
        world = World(SimulatedDisk(), configs)
        await world.start()
        for index in (0, 1):
            for _ in range(5):
                world.append(index, [b"x" * 350])
                await world.settle()
        await world.store.stop()
        for path in world.disk.files():
            if path.startswith(world.directory(0)) and path.endswith("index"):
                world.disk.remove(path)
        world.disk.flip_bit(f"{world.directory(0)}/{0:020d}.log", 16 * 8)
        await world.start()
        world.clock.jump_wall(5 * HOUR_MS)
        world.disk.fail("open", path_part=f"{5:020d}.log", error=errno.ENOSPC, times=2)
        world.disk.fail("free_bytes", error=errno.EIO)
        for _ in range(4):
            await world.clock.elapse(world.config.maintenance_interval_ms)
        assert world.log(1).start_offset == 5
        failed = asyncio.ensure_future(world.store.wait_failed())
        await world.settle()
        assert not failed.done()
        failed.cancel()
        world.abandon()

    run(main())


def test_a_partition_deleted_during_its_maintenance_disturbs_nobody() -> None:
    async def main() -> None:
        for releases in range(8):
            world = await filled(config(retention_ms=HOUR_MS))
            held = HeldThreads()
            world.store._sync_threads = held
            world.store.committer._threads = held
            log = world.log()
            world.append(0, [b"x" * 900])
            world.append(0, [b"x" * 900])
            maintaining = asyncio.ensure_future(world.store.maintain(log, floor=log.durable_offset))
            for _ in range(releases):
                await world.settle()
                held.release(1)
            deleting = asyncio.ensure_future(world.store.delete(log.id))
            while not (maintaining.done() and deleting.done()):
                await world.settle()
                held.release()
            await maintaining
            await deleting
            assert not any(world.directory() in path for path in world.disk.files())
            world.abandon()

    run(main())


def test_topics_in_memory_expire_too() -> None:
    async def main() -> None:
        world = World(
            SimulatedDisk(),
            {partition_id(0): TopicConfig(durability=Durability.MEMORY, segment_bytes_max=1000, retention_bytes=0)},
        )
        await world.start()
        for _ in range(6):
            world.append(0, [b"x" * 600])
        for _ in range(2):
            await world.clock.elapse(world.config.maintenance_interval_ms)
        assert world.log().start_offset == 5
        world.abandon()

    run(main())
