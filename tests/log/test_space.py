"""A full disk: nothing promised is lost, nothing breaks, and all goes on when there is space (failure row 21)."""

import errno
import random
from contextlib import suppress

import pytest

from headrace.host.ballast import NAME, Ballast
from headrace.log.config import LogConfig
from headrace.log.space import Space
from headrace.model.errors import DiskFullError, HeadraceError
from headrace.testing.disk import SimulatedDisk

from .world import DIRECTORY, SMALL, World, check_promises, partition_id, run, successor, topic_config

MIB = 1024 * 1024
LARGE = b"x" * 2000  # above what goes through the journal


def new_world(partitions: int = 2, disk: SimulatedDisk | None = None, config: LogConfig = SMALL) -> World:
    return World(disk or SimulatedDisk(), {partition_id(index): topic_config() for index in range(partitions)}, config)


def make_space(*, free_bytes: int, reserve_bytes: int) -> tuple[Space, SimulatedDisk]:
    disk = SimulatedDisk(capacity_bytes=free_bytes)
    ballast = Ballast(disk, "", size_bytes=0)
    space = Space(disk, "/", reserve_bytes=reserve_bytes, ballast=ballast)
    space.check()
    return space, disk


def test_what_is_written_is_charged_against_the_reserve_between_two_looks() -> None:
    space, disk = make_space(free_bytes=10 * MIB, reserve_bytes=4 * MIB)
    for _ in range(60):
        space.admit(MIB // 10)
        disk.capacity_bytes = (disk.capacity_bytes or 0) - MIB // 10
    assert not space.is_full
    with pytest.raises(DiskFullError, match="reserve"):
        space.admit(MIB // 10)
    assert space.is_full
    assert disk.free_bytes("/") >= 4 * MIB


def test_charges_that_were_too_high_are_found_out_before_anything_is_refused() -> None:
    space, _ = make_space(free_bytes=10 * MIB, reserve_bytes=4 * MIB)
    for _ in range(1000):
        space.admit(MIB)  # into blocks that were there already
    assert not space.is_full


def test_a_large_send_that_does_not_fit_is_refused_alone() -> None:
    space, _ = make_space(free_bytes=10 * MIB, reserve_bytes=4 * MIB)
    with pytest.raises(DiskFullError):
        space.admit(7 * MIB)
    assert not space.is_full
    space.admit(MIB)


def test_sends_are_accepted_again_only_when_what_was_refused_fits() -> None:
    space, disk = make_space(free_bytes=4 * MIB + 1000, reserve_bytes=4 * MIB)
    with pytest.raises(DiskFullError):
        space.admit(2000)
    space.check()
    assert space.is_full
    disk.capacity_bytes = 4 * MIB + 2000
    space.check()
    assert not space.is_full
    space.admit(2000)


def test_what_is_in_memory_alone_counts_as_written() -> None:
    async def main() -> None:
        world = new_world(1)
        await world.start()
        space = world.store.space
        world.append(0, [b"deferred"])
        await world.settle()
        space.check()
        with_tail = space.left_bytes
        await world.read_all(0)
        space.check()
        assert space.left_bytes - with_tail == world.log().active.size
        world.append(0, [b"deferred"])
        await world.settle()
        await world.store.committer.flush(world.log())
        world.append(0, [b"deferred"])
        world.log().fail(OSError("broken"))
        space.check()
        assert space._deferred_bytes == 0
        world.abandon()

    run(main())


def test_a_flush_without_space_is_made_later_and_the_journal_keeps_what_it_needs() -> None:
    async def main() -> None:
        for seed in range(6):
            world = new_world(2)
            await world.start()
            for number in range(4):
                world.append(0, [b"only in the journal %d" % number])
                await world.settle()
            world.disk.fail("pwritev", error=errno.ENOSPC, times=-1, path_part=world.directory(0))
            assert not await world.store.committer.flush(world.log(0))
            for _ in range(9):  # nearly a journal file, and the first one wants this partition synced
                world.append(1, [b"x" * 1400])
                await world.settle()
            assert world.log(0).broken is None
            twin = successor(world, world.disk.copy())
            twin.disk.crash(random.Random(seed))
            await twin.start()
            await check_promises(twin)
            twin.abandon()

            world.disk.heal()
            await world.clock.elapse(2_000)
            assert await world.store.committer.flush(world.log(0))
            world.append(0, [b"after"])
            for _ in range(40):
                world.append(1, [b"x" * 1400])
                await world.settle()
            assert world.promised_end == {partition_id(0): 5, partition_id(1): 49}
            await check_promises(world)
            world.abandon()
            world.disk.crash(random.Random(seed))
            heir = successor(world, world.disk)
            await heir.start()
            await check_promises(heir)
            heir.abandon()

    run(main())


def test_a_journal_without_space_is_passed_by_and_used_again() -> None:
    async def main() -> None:
        for operation in ("pwritev", "fdatasync"):
            world = new_world(2)
            await world.start()
            world.append(0, [b"journaled"])
            await world.settle()
            world.disk.fail(operation, error=errno.ENOSPC, times=2, path_part=".journal")
            world.append(0, [b"direct"])
            world.append(1, [b"direct"])
            await world.settle()
            assert world.promised_end == {partition_id(0): 2, partition_id(1): 1}
            twin = successor(world, world.disk.copy())
            twin.disk.crash(random.Random(1))
            await twin.start()
            await check_promises(twin)
            twin.abandon()
            syncs = world.store.committer.stats.journal_syncs
            for _ in range(3):
                world.append(0, [b"journaled again"])
                world.append(1, [b"journaled again"])
                await world.settle()
            assert world.store.committer.stats.journal_syncs > syncs
            assert world.promised_end == {partition_id(0): 5, partition_id(1): 4}
            world.abandon()
            world.disk.heal()
            world.disk.crash(random.Random(2))
            heir = successor(world, world.disk)
            await heir.start()
            await check_promises(heir)
            heir.abandon()

    run(main())


def test_a_clean_stop_on_a_full_disk_keeps_the_journal() -> None:
    async def main() -> None:
        world = new_world(1)
        await world.start()
        world.append(0, [b"in the journal alone"])
        await world.settle()
        world.disk.fail("pwritev", error=errno.ENOSPC, times=-1, path_part=world.directory(0))
        await world.store.stop()
        world.disk.heal()
        heir = successor(world, world.disk)
        await heir.start()
        await check_promises(heir)
        assert not heir.log().was_clean
        heir.abandon()

    run(main())


async def start_with_ballast(world: World, ballast_bytes: int) -> Ballast:
    ballast = Ballast(world.disk, DIRECTORY, size_bytes=ballast_bytes)
    if world.disk.exists(DIRECTORY):
        ballast.open()
    await world.start(ballast=ballast)
    return ballast


def test_a_node_recovers_and_checkpoints_on_a_full_disk_from_its_ballast() -> None:
    async def main() -> None:
        world = new_world(1)
        await start_with_ballast(world, MIB)
        path = f"{DIRECTORY}/{NAME}"
        assert len(world.disk.files()[path]) == MIB
        for number in range(5):
            world.append(0, [b"in the journal alone %d" % number])
            await world.settle()
        world.abandon()
        world.disk.capacity_bytes = sum(map(len, world.disk.files().values()))
        heir = successor(world, world.disk)
        await start_with_ballast(heir, MIB)
        assert heir.store.refused == {}
        await check_promises(heir)
        assert await heir.store.checkpoint(heir.log())
        assert len(heir.disk.files()[path]) == 0
        heir.disk.capacity_bytes = None
        await heir.clock.elapse(heir.config.disk_check_interval_ms)
        assert len(heir.disk.files()[path]) == MIB, "it is held back again"
        heir.abandon()

    run(main())


@pytest.mark.parametrize("seed", range(40))
def test_nothing_promised_is_lost_when_space_comes_and_goes_and_the_node_dies(seed: int) -> None:
    async def main() -> None:
        chooser = random.Random(seed)
        world = new_world(3)
        await world.start()
        for _ in range(60):
            roll = chooser.random()
            if roll < 0.12:
                world.disk.fail(
                    chooser.choice(("pwritev", "open", "truncate")),
                    nth=chooser.randint(1, 4),
                    times=chooser.randint(1, 6),
                    error=errno.ENOSPC,
                    path_part=chooser.choice((".log", ".journal", "checkpoint", "")),
                )
                world.disk.short_writes = chooser.choice((None, lambda size: size // 2 or 1))
            elif roll < 0.2:
                world.disk.heal()
            elif roll < 0.25:
                await world.store.checkpoint(world.log(chooser.randrange(3)))
            elif roll < 0.3:
                await world.clock.elapse(1_000)
            else:
                with suppress(HeadraceError):
                    world.append(
                        chooser.randrange(3), [bytes([chooser.randrange(97, 123)]) * chooser.choice((10, 2000))]
                    )
                await world.settle()
            for index in range(3):
                # A write that cannot be cut back leaves the file in doubt; lack of space alone never does.
                assert world.log(index).broken is None or "cut back" in str(world.log(index).broken)
        world.disk.heal()
        world.disk.capacity_bytes = None
        if chooser.random() < 0.5:
            await world.clock.elapse(2_000)
        world.abandon()
        if chooser.random() < 0.7:
            world.disk.crash(chooser)
        heir = successor(world, world.disk)
        await heir.start()
        await check_promises(heir)
        heir.abandon()

    run(main())
