"""Filters of a query, turned into less to read: topics, partitions, offsets, times and keys.

What cannot be turned is left to Spark, and so is the exact answer: here a filter only takes away what no row of could
pass. A time from which to read is an offset, since everything before the first message at or after it is older. A time
up to which to read is one only where the node stamps the messages: elsewhere an older message may lie behind a newer.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.datasource import EqualTo, Filter, GreaterThan, GreaterThanOrEqual, In, LessThan, LessThanOrEqual

from headrace.client.values import TopicPartition
from headrace.spark.link import Link
from headrace.spark.source.reading import Range

_STAMPED = "LogAppendTime"
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class Span:
    """From a number on and below another."""

    start: int | None = None
    end: int | None = None

    def meet(self, other: "Span") -> "Span":
        starts = [one for one in (self.start, other.start) if one is not None]
        ends = [one for one in (self.end, other.end) if one is not None]
        return Span(max(starts, default=None), min(ends, default=None))

    def __contains__(self, number: int) -> bool:
        return (self.start is None or number >= self.start) and (self.end is None or number < self.end)


@dataclass(frozen=True, slots=True, kw_only=True)
class Pushed:
    """What must hold of a row. None is no condition."""

    topics: frozenset[str] | None = None
    keys: frozenset[bytes] | None = None
    partitions: frozenset[int] | None = None
    spans: Mapping[str, Span] = field(default_factory=dict)  # of partition, offset and timestamp, in milliseconds

    def narrow(self, ranges: list[Range], link: Link) -> list[Range]:
        """The ranges without what no row could pass."""
        offsets, partitions = self.spans.get("offset", Span()), self.spans.get("partition", Span())
        kept = [
            replace(
                one,
                start=max(one.start, one.start if offsets.start is None else offsets.start),
                end=min(one.end, one.end if offsets.end is None else offsets.end),
            )
            for one in ranges
            if (self.topics is None or one.topic in self.topics)
            and (self.partitions is None or one.partition in self.partitions)
            and one.partition in partitions
        ]
        kept = [one for one in kept if one.start < one.end]
        times = self.spans.get("timestamp")
        return kept if times is None or not kept else _narrow_times(kept, times, link)


def _narrow_times(ranges: list[Range], times: Span, link: Link) -> list[Range]:
    def offsets(timestamp_ms: int, topics: set[str]) -> dict[TopicPartition, int | None]:
        ats = [TopicPartition(one.topic, one.partition) for one in ranges if one.topic in topics]
        return link.offsets_for_times(dict.fromkeys(ats, max(timestamp_ms, 0))) if ats else {}

    topics = {one.topic for one in ranges}
    starts = {} if times.start is None else offsets(times.start, topics)
    stamped = {one for one in topics if link.topic_setting(one, "message.timestamp.type") == _STAMPED}
    ends = {} if times.end is None else offsets(times.end, stamped)
    kept = []
    for one in ranges:
        at = TopicPartition(one.topic, one.partition)
        # None: no message of it is so late.
        start = starts.get(at, one.start)
        end = ends.get(at)
        if start is not None:
            kept.append(replace(one, start=max(one.start, start), end=one.end if end is None else min(one.end, end)))
    return [one for one in kept if one.start < one.end]


def read_filters(filters: Iterable[Filter]) -> Pushed:
    """What of the filters, all of which must hold, is understood."""
    pushed = Pushed()
    for one in filters:
        attribute: tuple[str, ...] = getattr(one, "attribute", ())
        if len(attribute) == 1:
            pushed = _with(pushed, attribute[0], one)
    return pushed


def _with(pushed: Pushed, column: str, one: Filter) -> Pushed:
    if isinstance(one, EqualTo | In) and column in ("topic", "key"):
        listed = one.value if isinstance(one, In) else (one.value,)
        values = frozenset(value for value in listed if value is not None)
        if column == "topic":
            return replace(pushed, topics=values if pushed.topics is None else pushed.topics & values)
        return replace(pushed, keys=values if pushed.keys is None else pushed.keys & values)
    if isinstance(one, In) and column == "partition":
        numbers = frozenset(one.value)
        return replace(pushed, partitions=numbers if pushed.partitions is None else pushed.partitions & numbers)
    span = _span(one, column) if column in ("partition", "offset", "timestamp") else None
    if span is None:
        return pushed
    return replace(pushed, spans={**pushed.spans, column: pushed.spans.get(column, Span()).meet(span)})


def _span(one: Filter, column: str) -> Span | None:
    value: Any = getattr(one, "value", None)
    if column == "timestamp":
        if not isinstance(value, datetime) or value.tzinfo is None:
            return None
        low, high = _milliseconds(value)
    elif isinstance(value, int):
        low = high = value
    else:
        return None
    match one:
        case EqualTo():
            return Span(high, low + 1)
        case GreaterThan():
            return Span(low + 1)
        case GreaterThanOrEqual():
            return Span(high)
        case LessThan():
            return Span(None, high)
        case LessThanOrEqual():
            return Span(None, low + 1)
        case _:
            return None


def _milliseconds(moment: datetime) -> tuple[int, int]:
    """The milliseconds between which a moment lies; one and the same where it is whole."""
    microseconds = (moment - _EPOCH) // timedelta(microseconds=1)
    return microseconds // 1000, -(-microseconds // 1000)


def keep_keys(batches: Iterator[pa.RecordBatch], keys: frozenset[bytes] | None) -> Iterator[pa.RecordBatch]:
    """The rows with one of the keys."""
    if keys is None:
        yield from batches
        return
    wanted = pa.array(sorted(keys), pa.binary())
    for batch in batches:
        kept = batch.filter(pc.is_in(batch.column("key"), value_set=wanted))
        if kept.num_rows:
            yield kept
