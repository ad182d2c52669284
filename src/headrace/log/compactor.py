"""Compaction at work: one pass at a time on the whole node, slowly, in the background. See `compact.py`."""

import logging
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import NamedTuple

from headrace.host.clock import Clock, past_ms, stamp_ms
from headrace.host.disk import Disk
from headrace.host.rand import Rand
from headrace.host.threads import Threads
from headrace.log import compact
from headrace.log.claim import claimed
from headrace.log.compacted import Compacted, read_compacted, save_compacted
from headrace.log.config import LogConfig
from headrace.log.judge import Judge
from headrace.log.latest import AbortedRanges, Latest, MapBuild
from headrace.log.offset_map import HASH_SIZE, OffsetMap
from headrace.log.partition_log import PartitionLog
from headrace.log.segment import Segment
from headrace.log.walk import headers
from headrace.model.ids import Offset

log = logging.getLogger(__name__)

# A record takes at least so many bytes, so that few bytes cannot hold many keys.
_RECORD_SIZE_MIN = 7


class Hands(NamedTuple):
    """What a pass has done by others."""

    checkpoint: Callable[[PartitionLog], Awaitable[bool]]
    # Run a blocking step until it says that it is done, with pauses. False: it was given up.
    walk: Callable[[PartitionLog, Callable[[], bool]], Awaitable[bool]]
    # Replace neighbours by what a judge lets stay. False: it was given up.
    replace: Callable[[PartitionLog, Sequence[Segment], Judge, int], Awaitable[bool]]
    # Run a short blocking call while nobody cuts the log. False: somebody has cut it, so it was not run.
    save: Callable[[PartitionLog, int, Callable[[], None]], Awaitable[bool]]


class Compactor:
    def __init__(
        self, *, disk: Disk, clock: Clock, rand: Rand, config: LogConfig, threads: Threads, hands: Hands
    ) -> None:
        self._disk = disk
        self._clock = clock
        self._rand = rand
        self._config = config
        self._threads = threads
        self._hands = hands

    async def compact(self, partition_log: PartitionLog) -> bool:
        """Do one pass, if one is due, and say whether that was done."""
        oldest, cut_count = partition_log.segments[0], partition_log.cut_count
        try:
            state = await self._state(partition_log)
            segments = await self._choose(partition_log, state)
            if not segments or partition_log.cut_count != cut_count:
                return False
            with claimed(partition_log, segments):
                return await self._pass(partition_log, segments, state, cut_count)
        except FileNotFoundError:
            if partition_log.segments[0] is oldest and partition_log.cut_count == cut_count:
                raise
            return False  # retention took what was to be read

    async def _pass(
        self, partition_log: PartitionLog, segments: Sequence[Segment], state: Compacted, cut_count: int
    ) -> bool:
        config = partition_log.config
        began_ms = past_ms(self._clock)
        start = Offset(max(state.upto, partition_log.start_offset))
        aborted = _aborted(partition_log, segments)
        build = await self._map(partition_log, segments, aborted, start)
        if build is None:
            return False
        judge = Latest(
            build.offsets,
            aborted,
            upto=build.upto,
            expired=state.expired_upto(delete_retention_ms=config.delete_retention_ms, now_ms=began_ms),
            passes=state.passes,
        )
        for group in compact.groups(segments, upto=build.upto, segment_bytes_max=config.segment_bytes_max):
            if not await self._hands.replace(partition_log, group, judge, cut_count):
                return False
        after = state.after(
            build.upto,
            judge.removable_counts,
            delete_retention_ms=config.delete_retention_ms,
            now_ms=stamp_ms(self._clock),
        )
        save = partial(save_compacted, self._disk, partition_log.directory, after)
        if not await self._hands.save(partition_log, cut_count, save):
            return False
        partition_log.compacted = after
        if partition_log.transactions is not None and judge.dropped_markers:
            partition_log.transactions.forget_aborted(judge.dropped_markers)
        log.info(
            "compacted a partition",
            extra={
                "directory": partition_log.directory,
                "from_offset": start,
                "upto_offset": after.upto,
                "keys": len(build.offsets),
            },
        )
        return True

    async def _state(self, partition_log: PartitionLog) -> Compacted:
        if partition_log.compacted is None:
            cut_count = partition_log.cut_count
            state = await self._threads.run(lambda: read_compacted(self._disk, partition_log.directory))
            # Nothing above the recovery point was ever compacted, whatever the file says.
            state = state.lowered(partition_log.recovery_point)
            if partition_log.cut_count != cut_count:
                return state
            partition_log.compacted = state
        return partition_log.compacted

    async def _choose(self, partition_log: PartitionLog, state: Compacted) -> list[Segment]:
        """The segments of a pass that is due."""
        if not await self._is_due(partition_log, state, below=partition_log.end_offset):
            return []
        stable = compact.stable_segments(partition_log, below=partition_log.end_offset)
        if stable[-1].next_offset > partition_log.snapshot_offset:
            # Snapshots that are on disk do not reach that far yet.
            await self._hands.checkpoint(partition_log)
        if not await self._is_due(partition_log, state, below=partition_log.snapshot_offset):
            return []
        segments = self._candidates(partition_log, state, below=partition_log.snapshot_offset)
        # What was compacted once is walked as a whole, or it is not known which tombstones are left.
        return segments if segments[-1].next_offset >= state.upto else []

    def _candidates(self, partition_log: PartitionLog, state: Compacted, *, below: Offset) -> list[Segment]:
        stable = compact.stable_segments(partition_log, below=below)
        dirty_from = Offset(state.upto)
        return compact.old_enough(stable, partition_log.config, dirty_from=dirty_from, now_ms=past_ms(self._clock))

    async def _is_due(self, partition_log: PartitionLog, state: Compacted, *, below: Offset) -> bool:
        config, dirty_from = partition_log.config, Offset(state.upto)
        dirty = compact.dirty_of(compact.stable_segments(partition_log, below=below), dirty_from)
        if config.compaction_lag_ms_min:
            await self._learn_times(partition_log, dirty)
        oldest_ms = None
        if dirty and compact.has_lag_max(config):
            oldest_ms = await self._threads.run(partial(self._first_ms, dirty[0]))
        segments = self._candidates(partition_log, state, below=below)
        load = compact.load_of(segments, Offset(max(dirty_from, partition_log.start_offset)))
        return bool(segments) and compact.is_due(load, state, config, oldest_ms=oldest_ms, now_ms=past_ms(self._clock))

    async def _learn_times(self, partition_log: PartitionLog, dirty: Sequence[Segment]) -> None:
        """Have the newest time of every dirty segment known, which is in its index."""
        for segment in dirty:
            if segment.max_timestamp_ms is None:
                await self._threads.run(partial(partition_log.load_index, segment))
                if segment.index is not None and segment.index.is_sealed and not segment.index.has_unsaved:
                    segment.drop_index()  # which keeps the time, and not the memory

    def _first_ms(self, segment: Segment) -> int | None:
        """The time of a segment's first batch. Blocks."""
        try:
            file = self._disk.open(segment.path)
        except FileNotFoundError:
            return None  # retention took it
        try:
            found = next(headers(file, segment, 0, segment.size, segment.first_offset), None)
            return None if found is None else found[0].max_timestamp_ms
        finally:
            file.close()

    async def _map(
        self, partition_log: PartitionLog, segments: Sequence[Segment], aborted: AbortedRanges, start: Offset
    ) -> MapBuild | None:
        dirty = compact.dirty_of(segments, start)
        span = segments[-1].next_offset - start
        count_max = max(min(span, sum(segment.size for segment in dirty) // _RECORD_SIZE_MIN), 0)
        bytes_max, salt = self._config.compact_map_bytes, self._rand.bytes(HASH_SIZE)
        # In a thread, because so much memory takes its time to be filled.
        offsets = await self._threads.run(lambda: OffsetMap(count_max=count_max, bytes_max=bytes_max, salt=salt))
        build = MapBuild(self._disk, dirty, offsets, aborted, start=start)
        try:
            return build if await self._hands.walk(partition_log, build.step) else None
        finally:
            build.close()


def _aborted(partition_log: PartitionLog, segments: Sequence[Segment]) -> AbortedRanges:
    transactions = partition_log.transactions
    if transactions is None:
        return AbortedRanges(())
    return AbortedRanges(transactions.aborted(segments[0].base_offset, segments[-1].next_offset))
