"""Which of a log's oldest segments may go. Pure.

Only whole segments go, oldest first, never the active one, and never anything at or above the floor: the lowest of the
high watermark, the oldest open transaction and the oldest offset that some fold's durable snapshot does not cover.
"""

from collections.abc import Sequence
from typing import NamedTuple

from headrace.model.ids import Offset
from headrace.model.topic import UNLIMITED, TopicConfig

_START = Offset(0)


class SegmentFacts(NamedTuple):
    """What retention looks at. Oldest first, without the active segment."""

    next_offset: Offset
    size: int
    max_timestamp_ms: int | None  # None where it is not known yet


def count_expired(
    closed: Sequence[SegmentFacts],
    config: TopicConfig,
    *,
    active_bytes: int,
    log_start: Offset,
    floor: Offset,
    now_ms: int,
    live_from: Offset = _START,
) -> int:
    """How many of the oldest closed segments are past the topic's age or size, or wholly below the log's start, or
    below the first message that is live."""
    bytes_left = active_bytes + sum(segment.size for segment in closed)
    count = 0
    for number, segment in enumerate(closed, start=1):
        bytes_left -= segment.size
        deleted = segment.next_offset <= max(log_start, live_from)
        # A segment without timestamps is as old as nothing: only its size can make it go.
        newest_ms = segment.max_timestamp_ms
        aged = (
            config.is_deleting
            and config.retention_ms != UNLIMITED
            and newest_ms is not None
            and newest_ms >= 0
            and now_ms - newest_ms > config.retention_ms
        )
        # Like Kafka: a segment goes only if what is left without it still reaches the stated size.
        is_bounded = config.is_deleting and config.retention_bytes != UNLIMITED
        crowded = is_bounded and bytes_left >= config.retention_bytes
        if segment.next_offset > floor:
            break
        if deleted or (segment.size and (aged or crowded)):
            count = number
        elif segment.size:
            break
        # One in which compaction has left nothing has no age. It goes with the next one that goes, and never alone:
        # the log's start would move without cause, past readers who have the live messages behind it before them.
    return count
