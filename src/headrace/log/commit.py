"""Group commit: everything that arrived together becomes durable with one sync.

Two lanes. *Journal*: small appends of all partitions go into one journal write and one sync; while it runs, the next
group gathers. *Direct*: a partition with a large append syncs its own segments; until that lane is empty its small
appends ride along, so that the journal never holds a record whose predecessors are not durable. Either way a
partition's `durable_offset` only ever grows over a prefix of its log.

Syncs of one partition never overlap, because the kernel reports a failed write to one caller only: whoever came second
would believe in bytes that are lost.
"""

import asyncio
from bisect import bisect_left
from collections.abc import Callable, Coroutine, Iterable, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, ClassVar

from headrace.host.ballast import is_no_room
from headrace.host.clock import Clock
from headrace.host.disk import Disk
from headrace.host.threads import Threads
from headrace.log.config import LogConfig
from headrace.log.disk_error import is_no_descriptor
from headrace.log.flush_plan import FlushPlan, FlushPutOffError
from headrace.log.journal import RECORD_HEADER_BYTES, Journal, JournalEntry, place_of
from headrace.log.pace import Pace
from headrace.log.partition_log import PartitionLog
from headrace.model.batch import Buffer
from headrace.model.errors import HeadraceError, OverloadedError
from headrace.model.ids import Offset, PartitionId

# One write takes at most this part of a journal file, however many partitions were written to in a turn.
_WRITES_IN_FILE_MIN = 4


class SyncTime:
    """How long syncs took, from the request for a thread to the result on the loop: what an append waits for."""

    BOUNDS_US: ClassVar[tuple[int, ...]] = (
        *(100, 250, 500, 1_000, 2_500, 5_000, 10_000, 25_000),
        *(50_000, 100_000, 250_000, 500_000, 1_000_000, 2_500_000, 10_000_000),
    )

    def __init__(self) -> None:
        # How many took at most the bound of the same index and more than the one before; the last is without bound.
        self.counts = [0] * (len(self.BOUNDS_US) + 1)
        self.sum_us = 0

    def add(self, elapsed_us: int) -> None:
        self.counts[bisect_left(self.BOUNDS_US, elapsed_us)] += 1
        self.sum_us += elapsed_us


# A sync has its price in threads woken and turns of the loop. With so many partitions in one write, the next waits
# this much longer for company.
_BUSY_COUNT = 8
# A segment is synced behind the journal whenever so much of it is not.
_BEHIND_BYTES = 2 * 1024 * 1024
_GATHER_MS = 2
# Segments that are synced behind with one call of a thread, which has its price too: so many at most, and only as long
# as they are small, because a journal that wants to sync meanwhile waits for the disk.
_BEHIND_COUNT = 8
_BEHIND_GROUP_BYTES = 512 * 1024
# How soon a flush is tried again that was put off.
_NO_ROOM_MS = 500


class SyncStats:
    """Counters since the start."""

    def __init__(self) -> None:
        self.journal_syncs = 0
        self.journal_bytes = 0
        self.segment_syncs = 0
        self.failures = 0
        self.journal_time = SyncTime()
        self.segment_time = SyncTime()


class Group(JournalEntry):
    """Appends of one partition that wait for the journal, where they become one record."""

    __slots__ = ("end_offset",)

    def __init__(self, place: bytes, base_offset: Offset) -> None:
        self.place = place
        self.base_offset = self.end_offset = base_offset
        self.buffers = []
        self.size = 0


def _take_meanwhile(logs: Iterable[PartitionLog]) -> Callable[[], None] | None:
    """What the owners of these logs can do while they wait, if anything."""
    calls = []
    for log in logs:
        if log.meanwhile is not None:
            calls.append(log.meanwhile)
            log.meanwhile = None

    def call_all() -> None:
        for call in calls:
            call()

    return call_all if calls else None


class Committer:
    def __init__(
        self,
        *,
        disk: Disk,
        clock: Clock,
        threads: Threads,
        journal: Journal,
        config: LogConfig,
        spawn: Callable[[Coroutine[Any, Any, None]], object],
    ) -> None:
        self.stats = SyncStats()
        self._disk = disk
        self._clock = clock
        self._threads = threads
        self._journal = journal
        self._config = config
        self._spawn = spawn
        self._loop = asyncio.get_running_loop()
        self._locks: dict[PartitionId, asyncio.Lock] = {}
        self._places: dict[PartitionLog, bytes] = {}
        self._groups: dict[PartitionLog, Group] = {}
        self._direct: set[PartitionLog] = set()  # logs whose direct lane is not empty
        self._journaled: set[PartitionLog] = set()  # logs with records in the active journal file
        self._journal_runs = False
        self._journal_failure: Exception | None = None
        self._file_freed = asyncio.Event()
        self._writing: dict[PartitionLog, Group] = {}  # what the journal's lane has taken and not finished
        self._journal_turned = asyncio.Event()
        self._behind: dict[PartitionLog, int] = {}  # bytes that only the journal has made durable, about
        self._trickling: set[PartitionLog] = set()
        self._switched_ms = clock.monotonic_ms()
        self.pace = Pace(clock)
        self._ended = False
        self._rests: set[asyncio.Event] = set()

    def end(self) -> None:
        """Hurry, and try nothing again that finds no space: the node is stopping."""
        self._ended = True
        self.pace.end()
        for rest in self._rests:
            rest.set()

    async def rest(self) -> bool:
        """Wait a while for what a flush wanted, and say whether to try again."""
        if self._ended:
            return False
        over = asyncio.Event()
        timer = self._clock.call_later(_NO_ROOM_MS, over.set)
        self._rests.add(over)
        try:
            await over.wait()
        finally:
            timer.cancel()
            self._rests.discard(over)
        return not self._ended

    def commit(self, log: PartitionLog, base_offset: Offset, buffers: Sequence[Buffer], size: int) -> None:
        """Make an append durable. The log's listener is called when it is."""
        if not self.takes_journal(log, size, base_offset):
            self._groups.pop(log, None)
            self._go_direct(log)
            return
        group = self._groups.get(log)
        if group is None:
            place = self._places.get(log)
            if place is None:
                place = self._places[log] = place_of(log.id)
            group = self._groups[log] = Group(place, base_offset)
        group.buffers.extend(buffers)
        group.size += size
        group.end_offset = log.end_offset
        log.covered_offset = log.end_offset
        if not self._journal_runs:
            self._journal_runs = True
            # Not at once: the other partitions that were written in this turn of the loop join.
            self._loop.call_soon(self._start_journal)

    def takes_journal(self, log: PartitionLog, size: int, base_offset: Offset) -> bool:
        """Whether an append of this size at this offset will be made durable by the journal."""
        group = self._groups.get(log)
        size_all = size if group is None else size + group.size
        fits = size_all < self._config.journal_append_bytes_max and self._journal_failure is None
        return fits and log not in self._direct and log.covered_offset == base_offset

    def _go_direct(self, log: PartitionLog) -> None:
        log.covered_offset = log.end_offset
        if log not in self._direct:
            self._direct.add(log)
            self._loop.call_soon(self._start_direct, log)

    def _start_journal(self) -> None:
        self._spawn(self._run_journal())

    def _start_direct(self, log: PartitionLog) -> None:
        self._spawn(self._run_direct(log))

    async def _run_direct(self, log: PartitionLog) -> None:
        while log.durable_offset < log.covered_offset and log.broken is None:
            if not await self.flush(log) and not await self.rest():
                return  # the lane stays: the journal may take nothing behind what is not durable
        self._direct.discard(log)

    async def flush(self, log: PartitionLog) -> bool:
        """Sync a log's segments up to its end. A failure breaks the log, which its listener is told.

        False: it was put off, for want of space or of a descriptor, and the journal still has what was deferred. Try
        again later.
        """
        return not await self._flush_all([log])

    async def _flush_all(self, logs: Sequence[PartitionLog]) -> list[PartitionLog]:
        """Sync several logs one after the other in one thread. One caller at a time, at most, has more than one log:
        who holds several locks and waits for the next is then never waited for by another such.

        Returns those whose flush was put off.
        """
        locks: list[asyncio.Lock] = []
        try:
            for log in logs:
                lock = self.lock(log)
                await lock.acquire()
                locks.append(lock)
            changed, put_off = await self._flush_locked(logs)
        finally:
            for lock in locks:
                lock.release()
        for log in changed:
            log.listener()
        return put_off

    async def _flush_locked(self, logs: Sequence[PartitionLog]) -> tuple[list[PartitionLog], list[PartitionLog]]:
        """Returns the logs that are durable further than before, or broken; and those whose flush was put off."""
        changed = [log for log in logs if log.broken is None]
        plans: list[tuple[PartitionLog, FlushPlan]] = []
        put_off: list[PartitionLog] = []
        for log in changed:
            try:
                plans.append((log, log.plan_flush()))
            except OverloadedError:
                put_off.append(log)
            except HeadraceError:  # what was deferred could not be written, and the log is broken now
                continue
        failures: Sequence[OSError | None] = [None] * len(plans)
        if any(plan.files or plan.directory for _, plan in plans):
            began_us = self._clock.monotonic_us()
            failures = await self._threads.run(lambda: [self._run(plan) for _, plan in plans])
            self.stats.segment_time.add(self._clock.monotonic_us() - began_us)
        for (log, plan), failure in zip(plans, failures, strict=True):
            if isinstance(failure, FlushPutOffError):
                put_off.append(log)
            self.stats.failures += failure is not None
            log.flushed(plan, failure)
            self.stats.segment_syncs += len(plan.files)
        return changed, put_off

    def _run(self, plan: FlushPlan) -> OSError | None:
        """Blocks. A failure is that log's own, and the next one in line is synced all the same."""
        try:
            plan.run(self._disk)
        except OSError as error:
            return error
        return None

    async def leave_journal(self, log: PartitionLog) -> None:
        """Wait until no record of a log is on its way to the journal."""
        while log in self._groups or log in self._writing:
            self._journal_turned.clear()
            await self._journal_turned.wait()

    def lock(self, log: PartitionLog) -> asyncio.Lock:
        lock = self._locks.get(log.id)
        if lock is None:
            lock = self._locks[log.id] = asyncio.Lock()
        return lock

    async def forget(self, log: PartitionLog) -> None:
        """Let go of a log that is being closed, once nothing is in flight for it."""
        async with self.lock(log):
            self._groups.pop(log, None)
            self._journaled.discard(log)
            self._behind.pop(log, None)
            self._places.pop(log, None)
        del self._locks[log.id]

    # The journal's lane.

    async def _run_journal(self) -> None:
        try:
            while self._groups:
                groups, self._groups = self._groups, {}
                self._writing = groups
                if self._journal_failure is None:
                    await self._write_groups(groups)
                    if len(groups) >= _BUSY_COUNT and self._groups:
                        await self._clock.sleep(_GATHER_MS)
                else:
                    for log in groups:
                        self._go_direct(log)
                self._writing = {}
                self._journal_turned.set()
        finally:
            self._journal_runs = False

    async def _write_groups(self, groups: dict[PartitionLog, Group]) -> None:
        size_max = self._config.journal_bytes // _WRITES_IN_FILE_MIN
        part: dict[PartitionLog, Group] = {}
        size = 0
        for log, group in groups.items():
            if part and size + group.size > size_max:
                await self._write_part(part, size)
                part, size = {}, 0
            part[log] = group
            size += group.size + RECORD_HEADER_BYTES
        await self._write_part(part, size)

    async def _write_part(self, part: dict[PartitionLog, Group], size: int) -> None:
        try:
            if not self._journal.has_room(size):
                await self._switch()
        except OSError as error:
            # Nothing of this write has reached a file, so the segments take all of it.
            self.stats.failures += 1
            if not is_no_room(error) and not is_no_descriptor(error):
                self._journal_failure = error
            self._divert(part)
            return
        self._journaled.update(part)
        write = self._journal.frame(list(part.values())).write
        meanwhile = _take_meanwhile(part)
        try:
            began_us = self._clock.monotonic_us()
            await self._threads.run(partial(self._write_and_tell, write, meanwhile) if meanwhile else write)
        except OSError as error:
            self.stats.failures += 1
            if is_no_room(error):
                self._journal.end_file()
                self._divert(part)
                return
            # What of this write is on the device is not known, so it is not repeated and the file not used again.
            self._journal_failure = error
            for log in part:
                log.fail(error)
                log.listener()
            return
        self.stats.journal_time.add(self._clock.monotonic_us() - began_us)
        self.stats.journal_syncs += 1
        self.stats.journal_bytes += size
        behind = self._behind
        for log, group in part.items():
            if log.broken is None:
                log.durable_offset = max(log.durable_offset, group.end_offset)
                log.listener()
                # In pieces, since one sync of all that a journal file holds would take the disk for so long that
                # everybody's journal waits.
                behind[log] = behind_bytes = behind.get(log, 0) + group.size
                if behind_bytes >= _BEHIND_BYTES and log not in self._trickling:
                    self._trickling.add(log)
                    self._spawn(self._trickle(log))

    def _divert(self, part: dict[PartitionLog, Group]) -> None:
        """Have the segments make durable what the journal could not take."""
        for log in part:
            self._groups.pop(log, None)
            self._go_direct(log)

    def _write_and_tell(self, write: Callable[[], None], meanwhile: Callable[[], None]) -> None:
        """Blocks. Told from the thread, the loop goes on just when this lets the interpreter go; work that it began
        before would keep the write waiting."""
        with suppress(RuntimeError):  # the loop is closed: nobody waits for this
            self._loop.call_soon_threadsafe(meanwhile)
        write()

    async def _trickle(self, log: PartitionLog) -> None:
        try:
            self._behind[log] = 0
            await self.flush(log)
        finally:
            self._trickling.discard(log)

    async def _switch(self) -> None:
        if not self._journal.can_switch():
            self.pace.hurry()
            while not self._journal.can_switch():
                self._file_freed.clear()
                await self._file_freed.wait()
            self.pace.relax()
        full = await self._threads.run(self._journal.switch)
        logs, self._journaled = self._journaled, set()
        now_ms = self._clock.monotonic_ms()
        filled_ms, self._switched_ms = now_ms - self._switched_ms, now_ms
        self._spawn(self._sync_behind(full, logs, filled_ms))

    async def _sync_behind(self, generation: int, logs: set[PartitionLog], filled_ms: int) -> None:
        """Sync what a full journal file speaks for, so that it can be written over.

        A thousand syncs at once would hold up those that somebody waits for, so they are spread over half of the time
        that the file took to fill.
        """
        left = list(logs)
        while left:
            some: list[PartitionLog] = []
            size = 0
            while left and len(some) < _BEHIND_COUNT and size < _BEHIND_GROUP_BYTES:
                log = left.pop()
                size += self._behind.pop(log, 0)
                some.append(log)
            put_off = await self._flush_all(some)
            left += put_off
            if put_off and not await self.rest():
                break
            await self.pace.pause(filled_ms / 2 * len(some) / len(logs))
        if not left and all(log.broken is None or log.is_deleted for log in logs):
            self._journal.release(generation)
        else:
            # The recovery of what is broken or found no space will need its records.
            self._journal.retire(generation)
        self._file_freed.set()
