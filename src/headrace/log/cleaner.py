"""Cleaning at work: one group of segments at a time on the whole node, slowly, in the background.

See `clean.py` for what happens and why in this order, and `compact.py` for compacted topics.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence

from headrace.host.clock import Clock
from headrace.host.disk import Disk, read_file, write_atomically
from headrace.host.rand import Rand
from headrace.host.threads import Threads
from headrace.log import cleaned as cleaned_file
from headrace.log.claim import claimed, is_wanted
from headrace.log.clean import choose_segments
from headrace.log.compact import is_compacted
from headrace.log.compactor import Compactor, Hands
from headrace.log.config import LogConfig
from headrace.log.judge import Judge, LiveOffsets
from headrace.log.pace import Pace
from headrace.log.partition_log import PartitionLog
from headrace.log.rewrite import Rewrite
from headrace.log.segment import Segment
from headrace.model.errors import HeadraceError
from headrace.model.ids import PartitionId

log = logging.getLogger(__name__)

# A slice is followed by a pause this many times as long as it took.
_PAUSE_RATIO = 3


class _InDoubtError(OSError):
    """The list of cleaned segments may be the old one or the new one after a crash."""


class CleanStats:
    """What was rewritten since the node began, and how long the last pass took."""

    __slots__ = ("bytes_after", "bytes_before", "last_seconds", "passes")

    def __init__(self) -> None:
        self.passes = 0
        self.bytes_before = 0
        self.bytes_after = 0
        self.last_seconds = 0.0


class Cleaner:
    def __init__(
        self,
        *,
        disk: Disk,
        clock: Clock,
        rand: Rand,
        config: LogConfig,
        threads: Threads,
        sync_threads: Threads,
        lock: Callable[[PartitionLog], asyncio.Lock],
        checkpoint: Callable[[PartitionLog], Awaitable[bool]],
        discard: Callable[[PartitionLog, Sequence[str]], Awaitable[None]],
    ) -> None:
        self.pace = Pace(clock)
        self._disk = disk
        self._clock = clock
        self._config = config
        self._threads = threads
        self._sync_threads = sync_threads
        self._lock = lock
        self._checkpoint = checkpoint
        self._discard = discard
        self._one_at_a_time = asyncio.Lock()
        self._is_ended = False
        self._compactor = Compactor(
            disk=disk,
            clock=clock,
            rand=rand,
            config=config,
            threads=threads,
            hands=Hands(checkpoint, self._walk, self._replace, self._save),
        )
        self.cleaning = CleanStats()
        self.compaction = CleanStats()

    def end(self) -> None:
        """Begin nothing new, and give up what is under way at its next slice."""
        self._is_ended = True
        self.pace.end()

    async def clean_all(self, logs: Mapping[PartitionId, PartitionLog]) -> None:
        """Clean whatever is worth it now. Damage, or a full disk, in one partition does not hold up the others."""
        for id, partition_log in list(logs.items()):
            if partition_log.retainer is None and not is_compacted(partition_log):
                continue
            try:
                while logs.get(id) is partition_log and await self.clean(partition_log):
                    pass
            except (HeadraceError, OSError) as error:
                log.warning(
                    "cleaning of a partition failed and is tried again later",
                    extra={"directory": partition_log.directory, "error": str(error)},
                )
            # Most have nothing to do and never wait.
            await asyncio.sleep(0)

    async def clean(self, partition_log: PartitionLog) -> bool:
        """Clean one group of a log's segments, or compact it. False: there was nothing to do, or it could not be."""
        async with self._one_at_a_time:
            if self._is_ended or partition_log.broken is not None:
                return False
            began_us = self._clock.monotonic_us()
            if is_compacted(partition_log):
                is_done, stats = await self._compactor.compact(partition_log), self.compaction
            else:
                is_done, stats = await self._clean_group(partition_log), self.cleaning
            if is_done:
                stats.passes += 1
                stats.last_seconds = (self._clock.monotonic_us() - began_us) / 1_000_000
            return is_done

    async def _clean_group(self, partition_log: PartitionLog) -> bool:
        old = await self._choose(partition_log)
        if not old:
            return False
        retainer = partition_log.retainer
        assert retainer is not None
        judge = LiveOffsets(retainer.live_offsets(old[0].base_offset, old[-1].next_offset))
        with claimed(partition_log, old):
            return await self._replace(partition_log, old, judge, partition_log.cut_count)

    async def _replace(self, partition_log: PartitionLog, old: Sequence[Segment], judge: Judge, cut_count: int) -> bool:
        """Put what a judge lets stay in the place of neighbours. False: it was given up, and nothing has changed."""
        if partition_log.cut_count != cut_count or not _are_there(partition_log, old):
            return False
        rewrite = self._begin(partition_log, old, judge)
        is_swapped = False
        try:
            if await self._walk(partition_log, rewrite.step):
                is_swapped = await self._swap(partition_log, rewrite, cut_count)
        except FileNotFoundError:
            if _are_there(partition_log, old):
                raise
        finally:
            if not is_swapped and not isinstance(partition_log.broken, _InDoubtError):
                await self._threads.run(lambda: self._remove(rewrite))
        if is_swapped:
            await self._discard(partition_log, [segment.stem for segment in old])
        return is_swapped

    async def _choose(self, partition_log: PartitionLog) -> list[Segment]:
        wanted = choose_segments(partition_log, self._config, below=partition_log.end_offset)
        if wanted and wanted[-1].next_offset > partition_log.snapshot_offset:
            # Snapshots that are on disk do not reach that far yet.
            await self._checkpoint(partition_log)
        return choose_segments(partition_log, self._config, below=partition_log.snapshot_offset)

    def _begin(self, partition_log: PartitionLog, old: Sequence[Segment], judge: Judge) -> Rewrite:
        partition_log.generation += 1
        later = partition_log.segments[partition_log.segments.index(old[-1]) + 1 :]
        return Rewrite(
            self._disk,
            partition_log.directory,
            old,
            judge,
            generation=partition_log.generation,
            interval_bytes=partition_log.config.index_interval_bytes,
            keeps_last=not any(segment.size for segment in later),
        )

    async def _walk(self, partition_log: PartitionLog, step: Callable[[], bool]) -> bool:
        """Take step after step in a thread, with pauses, until one is the last. False: it was given up."""
        while not (self._is_ended or partition_log.broken or is_wanted(partition_log)):
            began_us = self._clock.monotonic_us()
            if await self._threads.run(step):
                return True
            await self.pace.pause((self._clock.monotonic_us() - began_us) * _PAUSE_RATIO / 1000)
        return False

    async def _save(self, partition_log: PartitionLog, cut_count: int, save: Callable[[], None]) -> bool:
        async with self._lock(partition_log):
            if partition_log.broken is not None or partition_log.cut_count != cut_count:
                return False
            await self._sync_threads.run(save)
            return True

    async def _swap(self, partition_log: PartitionLog, rewrite: Rewrite, cut_count: int) -> bool:
        async with self._lock(partition_log):
            is_cut = partition_log.cut_count != cut_count
            if partition_log.broken is not None or is_cut or not _are_there(partition_log, rewrite.old):
                return False
            new = rewrite.result()
            assert new.cleaned is not None
            gone = [segment.cleaned for segment in rewrite.old]
            entries = [entry for entry in partition_log.cleaned_entries if entry not in gone]
            listed = cleaned_file.encode(sorted([*entries, new.cleaned], key=lambda entry: entry.base_offset))
            try:
                await self._sync_threads.run(lambda: self._list(partition_log.directory, listed))
            except _InDoubtError as error:
                partition_log.fail(error)
                partition_log.listener()
                return False
            partition_log.replace_segments(rewrite.old, new)
        stats = self.compaction if is_compacted(partition_log) else self.cleaning
        bytes_before = sum(segment.size for segment in rewrite.old)
        stats.bytes_before += bytes_before
        stats.bytes_after += new.size
        log.info(
            "cleaned segments",
            extra={
                "directory": partition_log.directory,
                "base_offset": new.base_offset,
                "segments": len(rewrite.old),
                "bytes_before": bytes_before,
                "bytes_after": new.size,
            },
        )
        return True

    def _list(self, directory: str, listed: bytes) -> None:
        try:
            write_atomically(self._disk, directory, cleaned_file.NAME, listed)
        except OSError as error:
            path = f"{directory}/{cleaned_file.NAME}"
            if self._disk.exists(path) and read_file(self._disk, path) == listed:
                raise _InDoubtError(*error.args) from error
            raise

    def _remove(self, rewrite: Rewrite) -> None:
        try:
            rewrite.remove()
        except OSError as error:
            log.warning("a file that was not needed is left until the next start", extra={"error": str(error)})


def _are_there(partition_log: PartitionLog, segments: Sequence[Segment]) -> bool:
    """Whether a truncation has not taken any of the segments that are being rewritten."""
    return all(segment in partition_log.segments for segment in segments)
