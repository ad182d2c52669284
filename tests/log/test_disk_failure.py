"""Syncs and writes that fail: what is not durable is not acknowledged, and a sync is not tried twice (rows 15, 22)."""

import errno
import os
import random
import re
from collections.abc import Callable

import pytest

from headrace.model.errors import (
    DiskFailedError,
    DiskFullError,
    HeadraceError,
    OverloadedError,
    PartitionOfflineError,
)
from headrace.model.ids import Offset
from headrace.model.topic import Durability
from headrace.testing.disk import SimulatedDisk

from .world import World, check_promises, partition_id, run, successor, topic_config

LARGE = b"x" * 2000  # above what goes through the journal


def new_world(partitions: int = 2, disk: SimulatedDisk | None = None) -> World:
    return World(disk or SimulatedDisk(), {partition_id(index): topic_config() for index in range(partitions)})


def check_offline(world: World, index: int) -> None:
    log = world.log(index)
    with pytest.raises(PartitionOfflineError):
        log.append([], epoch=world.epoch, now_ms=0)
    with pytest.raises(PartitionOfflineError):
        next(log.read(Offset(0), bytes_max=1, upto=Offset(1)))
    with pytest.raises(PartitionOfflineError):
        log.plan_flush()


def test_a_failed_segment_sync_takes_the_partition_offline_and_is_never_tried_again() -> None:
    async def main() -> None:
        world = new_world()
        await world.start()
        world.append(0, [LARGE])
        await world.settle()
        world.disk.fail("fdatasync", path_part=".log")
        world.append(0, [LARGE])
        await world.settle()
        assert world.promised_end[partition_id(0)] == 1, "the second was not acknowledged"
        check_offline(world, 0)
        syncs: list[str] = []
        world.disk.on_call = lambda operation, path: syncs.append(path) if operation == "fdatasync" else None
        await world.store.checkpoint(world.log(0))
        await world.store.maintain(world.log(0), floor=Offset(0))
        await world.store.committer.flush(world.log(0))
        await world.store.stop()
        assert not any(world.directory(0) in path for path in syncs)
        assert not any(path.endswith("clean-shutdown") for path in world.disk.files())

    run(main())


def test_other_partitions_go_on_when_one_has_failed() -> None:
    async def main() -> None:
        world = new_world()
        await world.start()
        world.disk.fail("fdatasync", path_part=world.directory(0))
        world.append(0, [LARGE])
        world.append(1, [LARGE])
        await world.settle()
        world.append(1, [b"small"])
        await world.settle()
        assert world.promised_end == {partition_id(0): 0, partition_id(1): 2}
        check_offline(world, 0)
        world.abandon()

    run(main())


def test_a_failed_journal_sync_takes_the_partitions_of_that_write_offline_and_the_others_go_direct() -> None:
    async def main() -> None:
        world = new_world(4)
        await world.start()
        for index in range(4):
            world.append(index, [b"before"])
        await world.settle()
        world.disk.fail("fdatasync", path_part=".journal")
        world.append(0, [b"lost?"])
        world.append(1, [b"lost?"])
        await world.settle()
        check_offline(world, 0)
        check_offline(world, 1)
        stats = world.store.committer.stats
        assert (stats.failures, stats.journal_syncs) == (1, 1)
        for _ in range(3):
            world.append(2, [b"direct"])
            world.append(3, [b"direct"])
            await world.settle()
        assert [world.promised_end[partition_id(index)] for index in range(4)] == [1, 1, 4, 4]
        assert stats.journal_syncs == 1, "the journal is not used again"
        heir = successor(world, world.disk)
        world.abandon()
        world.disk.crash(random.Random(3))
        await heir.start()
        await check_promises(heir)
        heir.abandon()

    run(main())


def test_what_gathered_for_the_journal_while_its_sync_failed_goes_direct() -> None:
    async def main() -> None:
        world = new_world(2)
        await world.start()
        world.disk.fail("fdatasync", path_part=".journal")
        joined: list[bool] = []

        def join(operation: str, path: str) -> None:
            if operation == "fdatasync" and path.endswith(".journal") and not joined:
                joined.append(True)
                world.append(1, [b"gathered meanwhile"])

        world.disk.on_call = join
        world.append(0, [b"lost?"])
        await world.settle()
        assert world.promised_end == {partition_id(0): 0, partition_id(1): 1}
        world.abandon()

    run(main())


@pytest.mark.parametrize("seed", range(12))
def test_acknowledged_data_survives_a_failed_sync_a_restart_and_then_a_loss_of_power(seed: int) -> None:
    # After a failed sync the kernel shows bytes that the device does not have and never writes them again. A recovery
    # that believed the page cache would void the journal, which is the only place that has them.
    async def main() -> None:
        world = new_world(1)
        await world.start()
        for number in range(5):
            world.append(0, [b"journaled %d" % number * 40])
            await world.settle()
        world.disk.fail("fdatasync", path_part=".log")
        await world.store.checkpoint(world.log())
        check_offline(world, 0)
        world.abandon()
        world.disk.heal()
        heir = successor(world, world.disk)
        await heir.start()
        await check_promises(heir)
        heir.abandon()
        heir.disk.crash(random.Random(seed))
        last = successor(heir, heir.disk)
        await last.start()
        await check_promises(last)
        await last.restart()
        assert last.log().was_clean, "and then all is well again"
        last.abandon()

    run(main())


def test_the_journal_file_that_a_broken_log_needs_is_not_written_over() -> None:
    async def main() -> None:
        for seed in range(6):
            world = new_world(2)
            await world.start()
            for number in range(4):
                world.append(0, [b"only in the journal %d" % number])
                await world.settle()
            world.disk.fail("fdatasync", path_part=world.directory(0), times=-1)
            for _ in range(80):  # the journal goes round, and its first file wants this partition synced
                world.append(1, [b"x" * 900])
                await world.settle()
            check_offline(world, 0)
            assert world.promised_end == {partition_id(0): 4, partition_id(1): 80}
            world.abandon()
            world.disk.heal()
            world.disk.crash(random.Random(seed))
            heir = successor(world, world.disk)
            await heir.start()
            await check_promises(heir)
            heir.abandon()

    run(main())


def test_of_many_logs_that_are_synced_behind_together_only_the_failed_one_goes_offline() -> None:
    async def main() -> None:
        world = new_world(12)
        await world.start()
        for index in range(12):
            world.append(index, [b"in the journal"])
        await world.settle()
        world.disk.fail("fdatasync", path_part=world.directory(5), times=-1)
        for _ in range(80):  # the journal goes round, and its first file wants every partition synced
            world.append(0, [b"x" * 900])
            await world.settle()
        check_offline(world, 5)
        for index in (4, 6, 11):
            log = world.log(index)
            assert (log.broken, log.has_unsynced) == (None, False)
            world.append(index, [b"goes on"])
        await world.settle()
        assert [world.promised_end[partition_id(index)] for index in (4, 6, 11)] == [2, 2, 2]
        world.abandon()

    run(main())


def test_a_sync_that_fails_during_recovery_refuses_the_partition_and_is_not_believed_at_the_next_start() -> None:
    async def main() -> None:
        world = new_world(1)
        await world.start()
        for number in range(5):
            world.append(0, [b"journaled %d" % number * 40])
            await world.settle()
        world.abandon()
        world.disk.fail("fdatasync", path_part=".log")
        second = successor(world, world.disk)
        await second.start()
        assert isinstance(second.store.refused[partition_id(0)], PartitionOfflineError)
        second.abandon()
        third = successor(second, world.disk)
        await third.start()
        await check_promises(third)
        third.abandon()
        world.disk.crash(random.Random(5))
        last = successor(third, world.disk)
        await last.start()
        await check_promises(last)
        last.abandon()

    run(main())


def test_short_writes_are_continued() -> None:
    async def main() -> None:
        world = new_world(2)
        await world.start()
        world.disk.short_writes = lambda size: max(1, size // 3)
        for number in range(10):
            world.append(0, [b"%d" % number * 50] * 3)
            world.append(1, [LARGE])
            await world.settle()
        await check_promises(world)
        world.abandon()
        world.disk.crash(random.Random(1))
        heir = successor(world, world.disk)
        heir.disk.heal()
        await heir.start()
        await check_promises(heir)
        assert heir.log(0).end_offset == 30
        heir.abandon()

    run(main())


@pytest.mark.parametrize(
    ("number", "kind"),
    [
        (errno.ENOSPC, DiskFullError),
        (errno.EDQUOT, DiskFullError),
        (errno.EMFILE, OverloadedError),
        (errno.EIO, DiskFailedError),
        (errno.ENOENT, DiskFailedError),
        (errno.EROFS, DiskFailedError),
    ],
)
@pytest.mark.parametrize("durability", [Durability.FSYNC, Durability.MEMORY])
def test_a_write_that_fails_half_way_leaves_the_log_as_it_was_and_is_told_as_what_it_is(
    number: int, kind: type[HeadraceError], durability: Durability
) -> None:
    async def main() -> None:
        world = World(SimulatedDisk(), {partition_id(0): topic_config(durability)})
        await world.start()
        world.append(0, [b"first"], may_defer=False)
        await world.settle()
        log = world.log()
        before, size = world.disk.files(), log.active.size
        world.disk.short_writes = lambda size: size // 2 or 1
        world.disk.fail("pwritev", nth=2, error=number, path_part=".log")
        with pytest.raises(kind, match=re.escape(os.strerror(number))) as caught:
            world.append(0, [b"half of it"] * 4, may_defer=False)
        assert type(caught.value) is kind
        world.disk.heal()
        assert (log.end_offset, log.active.size) == (1, size)
        assert world.disk.files()[log.active.path] == before[log.active.path]
        assert world.append(0, [b"second"]) == 1
        await world.settle()
        await check_promises(world)
        await world.restart()
        assert list((await world.read_all(0)).values()) == [b"first", b"second"]
        world.abandon()

    run(main())


def test_a_write_that_fails_and_cannot_be_cut_back_breaks_the_log() -> None:
    async def main() -> None:
        world = new_world(1)
        await world.start()
        world.append(0, [b"first"], may_defer=False)
        await world.settle()
        world.disk.short_writes = lambda size: size // 2 or 1
        world.disk.fail("pwritev", nth=2, error=errno.ENOSPC, path_part=".log")
        world.disk.fail("truncate", path_part=".log")
        with pytest.raises(PartitionOfflineError):
            world.append(0, [b"half of it"] * 4, may_defer=False)
        check_offline(world, 0)
        world.disk.heal()
        world.sent[partition_id(0)] = {0: b"first"}
        heir = successor(world, world.disk)
        world.abandon()
        await heir.start()
        assert heir.log().was_torn
        await check_promises(heir)
        assert heir.append(0, [b"second"]) == 1
        heir.abandon()

    run(main())


def test_a_partition_stays_online_while_no_descriptor_is_left_to_sync_its_directory_with() -> None:
    async def main() -> None:
        world = new_world(1)
        await world.start()
        for _ in range(2):
            world.append(0, [LARGE])
            await world.settle()
        world.disk.fail("sync_directory", error=errno.EMFILE, times=2, path_part=world.directory(0))
        world.append(0, [LARGE])  # begins a segment
        await world.settle()
        assert world.promised_end[partition_id(0)] == 2, "the segment's name was not durable yet"
        await world.clock.elapse(2000)
        await world.settle()
        assert world.promised_end[partition_id(0)] == 3
        await check_promises(world)
        world.abandon()

    run(main())


@pytest.mark.parametrize("number", [errno.EMFILE, errno.EIO])
def test_segments_take_what_the_journals_next_file_could_not(number: int) -> None:
    async def main() -> None:
        world = new_world(2)
        await world.start()
        world.disk.on_call = fail_at_the_journals_end(world, number)
        for value in range(60):
            for index in range(2):
                world.append(index, [b"%d" % value * 300])
            await world.settle()
        assert world.disk.on_call is None, "the journal was never full"
        assert world.promised_end == {partition_id(0): 60, partition_id(1): 60}
        heir = successor(world, world.disk)
        world.abandon()
        world.disk.crash(random.Random(5))
        await heir.start()
        await check_promises(heir)
        heir.abandon()

    run(main())


def fail_at_the_journals_end(world: World, number: int) -> Callable[[str, str], None]:
    """Let the first write of a journal file's header fail, once appends are under way."""

    def strike(operation: str, path: str) -> None:
        if operation == "pwritev" and path.endswith("1.journal"):
            world.disk.on_call = None
            raise OSError(number, os.strerror(number), path)

    return strike


@pytest.mark.parametrize(("number", "kind"), [(errno.ENOSPC, DiskFullError), (errno.ENOENT, DiskFailedError)])
@pytest.mark.parametrize("operation", ["open", "truncate"])
def test_a_roll_that_fails_leaves_the_log_going_on_in_a_later_one(
    operation: str, number: int, kind: type[HeadraceError]
) -> None:
    async def main() -> None:
        world = new_world(1)
        await world.start()
        world.append(0, [b"x" * 1300])
        world.append(0, [b"x" * 1300])
        await world.settle()
        world.disk.fail(operation, error=number, path_part=".log")  # type: ignore[arg-type]
        with pytest.raises(kind):
            world.append(0, [b"y" * 1400])
        assert isinstance(world.log().write_error, DiskFailedError) is (kind is DiskFailedError)
        assert world.append(0, [b"y" * 1400]) == 2
        assert world.log().write_error is None
        await world.settle()
        assert len(world.log().segments) == 2
        await check_promises(world)
        world.abandon()
        world.disk.crash(random.Random(2))
        heir = successor(world, world.disk)
        await heir.start()
        await check_promises(heir)
        heir.abandon()

    run(main())


@pytest.mark.parametrize("operation", ["pwritev", "fdatasync", "rename", "sync_directory", "open", "truncate"])
def test_a_checkpoint_that_fails_loses_nothing_and_the_next_one_succeeds(operation: str) -> None:
    async def main() -> None:
        for nth in range(1, 6):
            world = new_world(1)
            await world.start()
            for number in range(8):
                world.append(0, [b"%d" % number * 600])
            await world.settle()
            await world.store.committer.flush(world.log())
            world.disk.fail(operation, nth=nth, error=errno.ENOSPC, path_part=world.directory())  # type: ignore[arg-type]
            await world.store.checkpoint(world.log())
            world.append(0, [b"after"])
            await world.settle()
            await check_promises(world)
            world.disk.heal()
            twin = successor(world, world.disk.copy())
            twin.disk.crash(random.Random(nth))
            await twin.start()
            await check_promises(twin)
            twin.abandon()
            await world.restart()
            assert world.log().was_clean
            await check_promises(world)
            world.abandon()

    run(main())


def test_deferred_batches_are_read_before_they_are_written_and_written_once_for_many() -> None:
    async def main() -> None:
        world = new_world(1)
        await world.start()
        world.disk.calls.clear()
        for number in range(20):
            world.append(0, [b"%d" % number])
            await world.settle()
        assert world.disk.calls["pwritev"] == 20, "the journal alone"
        assert world.promised_end[partition_id(0)] == 20
        assert len(await world.read_all(0)) == 20
        assert world.disk.calls["pwritev"] == 21, "and the segment, when somebody reads"
        await check_promises(world)
        world.abandon()

    run(main())


def test_deferred_batches_that_the_disk_does_not_take_are_tried_again_by_the_next_reader() -> None:
    async def main() -> None:
        world = new_world(1)
        await world.start()
        world.append(0, [b"small"])
        await world.settle()
        world.disk.fail("pwritev", error=errno.ENOSPC, path_part=".log")
        with pytest.raises(DiskFullError):
            await world.read_all(0)
        assert list((await world.read_all(0)).values()) == [b"small"]
        await check_promises(world)
        world.abandon()

    run(main())


def test_deferred_batches_that_cannot_be_synced_break_the_log_and_come_back_from_the_journal() -> None:
    async def main() -> None:
        world = new_world(2)
        await world.start()
        for number in range(5):
            world.append(0, [b"%d" % number])
        await world.settle()
        assert world.promised_end[partition_id(0)] == 5
        world.disk.fail("pwritev", times=-1, path_part=".log")
        await world.store.committer.flush(world.log(0))
        check_offline(world, 0)
        world.disk.heal()
        world.append(1, [b"the other goes on"])
        await world.settle()
        heir = successor(world, world.disk)
        world.abandon()
        await heir.start()
        await check_promises(heir)
        assert len(await heir.read_all(0)) == 5
        heir.abandon()

    run(main())


def test_of_many_logs_that_are_synced_behind_together_one_that_cannot_be_written_keeps_no_other_from_it() -> None:
    async def main() -> None:
        world = new_world(12)
        await world.start()
        for index in range(12):
            world.append(index, [b"in the journal"])
        await world.settle()
        lost = range(1, 7)
        for index in lost:
            world.disk.fail("pwritev", times=-1, path_part=world.directory(index))
        for _ in range(80):  # the journal goes round, and its first file wants every partition written and synced
            world.append(0, [b"x" * 900])
            await world.settle()
        for index in lost:
            check_offline(world, index)
        assert not any(world.log(index).has_unsynced for index in range(7, 12))
        world.abandon()
        world.disk.heal()
        world.disk.crash(random.Random(3))
        heir = successor(world, world.disk)
        await heir.start()
        await check_promises(heir)
        heir.abandon()

    run(main())
