"""A journal write that fails: the segments take it before anyone is answered, and recovery finds each message once."""

import asyncio
import os
import random
from itertools import count

import pytest

from headrace.model.errors import PartitionOfflineError
from headrace.model.ids import PartitionId
from headrace.testing.disk import SimulatedDisk
from headrace.testing.fault import Operation

from .world import World, check_promises, crash_and_check, partition_id, run, successor, topic_config

PARTITIONS = 3
SEEDS = 12 if os.environ.get("HEADRACE_LONG") else 3
# How a write fails: at once, in its middle, or when all of it is in the page cache.
FAILURES: dict[str, tuple[Operation, int]] = {
    "begin": ("pwritev", 1),
    "middle": ("pwritev", 2),
    "end": ("fdatasync", 1),
}


class Run:
    """Appends through the journal, a failure of it, and appends without it; an image of the disk from one call on."""

    def __init__(self, crash_at_call: int) -> None:
        self.world = World(SimulatedDisk(), {partition_id(index): topic_config() for index in range(PARTITIONS)})
        self.image: tuple[SimulatedDisk, dict[PartitionId, int]] | None = None
        self._calls_left = crash_at_call
        self._number = 0

    async def append(self, size: int = 40) -> None:
        for index in range(PARTITIONS):
            self._number += 1
            self.world.append(index, [b"%d." % self._number + b"x" * size])
        await self.world.settle()

    async def go(self, failure: str, *, fails_again: bool = False) -> None:
        world = self.world
        await world.start()
        for _ in range(2):
            await self.append()
        await world.store.checkpoint(world.log(0))
        await self.append()
        operation, nth = FAILURES[failure]
        if failure == "middle":
            world.disk.short_writes = lambda size: max(size // 2, 1)
        world.disk.fail(operation, nth=nth, times=-1 if fails_again else 1, path_part=".journal")
        world.disk.on_call = self._before_call
        await self.append()
        world.disk.short_writes = None
        await self.append()
        await world.store.checkpoint(world.log(1))
        await self.append(700)
        assert set(world.promised_end.values()) == {6}, "every append was answered"
        assert world.store.committer.journal_failure is not None
        await check_promises(world)

    def _before_call(self, operation: str, path: str) -> None:
        self._calls_left -= 1
        if self._calls_left == 0:
            self.world.disk.on_call = None
            self.image = (self.world.disk.copy(), dict(self.world.promised_end))


@pytest.mark.parametrize("failure", FAILURES)
def test_a_failed_journal_write_takes_no_partition_offline_and_is_written_through_the_segments(failure: str) -> None:
    async def main() -> None:
        run = Run(0)
        await run.go(failure, fails_again=True)
        assert all(log.broken is None for log in run.world.store.logs.values())
        await run.world.store.stop()  # with a journal that cannot be voided either
        heir = successor(run.world, run.world.disk)
        heir.disk.heal()
        await heir.start()
        await check_promises(heir)
        heir.abandon()

    asyncio.run(main())


@pytest.mark.parametrize("failure", FAILURES)
def test_nothing_is_lost_or_there_twice_whenever_the_power_fails_after_a_failed_journal_write(failure: str) -> None:
    async def crash_at(call: int, seed: int) -> bool:
        run = Run(call)
        await run.go(failure)
        run.world.abandon()
        if run.image is None:
            return False
        disk, run.world.promised_end = run.image
        run.world = await crash_and_check(run.world, disk, random.Random(seed))
        assert not run.world.store.refused
        # Other messages at the offsets that were not promised, and a second crash behind them.
        for _ in range(3):
            await run.append()
        await check_promises(run.world)
        run.world.abandon()
        last = await crash_and_check(run.world, run.world.disk, random.Random(seed + 1))
        last.abandon()
        return True

    async def main() -> None:
        for call in count(1):
            for seed in range(SEEDS):
                if not await crash_at(call, seed):
                    assert call > 20, "the failure was followed by few calls of the disk"
                    return

    asyncio.run(main())


@pytest.mark.parametrize("failure", FAILURES)
def test_only_partitions_whose_segments_fail_too_go_offline_with_a_failed_journal_write(failure: str) -> None:
    async def main() -> None:
        for seed in range(SEEDS):
            world = World(SimulatedDisk(), {partition_id(index): topic_config() for index in range(PARTITIONS)})
            await world.start()
            for index in range(PARTITIONS):
                world.append(index, [b"before"])
            await world.settle()
            operation, nth = FAILURES[failure]
            if failure == "middle":
                world.disk.short_writes = lambda size: max(size // 2, 1)
            world.disk.fail(operation, nth=nth, path_part=".journal")
            world.disk.fail("fdatasync", path_part=world.directory(1))
            for index in range(PARTITIONS):
                world.append(index, [b"diverted"])
            await world.settle()
            with pytest.raises(PartitionOfflineError):
                world.log(1).check_usable()
            assert world.promised_end == {partition_id(0): 2, partition_id(1): 1, partition_id(2): 2}
            world.abandon()
            world.disk.heal()
            heir = await crash_and_check(world, world.disk, random.Random(seed))
            # What replaces the message that was not answered is not taken for it.
            for index in range(PARTITIONS):
                heir.append(index, [b"after"])
            await heir.settle()
            last = await crash_and_check(heir, heir.disk, random.Random(seed + 1))
            last.abandon()
            heir.abandon()

    run(main())


def test_parts_of_one_turn_behind_a_failed_one_go_to_the_segments_too() -> None:
    async def main() -> None:
        world = World(SimulatedDisk(), {partition_id(index): topic_config() for index in range(12)})
        await world.start()
        world.disk.fail("fdatasync", path_part=".journal")
        for index in range(12):  # more than one write of the journal takes
            world.append(index, [b"x" * 1200])
        await world.settle()
        assert set(world.promised_end.values()) == {1}
        assert world.store.committer.stats.journal_syncs == 0
        heir = successor(world, world.disk)
        world.abandon()
        world.disk.crash(random.Random(1))
        await heir.start()
        await check_promises(heir)
        heir.abandon()

    run(main())
