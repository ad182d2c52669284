"""Names are durable when they are relied on, and the mark of a clean stop says the truth (rows 18 and 25)."""

import random

import pytest

from headrace.host.ballast import Ballast
from headrace.host.disk import write_atomically
from headrace.log.files import Files
from headrace.log.snapshots import Snapshot
from headrace.log.space import Space
from headrace.testing.disk import SimulatedDisk

from .world import DIRECTORY, World, check_promises, partition_id, run, successor, topic_config

MARK = f"{DIRECTORY}/clean-shutdown"


def new_world(disk: SimulatedDisk | None = None) -> World:
    return World(disk or SimulatedDisk(), {partition_id(0): topic_config()})


@pytest.mark.parametrize("seed", range(30))
def test_a_file_that_was_replaced_is_the_new_one_after_a_crash(seed: int) -> None:
    disk = SimulatedDisk()
    disk.make_directory("/d")
    disk.sync_directory("/")
    write_atomically(disk, "/d", "name", b"old" * 300)
    write_atomically(disk, "/d", "name", b"new" * 300)
    disk.crash(random.Random(seed))
    assert disk.files()["/d/name"] == b"new" * 300


@pytest.mark.parametrize("seed", range(30))
def test_a_crash_in_the_middle_of_a_replacement_leaves_the_old_or_the_new(seed: int) -> None:
    for call in range(1, 12):
        disk = SimulatedDisk()
        disk.make_directory("/d")
        disk.sync_directory("/")
        write_atomically(disk, "/d", "name", b"old" * 300)
        images: list[SimulatedDisk] = []
        left = [call]

        def count(operation: str, path: str, disk: SimulatedDisk = disk, left: list[int] = left) -> None:
            left[0] -= 1
            if left[0] == 0:
                images.append(disk.copy())  # noqa: B023

        disk.on_call = count
        write_atomically(disk, "/d", "name", b"new" * 300)
        for image in images:
            image.crash(random.Random(seed * 100 + call))
            assert image.files()["/d/name"] in (b"old" * 300, b"new" * 300)


@pytest.mark.parametrize("seed", range(20))
def test_checkpoint_and_snapshots_are_there_once_a_checkpoint_is_done(seed: int) -> None:
    async def main() -> None:
        world = new_world()
        await world.start()
        log = world.log()
        log.take_snapshots = lambda: (Snapshot("fold", log.end_offset, b"state at %d" % log.end_offset),)
        for number in range(3):
            world.append(0, [b"%d" % number * 900])
            await world.settle()
            await world.store.checkpoint(log)
        expected = {
            path: data
            for path, data in world.disk.files().items()
            if path.endswith(("/checkpoint", f"{3:020d}.snapshot"))
        }
        assert len(expected) == 2
        world.abandon()
        world.disk.crash(random.Random(seed))
        assert {path: data for path, data in world.disk.files().items() if path in expected} == expected

    run(main())


@pytest.mark.parametrize("seed", range(20))
def test_a_new_partition_and_a_new_segment_are_there_before_anything_in_them_is_promised(seed: int) -> None:
    async def main() -> None:
        world = new_world()
        await world.start()
        for _ in range(4):
            world.append(0, [b"x" * 3000])  # each in a segment of its own, without the journal
            await world.settle()
        assert world.promised_end[partition_id(0)] == 4
        world.abandon()
        world.disk.crash(random.Random(seed))
        heir = successor(world, world.disk)
        await heir.start()
        await check_promises(heir)
        heir.abandon()

    run(main())


@pytest.mark.parametrize("seed", range(20))
def test_the_mark_of_a_clean_stop_is_durable_and_is_gone_durably_at_the_start(seed: int) -> None:
    async def main() -> None:
        world = new_world()
        await world.start()
        assert world.log().was_clean
        world.append(0, [b"a"])
        await world.store.stop()
        world.disk.crash(random.Random(seed))
        assert MARK in world.disk.files()
        await world.start()
        assert world.log().was_clean
        assert MARK not in world.disk.files()
        world.abandon()
        world.disk.crash(random.Random(seed))
        assert MARK not in world.disk.files(), "a crash from the first moment on is seen as one"
        heir = successor(world, world.disk)
        await heir.start()
        assert not heir.log().was_clean
        await check_promises(heir)
        heir.abandon()

    run(main())


def test_no_partition_is_touched_before_the_mark_is_gone() -> None:
    async def main() -> None:
        world = new_world()
        await world.start()
        world.append(0, [b"a"])
        await world.store.stop()
        calls: list[tuple[str, str]] = []
        world.disk.on_call = lambda operation, path: calls.append((operation, path))
        await world.start()
        removed = calls.index(("remove", MARK))
        assert calls[removed + 1] == ("sync_directory", DIRECTORY)
        first = next(at for at, (_, path) in enumerate(calls) if path.startswith(world.directory()))
        assert first > removed + 1
        world.disk.on_call = None
        world.abandon()

    run(main())


def test_a_mark_of_another_stop_is_not_believed() -> None:
    async def main() -> None:
        world = new_world()
        await world.start()
        world.append(0, [b"a"])
        await world.store.stop()
        world.disk.overwrite(MARK, b"00000000-0000-4000-8000-000000000000")
        await world.start()
        assert not world.log().was_clean
        world.abandon()

    run(main())


def disk_with_files(count: int) -> SimulatedDisk:
    disk = SimulatedDisk()
    for number in range(count):
        disk.open(f"/{number}", create=True).close()
    return disk


def space_of(disk: SimulatedDisk) -> Space:
    return Space(disk, "/", reserve_bytes=0, ballast=Ballast(disk, "/", size_bytes=0))


def test_the_least_used_file_is_closed_when_there_are_too_many() -> None:
    disk = disk_with_files(5)
    files = Files(disk, open_max=3, space=space_of(disk))
    opened = {name: files.get(name) for name in ("/0", "/1", "/2")}
    files.get("/0")
    files.get("/3")
    assert len(files) == 3
    with pytest.raises(OSError, match="Bad file descriptor"):
        opened["/1"].size()
    assert opened["/0"].size() == 0
    assert files.get("/0") is opened["/0"]
    assert files.get("/1") is not opened["/1"]


def test_a_held_file_stays_open_until_it_was_released_as_often() -> None:
    disk = disk_with_files(9)
    files = Files(disk, open_max=2, space=space_of(disk))
    held = files.hold("/0")
    assert files.hold("/0") is held
    for number in range(1, 9):
        files.get(f"/{number}")
        files.close("/0")
        files.close_under("")
        assert held.size() == 0
    files.release("/0")
    files.get("/1")
    files.get("/2")
    assert held.size() == 0
    files.release("/0")
    files.get("/3")
    files.get("/4")
    with pytest.raises(OSError, match="Bad file descriptor"):
        held.size()


def test_a_file_with_unsynced_bytes_stays_open_however_many_are_read() -> None:
    async def main() -> None:
        disk = SimulatedDisk()
        world = World(disk, {partition_id(index): topic_config() for index in range(12)})
        await world.start()
        path = world.log(0).active.path
        world.append(0, [b"x" * 100], may_defer=False)
        await world.settle()
        held = world.store.files.get(path)
        for index in range(1, 12):
            world.append(index, [b"x" * 2000])
            await world.settle()
            await world.read_all(index)
        assert len(world.store.files) <= world.config.open_files_max
        assert world.store.files.get(path) is held, "whoever opened it anew might not be told of a lost write"
        await world.store.checkpoint(world.log(0))
        for index in range(1, 12):
            await world.read_all(index)
        assert world.store.files.get(path) is not held
        world.abandon()

    run(main())
