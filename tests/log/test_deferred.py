"""Batches that only the journal has are written to their segment by a thread, while others append and read."""

import asyncio
import errno
import random

import pytest

from headrace.model.errors import DiskFullError
from headrace.testing.disk import SimulatedDisk
from headrace.testing.threads import HeldThreads

from .world import World, check_promises, crash_and_check, partition_id, run, topic_config


async def flushing() -> tuple[World, HeldThreads, "asyncio.Task[bool]"]:
    """A world with two batches in memory, whose flush is planned and waits for its thread."""
    world = World(SimulatedDisk(), {partition_id(0): topic_config()})
    await world.start()
    for value in (b"one", b"two"):
        world.append(0, [value])
        await world.settle()
    held = HeldThreads()
    world.store._sync_threads = held
    world.store.committer._threads = held
    flush = asyncio.get_running_loop().create_task(world.store.committer.flush(world.log()))
    await world.settle()
    assert len(held) == 1
    return world, held, flush


def written(world: World) -> int:
    """Bytes of the active segment that are in its file."""
    return len(world.disk.files()[world.log().active.path])


def test_the_loop_writes_nothing_of_them_and_the_thread_all() -> None:
    async def main() -> None:
        world, held, flush = await flushing()
        assert written(world) == 0
        held.release()
        await flush
        log = world.log()
        assert written(world) == log.active.size
        assert log.active.tail == []
        assert log.active.is_synced
        world.abandon()

    run(main())


def test_what_is_appended_meanwhile_stays_in_memory_and_is_not_taken_for_synced() -> None:
    async def main() -> None:
        world, held, flush = await flushing()
        size = world.log().active.size
        world.append(0, [b"three"])
        held.release()
        await flush
        log = world.log()
        assert written(world) == size
        assert [len(batch) for batch in log.active.tail] == [log.active.size - size]
        assert not log.active.is_synced
        held.release()
        await world.settle()
        assert await world.read_all(0) == {0: b"one", 1: b"two", 2: b"three"}
        world.abandon()

    run(main())


def test_a_reader_does_not_wait_for_the_thread_and_both_write_the_same() -> None:
    async def main() -> None:
        world, held, flush = await flushing()
        assert await world.read_all(0) == {0: b"one", 1: b"two"}
        world.append(0, [b"three"])
        held.release()
        await flush
        held.release()
        await world.settle()
        assert len(world.log().active.tail) == 1, "of the third, nothing was dropped"
        assert await world.read_all(0) == {0: b"one", 1: b"two", 2: b"three"}
        world.abandon()

    run(main())


def test_a_reader_that_finds_no_space_takes_nothing_back_of_what_the_thread_has_written() -> None:
    async def main() -> None:
        world, held, flush = await flushing()
        held.release()
        world.disk.fail("pwritev", error=errno.ENOSPC, path_part=".log")
        with pytest.raises(DiskFullError):
            world.log().write_tail()
        assert await flush
        assert written(world) == world.log().active.size
        assert await world.read_all(0) == {0: b"one", 1: b"two"}
        world.abandon()
        heir = await crash_and_check(world, world.disk, random.Random(1))
        heir.abandon()

    run(main())


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EIO])
def test_a_write_that_fails_in_the_thread_loses_nothing_and_only_a_broken_disk_takes_the_partition_offline(
    number: int,
) -> None:
    async def main() -> None:
        world, held, flush = await flushing()
        world.disk.fail("pwritev", error=number, path_part=".log")
        held.release()
        assert await flush is (number == errno.EIO), "there was no space: flush again"
        assert (world.log().broken is not None) is (number == errno.EIO)
        assert world.promised_end[partition_id(0)] == 2
        world.abandon()
        world.disk.heal()
        heir = await crash_and_check(world, world.disk, random.Random(number))
        assert await heir.read_all(0) == {0: b"one", 1: b"two"}
        await check_promises(heir)
        heir.abandon()

    run(main())
