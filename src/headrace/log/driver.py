"""All logs of a node: opening and recovering them, committing, reading, and looking after them.

The blocking half of starting and stopping is in `startup.py`; what a commit is, in `commit.py`.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Coroutine, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, NamedTuple, TypeVar

from headrace.host.ballast import Ballast
from headrace.host.clock import Clock, past_ms
from headrace.host.disk import Disk
from headrace.host.rand import Rand
from headrace.host.threads import Threads
from headrace.log import disk_error
from headrace.log.clean import needs_roll_to_clean
from headrace.log.cleaner import Cleaner
from headrace.log.commit import Committer
from headrace.log.config import LogConfig
from headrace.log.damage import Damage
from headrace.log.files import Files
from headrace.log.journal import Journal
from headrace.log.maintenance import (
    checkpointed,
    expire,
    needs_checkpoint,
    needs_roll,
    plan_checkpoint,
    plan_drop,
    plan_truncation,
)
from headrace.log.partition_log import PartitionLog
from headrace.log.reader import Blocking, ReadAt, Reads
from headrace.log.space import Space
from headrace.log.startup import Startup
from headrace.log.walk import Cut, scan_to
from headrace.model.batch import Buffer
from headrace.model.errors import HeadraceError, PartitionOfflineError
from headrace.model.ids import Offset, PartitionId
from headrace.model.topic import Durability, TopicConfig

log = logging.getLogger(__name__)

T = TypeVar("T")


def _unreadable(error: OSError) -> HeadraceError:
    """A failed read leaves the log as good as it was: it is told, and may be tried again."""
    return PartitionOfflineError(
        f"{error.filename or 'a segment'} could not be read: {error.strerror}; check the disk, then retry"
    )


class Cold(NamedTuple):
    """A read that has to wait for the device, and what it waits for."""

    reads: Reads[Any]
    need: ReadAt | Blocking


class LogStore:
    def __init__(
        self,
        *,
        disk: Disk,
        clock: Clock,
        rand: Rand,
        sync_threads: Threads,
        read_threads: Threads,
        directory: str,
        config: LogConfig,
        ballast: Ballast | None = None,  # shared with what else the node must write at a full disk
    ) -> None:
        self.logs: dict[PartitionId, PartitionLog] = {}
        # Partitions that could not be opened, and why. Their files are left as they are.
        self.refused: dict[PartitionId, HeadraceError] = {}
        self.damage = Damage()
        self.ballast = Ballast(disk, directory, size_bytes=0) if ballast is None else ballast
        self.space = Space(disk, directory, reserve_bytes=config.disk_reserve_bytes, ballast=self.ballast)
        self.files = Files(disk, open_max=config.open_files_max, space=self.space)
        self._disk = disk
        self._clock = clock
        self._rand = rand
        self._sync_threads = sync_threads
        self._read_threads = read_threads
        self._directory = directory
        self._config = config
        self._tasks: set[asyncio.Task[None]] = set()
        self._failure: asyncio.Future[None] | None = None
        self._journal = Journal(disk, f"{directory}/journal", file_bytes=config.journal_bytes)
        self._startup = Startup(disk=disk, files=self.files, journal=self._journal, directory=directory, clock=clock)
        self._trash_lock = asyncio.Lock()
        self._made_lock = asyncio.Lock()
        self._unadmitted: deque[Callable[[], None]] = deque()
        self._pauses: set[asyncio.Event] = set()
        self._is_stopping = False

    @property
    def is_full(self) -> bool:
        """Whether sends are refused, because the disk's reserve is reached."""
        return self.space.is_full

    # Start and stop.

    async def start(self, partitions: Mapping[PartitionId, TopicConfig]) -> None:
        """Open these partitions, recover what a crash left, and go to work."""
        self._failure = asyncio.get_running_loop().create_future()
        opened = await self._sync_threads.run(lambda: self._startup.open_all(partitions))
        self.logs, self.refused = opened.logs, opened.refused
        self.committer = Committer(
            disk=self._disk,
            clock=self._clock,
            threads=self._sync_threads,
            journal=self._journal,
            config=self._config,
            spawn=self._spawn,
        )
        self.cleaner = Cleaner(
            disk=self._disk,
            clock=self._clock,
            rand=self._rand,
            config=self._config,
            threads=self._read_threads,
            sync_threads=self._sync_threads,
            lock=self.committer.lock,
            checkpoint=self.checkpoint,
            discard=self._discard,
        )
        await self._look_at_space()
        self._spawn(self._maintain_always())
        self._spawn(self._clean_always())
        self._spawn(self._watch_space())

    async def wait_failed(self) -> None:
        """Wait for ever, or until one of the store's own tasks dies, which nothing here survives (failure row 41)."""
        assert self._failure is not None
        await asyncio.shield(self._failure)

    async def stop(self) -> None:
        """Make everything durable and leave the mark of a clean stop."""
        self._is_stopping = True
        self.committer.end()
        self.cleaner.end()
        for pause in self._pauses:
            pause.set()
        while self._tasks:
            await asyncio.wait(self._tasks)
        shutdown_id = str(self._rand.uuid())
        is_clean = not self.refused
        for partition_log in self.logs.values():
            with suppress(HeadraceError):  # a log that its disk fails now says so itself
                partition_log.write_tail()
                partition_log.give_back_reserve()
            # Without a checkpoint the journal may hold what the segments lack, and is kept.
            is_clean &= await self.checkpoint(partition_log, shutdown_id=shutdown_id)
        await self._sync_threads.run(lambda: self._startup.leave(shutdown_id if is_clean else ""))

    def _spawn(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._task_done)
        return task

    async def _pause(self, delay_ms: float) -> bool:
        """Sleep, and say whether to go on. A stop ends the sleep alone: work under way is never cut short, because a
        sync that nobody waits for goes on in its thread, beside the next one."""
        if self._is_stopping:
            return False
        woken = asyncio.Event()
        timer = self._clock.call_later(delay_ms, woken.set)
        self._pauses.add(woken)
        try:
            await woken.wait()
        finally:
            timer.cancel()
            self._pauses.discard(woken)
        return not self._is_stopping

    def _task_done(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            log.critical("a task of the log store died", exc_info=error)
            if self._failure is not None and not self._failure.done():
                self._failure.set_exception(error)

    # Partitions come and go.

    async def create(self, partitions: Mapping[PartitionId, TopicConfig]) -> None:
        """Make new partitions, or open those that a call which was cut short has made. All are there or none."""
        made: dict[PartitionId, PartitionLog] = {}
        try:
            for id, config in partitions.items():
                made[id] = await self._sync_threads.run(partial(self._startup.open_one, id, config))
            async with self._made_lock:
                await self._sync_threads.run(lambda: self._startup.note_made(made))
        except OSError as error:
            raise disk_error.refusal(error, error.filename or self._directory, "made") from error
        self.logs.update(made)

    async def delete(self, id: PartitionId) -> None:
        """Move a partition's files into the trash, and empty that."""
        partition_log = self.logs.pop(id, None)
        self.refused.pop(id, None)
        if partition_log is not None:
            partition_log.delete()
            partition_log.listener()
            await self.committer.forget(partition_log)
            self.files.close_under(partition_log.directory)
        async with self._trash_lock:
            await self._sync_threads.run(lambda: self._startup.discard_partition(id))

    async def truncate(self, partition_log: PartitionLog, offset: Offset) -> None:
        """Cut a log back to an offset, or to the start of the batch that holds it. Its owner appends nothing now."""
        if offset >= partition_log.end_offset:
            return
        await self.committer.leave_journal(partition_log)
        if not await self.committer.flush(partition_log):
            raise self.space.refusal()
        partition_log.check_usable()
        async with self.committer.lock(partition_log):

            def find() -> Cut:
                found = scan_to(partition_log, offset)
                partition_log.load_index(found.segment)
                return found

            cut = await self._read_threads.run(find)
            plan = plan_truncation(partition_log, cut, journal_sequence=self._journal.sequence)
            try:
                await self._sync_threads.run(lambda: plan.run(self._disk, self._startup.trash))
                checkpointed(partition_log, plan.checkpoint)
            except OSError as error:
                # Memory and files no longer agree: what is cut may stand behind what would be appended.
                partition_log.fail(error)
                partition_log.listener()
                partition_log.check_usable()

    # Descriptors.

    def admits(self, partition_log: PartitionLog) -> bool:
        """Whether an append may be written now: unsynced files stay open, and only so many may (failure row 25)."""
        return partition_log.active.is_held or self.files.has_room

    def call_when_admitted(self, callback: Callable[[], None]) -> None:
        """Sync some logs to free their files, and call back, in order, as that succeeds."""
        self._unadmitted.append(callback)
        if len(self._unadmitted) == 1:
            self._spawn(self._free_files())

    async def _free_files(self) -> None:
        while self._unadmitted:
            for partition_log in list(self.logs.values()):
                if partition_log.has_unsynced and not await self.committer.flush(partition_log):
                    await self.committer.rest()
                while self._unadmitted and self.files.has_room:
                    self._unadmitted.popleft()()
            await asyncio.sleep(0)

    # Reading.

    def try_read(self, reads: Reads[T]) -> "T | Cold":
        """Run a read as far as the page cache carries it."""
        try:
            need = next(reads)
            while isinstance(need, ReadAt):
                data = self.files.get(need.path).pread_cached(need.position, need.size)
                if data is None:
                    break
                need = reads.send(data)
        except StopIteration as stop:
            value: T = stop.value
            return value
        except OSError as error:
            raise _unreadable(error) from error
        return Cold(reads, need)

    async def read(self, reads: Reads[T]) -> T:
        """Run a read to its end, in a thread where it has to wait."""
        result = self.try_read(reads)
        if isinstance(result, Cold):
            try:
                value: T = await self.finish(result)
            except FileNotFoundError as error:
                raise _unreadable(error) from error
            return value
        return result

    async def finish(self, cold: Cold) -> Any:
        """Run a cold read to its end. FileNotFoundError: retention or cleaning took the file."""
        reads, need = cold
        while True:
            try:
                need = reads.send(await self._wait_for(need))
            except StopIteration as stop:
                return stop.value
            except FileNotFoundError:
                raise
            except OSError as error:
                raise _unreadable(error) from error

    async def _wait_for(self, need: ReadAt | Blocking) -> Buffer:
        if isinstance(need, Blocking):
            await self._read_threads.run(need.call)
            return b""
        file = self.files.hold(need.path)
        try:
            return await self._read_threads.run(partial(file.pread, need.position, need.size))
        finally:
            self.files.release(need.path)

    # Looking after them.

    async def checkpoint(self, partition_log: PartitionLog, *, shutdown_id: str = "") -> bool:
        """Sync a log and write down where it stands, so that the next start need not read it. False: it could not."""
        async with self.committer.lock(partition_log):
            if partition_log.broken is not None:
                return False
            partition_log.write_pending()
            try:
                flush = partition_log.plan_flush()
            except HeadraceError:  # what was deferred could not be written, and the log is broken now
                partition_log.listener()
                return False
            plan = plan_checkpoint(partition_log, partition_log.take_snapshots(), shutdown_id=shutdown_id)
            failure: OSError | None = None
            try:
                await self._sync_threads.run(lambda: flush.run(self._disk))
            except OSError as error:
                failure = error
            partition_log.flushed(flush, failure)
            partition_log.listener()
            try:
                if failure is not None:
                    raise failure
                # By it records are deleted, and segments that are done with.
                await self._sync_threads.run(lambda: self.ballast.insist(lambda: plan.run(self._disk)))
            except OSError as error:
                # Nothing is lost: the last checkpoint still holds. The indexes on disk are in doubt.
                partition_log.checkpoint_error = error
                log.warning("checkpoint failed", extra={"directory": partition_log.directory, "error": str(error)})
                for segment in partition_log.segments:
                    if segment.index is not None:
                        segment.index.forget_saved()
                return False
            checkpointed(partition_log, plan)
            return True

    async def maintain(self, partition_log: PartitionLog, *, floor: Offset) -> None:
        """Roll, checkpoint and expire one log, as far as each is due."""
        if partition_log.broken is not None:
            return
        now_ms, wall_ms = past_ms(self._clock), self._clock.wall_ms()
        if needs_roll(partition_log, now_ms=now_ms, wall_ms=wall_ms) or needs_roll_to_clean(
            partition_log, self._config
        ):
            partition_log.roll(now_ms=wall_ms)
        if needs_checkpoint(partition_log, self._config, now_ms=wall_ms):
            await self.checkpoint(partition_log)
        async with self.committer.lock(partition_log):
            while partition_log.broken is None:
                expire(partition_log, floor=floor, now_ms=now_ms)
                # Where compaction has left nothing there is no age to be learnt.
                oldest = next((one for one in partition_log.segments if one.size), partition_log.active)
                if oldest.max_timestamp_ms is not None or oldest.next_offset > floor:
                    break
                await self._read_threads.run(partial(partition_log.load_index, oldest))
            plan = plan_drop(partition_log)
            if not plan.stems or partition_log.broken is not None:
                return
            await self._sync_threads.run(lambda: plan.run(self._disk))
            partition_log.saved = plan.checkpoint
            partition_log.dropped_stems = []
        await self._discard(partition_log, plan.stems)

    async def clean(self, partition_log: PartitionLog) -> bool:
        """Clean one group of a log's segments, if any is worth it, and say whether that was done."""
        return await self.cleaner.clean(partition_log)

    async def _discard(self, partition_log: PartitionLog, stems: Sequence[str]) -> None:
        async with self._trash_lock:
            if not partition_log.is_deleted:
                await self._sync_threads.run(lambda: self._startup.discard_segments(stems))

    async def _clean_always(self) -> None:
        while await self._pause(self._config.maintenance_interval_ms):
            await self.cleaner.clean_all(self.logs)

    async def _maintain_always(self) -> None:
        while await self._pause(self._config.maintenance_interval_ms):
            for partition_log in list(self.logs.values()):
                if self._is_stopping:
                    return
                if partition_log.id in self.logs:
                    await self._try_maintain(partition_log)
                # Most have nothing to do and never wait, and a thousand of them must not be one turn of the loop.
                await asyncio.sleep(0)

    async def _try_maintain(self, partition_log: PartitionLog) -> None:
        """A full disk, or damage in one partition, is no reason to stop looking after the others."""
        try:
            floor = min(partition_log.durable_offset, partition_log.open_limit())
            await self.maintain(partition_log, floor=floor)
        except (HeadraceError, OSError) as error:
            log.warning(
                "maintenance of a partition failed and is tried again later",
                extra={"directory": partition_log.directory, "error": str(error)},
            )

    async def _watch_space(self) -> None:
        elapsed_ms = 0
        while await self._pause(self._config.disk_check_interval_ms):
            await self._look_at_space()
            elapsed_ms += self._config.disk_check_interval_ms
            if elapsed_ms >= self._config.flush_interval_ms:
                elapsed_ms = 0
                for partition_log in list(self.logs.values()):
                    if partition_log.config.durability is Durability.REPLICATED and partition_log.has_unsynced:
                        await self.committer.flush(partition_log)

    async def _look_at_space(self) -> None:
        was_full = self.is_full
        self.space.check()
        if self.is_full and not was_full:
            for partition_log in self.logs.values():
                with suppress(HeadraceError):  # it is a hint
                    partition_log.give_back_reserve()
        if self.space.can_refill:
            try:
                await self._sync_threads.run(self.ballast.refill)
            except OSError as error:
                log.warning("no space could be held back for a full disk", extra={"error": str(error)})
            self.space.check()
