"""Rows of a DataFrame as messages: key, value, headers and time, in the types that they are encoded from."""

import math

import pyarrow as pa
import pyarrow.compute as pc

from headrace.model.message import Headers, property_headers
from headrace.model.queue import PRIORITY_DEFAULT, PRIORITY_MAX, SPAN_MS_MAX
from headrace.spark.errors import ColumnError
from headrace.spark.sink.column import PROPERTIES

HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
KEY, VALUE, HEADER_LIST, TIME_MS = "key", "value", "headers", "timestamp_ms"


def to_messages(batch: pa.RecordBatch, names: frozenset[str], *, now_ms: int) -> pa.RecordBatch:
    """The columns of messages, of those that a write has: which ones is the same for all of its batches."""
    columns = {VALUE: batch.column("value").cast(pa.binary())}
    if "key" in names:
        columns[KEY] = batch.column("key").cast(pa.binary())
    if "headers" in names:
        columns[HEADER_LIST] = _named(batch.column("headers").cast(HEADERS))
    if not names.isdisjoint(PROPERTIES):
        columns[HEADER_LIST] = _with_properties(columns.get(HEADER_LIST), _properties(batch, names))
    if "timestamp" in names:
        times_us = batch.column("timestamp").cast(pa.int64())
        # Before 1970 the division of Arrow rounds up and not down, by less than a millisecond.
        columns[TIME_MS] = pc.fill_null(pc.divide(times_us, 1000), now_ms)
    return pa.RecordBatch.from_pydict(columns)


def _named(headers: pa.Array) -> pa.Array:
    if pc.struct_field(headers.flatten(), "key").null_count:
        raise ColumnError("a row has a header without a key; a message cannot")
    return headers


# Of queues.


def deduplication_ids(batch: pa.RecordBatch, names: frozenset[str]) -> pa.Array | None:
    """As bytes; null where there is none. Empty ones are none."""
    if "deduplication_id" not in names:
        return None
    ids = batch.column("deduplication_id").cast(pa.binary())
    return pc.if_else(pc.equal(pc.binary_length(ids), 0), pa.scalar(None, pa.binary()), ids)


def _properties(batch: pa.RecordBatch, names: frozenset[str]) -> list[Headers]:
    nothing = [None] * batch.num_rows
    priorities = batch.column("priority").to_pylist() if "priority" in names else nothing
    delays = _spans_ms(batch.column("delay"), "delay", least=0) if "delay" in names else nothing
    ttls = _spans_ms(batch.column("ttl"), "ttl", least=1) if "ttl" in names else nothing
    ids = batch.column("deduplication_id").to_pylist() if "deduplication_id" in names else nothing
    found = []
    for priority, delay_ms, ttl_ms, id in zip(priorities, delays, ttls, ids, strict=True):
        if priority is None:
            priority = PRIORITY_DEFAULT
        elif not 0 <= priority <= PRIORITY_MAX:
            raise ColumnError(f"a row has the priority {priority}; it is 0 to {PRIORITY_MAX}, the most urgent")
        found.append(property_headers(priority, delay_ms, ttl_ms, id))
    return found


def _spans_ms(column: pa.Array, name: str, *, least: int) -> list[int | None]:
    """Lengths of time, of seconds or of an interval, which Arrow has in microseconds."""
    is_interval = pa.types.is_duration(column.type)
    factor = 0.001 if is_interval else 1000.0
    spans: list[int | None] = []
    for span in (column.cast(pa.int64()) if is_interval else column).to_pylist():
        if span is None:
            spans.append(None)
            continue
        span_ms = round(span * factor) if math.isfinite(span) else -1
        if not least <= span_ms <= SPAN_MS_MAX:
            raise ColumnError(f"a row has a {name} of {span_ms} ms; it is at least {least} ms")
        spans.append(span_ms)
    return spans


def _with_properties(headers: pa.Array | None, properties: list[Headers]) -> pa.Array:
    """Properties come last: of several headers of one name the last counts."""
    own = headers.to_pylist() if headers is not None else [None] * len(properties)
    lists = [
        (listed or []) + [{"key": name, "value": value} for name, value in more] if listed or more else None
        for listed, more in zip(own, properties, strict=True)
    ]
    return pa.array(lists, HEADERS)
