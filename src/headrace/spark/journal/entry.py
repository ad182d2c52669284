"""Batches of a log as rows of Arrow, from their headers. Pure.

A batch of messages is one row, whatever is in it. A control batch is a row for each of its records, since each says
something of its own; what is left of one that was cleaned is a row without a kind. Whoever adds up rows from
`baseOffset` to `lastOffset` has every offset that the log still speaks of.

A batch belongs to the range in which it begins. So ranges that are read by different tasks, or at different times, give
each batch once, wherever between two of its offsets they meet.
"""

from collections.abc import Iterator, Sequence

import pyarrow as pa

from headrace.model.batch import HEADER_SIZE, NO_TIMESTAMP, BatchHeader, Buffer, read_header, read_prefix
from headrace.spark.arrow.aborted import Aborted
from headrace.spark.journal.minute import MINUTES, count_minutes
from headrace.wire.kafka.records import control_kind, decode_batch

# As Spark says it. A schema may ask for MINUTES_COLUMN as well, for which every message's time is read.
SCHEMA = (
    "topic string, partition int, baseOffset bigint, lastOffset bigint, recordCount int, sizeBytes int, "
    "baseTimestamp timestamp, maxTimestamp timestamp, producerId bigint, producerEpoch int, baseSequence int, "
    "isTransactional boolean, isControl boolean, controlKind int, controlValue binary"
)

MINUTES_COLUMN = "minutes array<struct<startMs: bigint, messages: bigint>>"

_TIME = pa.timestamp("us", tz="UTC")
ARROW_SCHEMA = pa.schema(
    [
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("baseOffset", pa.int64()),
        ("lastOffset", pa.int64()),
        ("recordCount", pa.int32()),  # fewer than offsets where some were compacted or cleaned away
        ("sizeBytes", pa.int32()),  # of the whole batch, at its first row
        ("baseTimestamp", _TIME),
        ("maxTimestamp", _TIME),
        ("producerId", pa.int64()),  # null, like the next two, without a producer
        ("producerEpoch", pa.int32()),
        ("baseSequence", pa.int32()),  # null also for control entries
        ("isTransactional", pa.bool_()),
        ("isControl", pa.bool_()),
        ("controlKind", pa.int32()),  # 0 abort, 1 commit, from 100 on a queue's
        ("controlValue", pa.binary()),
        ("minutes", MINUTES),  # of messages, where it is asked for: how many belong to which minute
    ]
)

_Row = tuple[object, ...]


def entries(
    records: Buffer,
    *,
    topic: str,
    partition: int,
    start: int,
    end: int,
    aborted: Sequence[tuple[int, int]] = (),
    counts_minutes: bool = False,
    is_log_start: bool = False,
) -> tuple[pa.RecordBatch, int]:
    """The batches that begin within start <= offset < end, and where to go on reading.

    A broker sends whole batches: the first may begin before the start, and the last may be cut off by the byte limit.
    What `aborted` transactions sent is left out (`arrow/aborted.py`). Where the log itself starts within a batch, the
    rest of that batch is a row too, because no earlier range has it.
    """
    rows: list[_Row] = []
    headers: list[BatchHeader | None] = []
    of_aborted = Aborted(aborted)
    next_offset, at = start, 0
    while len(records) - at >= HEADER_SIZE:
        _, size = read_prefix(records, at)
        if at + size > len(records):
            break
        header = read_header(records, at)
        is_whole = start <= header.base_offset < end
        is_rest = is_log_start and header.base_offset < start < header.next_offset
        if not of_aborted.has(header) and (is_whole or is_rest):
            found = [*_rows(header, memoryview(records)[at : at + size], start)]
            rows += found
            headers += [None if header.is_control else header] * len(found)
        next_offset = max(next_offset, header.next_offset)
        at += size
    minutes = (
        count_minutes(records, headers, topic=topic, partition=partition, start=start)
        if counts_minutes
        else pa.nulls(len(rows), MINUTES)
    )
    return _batch(topic, partition, rows, minutes), next_offset


def _batch(topic: str, partition: int, rows: list[_Row], minutes: pa.Array) -> pa.RecordBatch:
    own = list(ARROW_SCHEMA)[2:-1]
    columns = zip(*rows, strict=True) if rows else ([] for _ in own)
    arrays = [pa.array(column, field.type) for column, field in zip(columns, own, strict=True)]
    place = [pa.repeat(topic, len(rows)), pa.repeat(pa.scalar(partition, pa.int32()), len(rows))]
    return pa.RecordBatch.from_arrays([*place, *arrays, minutes], schema=ARROW_SCHEMA)


def _rows(header: BatchHeader, batch: memoryview, start: int) -> Iterator[_Row]:
    times = (_micros(header.base_timestamp_ms), _micros(header.max_timestamp_ms))
    producer = (header.producer_id, header.producer_epoch) if header.has_producer else (None, None)
    if not header.is_control or not header.record_count:
        base = max(header.base_offset, start)
        gone = base - header.base_offset
        count = max(header.record_count - gone, 0)
        sequence = header.base_sequence + gone if header.has_producer and not header.is_control else None
        yield (
            *(base, header.last_offset, count, header.size, *times, *producer, sequence),
            *(header.is_transactional, header.is_control, None, None),
        )
        return
    size = header.size
    for record in decode_batch(batch):
        if record.offset >= start:
            yield (
                *(record.offset, record.offset, 1, size, *times, *producer, None),
                *(header.is_transactional, True, control_kind(record), record.value),
            )
            size = 0


def _micros(timestamp_ms: int) -> int | None:
    return None if timestamp_ms == NO_TIMESTAMP else timestamp_ms * 1000
