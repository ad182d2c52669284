"""What to compact, and when. Pure.

Theory of operation. In a compacted topic the last committed message of each key stays, and what came before it goes.
Offsets stay, gaps are left, as with every cleaning (`clean.py`), by the same files and the same atomic list. A log is

    clean     below `Compacted.upto`: no key is there twice
    dirty     from there up to the limit: closed segments below the last stable offset, the recovery segment and the
              durable snapshots of every fold, and older than min.compaction.lag.ms
    untouched above

and one pass of compaction is

    map       read the dirty part, in a thread, slice by slice: the last offset of each key, in a table of bounded size.
              Where that is full the dirty part ends for this pass, and the next one goes on there
    rewrite   from the log's beginning up, in groups of neighbours that fit into one segment, each replaced atomically:
              what the map has a higher offset for goes
    save      how far the log is clean now (`compacted.py`)

A tombstone, which is a message without a value, says that its key is gone. It may itself go only when nothing is left
below it that it speaks of, and when whoever rebuilds a table has had delete.retention.ms to read it. The first is why
a pass rewrites everything below, in order, and saves only at its end. Whatever happens before, the next pass does all
of it again: dropping what is dead twice is dropping it once.

Idempotent producers need nothing here: their state is in durable snapshots, above which nothing is compacted.
"""

from collections.abc import Sequence
from typing import NamedTuple

from headrace.log.compacted import Compacted
from headrace.log.partition_log import PartitionLog
from headrace.log.segment import Segment
from headrace.model.ids import Offset
from headrace.model.topic import INT64_MAX, TopicConfig


def is_compacted(log: PartitionLog) -> bool:
    """A log whose retainer knows better is left to it."""
    return log.config.is_compacted and log.retainer is None


def stable_segments(log: PartitionLog, *, below: Offset) -> list[Segment]:
    """The closed segments in which nothing is undecided, none of which reaches above an offset."""
    limit = min(below, log.recovery_base, log.durable_offset, log.open_limit())
    if log.transactions is not None:
        limit = min(limit, log.transactions.last_stable_offset)
    return [segment for segment in log.segments[:-1] if segment.next_offset <= limit]


def old_enough(segments: Sequence[Segment], config: TopicConfig, *, dirty_from: Offset, now_ms: int) -> list[Segment]:
    """Those before the first dirty one with a message that is younger than min.compaction.lag.ms."""
    if not config.compaction_lag_ms_min:
        return list(segments)
    young_ms = now_ms - config.compaction_lag_ms_min
    for at, segment in enumerate(segments):
        newest_ms = segment.max_timestamp_ms
        if segment.next_offset > dirty_from and (newest_ms is None or newest_ms > young_ms):
            return list(segments[:at])
    return list(segments)


def dirty_of(segments: Sequence[Segment], dirty_from: Offset) -> list[Segment]:
    return [segment for segment in segments if segment.next_offset > dirty_from]


class Load(NamedTuple):
    """How much of the segments is clean and dirty, in bytes."""

    clean: int
    dirty: int


def load_of(segments: Sequence[Segment], dirty_from: Offset) -> Load:
    clean = dirty = 0
    for segment in segments:
        count = segment.next_offset - segment.base_offset
        dirty_count = min(max(segment.next_offset - dirty_from, 0), count)
        share = segment.size * dirty_count // max(count, 1)
        dirty += share
        clean += segment.size - share
    return Load(clean, dirty)


def is_due(load: Load, state: Compacted, config: TopicConfig, *, oldest_ms: int | None, now_ms: int) -> bool:
    """Whether a pass is worth it, or owed. `oldest_ms` is the time of the first dirty message, where that matters."""
    if state.has_expired(delete_retention_ms=config.delete_retention_ms, now_ms=now_ms):
        return True
    if not load.dirty:
        return False
    if oldest_ms is not None and 0 <= oldest_ms < now_ms - config.compaction_lag_ms_max:
        return True
    return load.dirty > config.dirty_ratio_min * (load.clean + load.dirty)


def has_lag_max(config: TopicConfig) -> bool:
    return config.compaction_lag_ms_max < INT64_MAX


def groups(segments: Sequence[Segment], *, upto: Offset, segment_bytes_max: int) -> list[list[Segment]]:
    """Neighbours that become one segment each, for everything that begins below an offset."""
    made: list[list[Segment]] = []
    size = 0
    for segment in segments:
        if segment.base_offset >= upto:
            break
        if not made or size + segment.size > segment_bytes_max:
            made.append([])
            size = 0
        made[-1].append(segment)
        size += segment.size
    return made
