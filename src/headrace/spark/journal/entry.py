"""Batches of a log as rows of Arrow, from their headers. Pure.

A batch of messages is one row, whatever is in it. A control batch is a row for each of its records, since each says
something of its own; what is left of one that was cleaned is a row without a kind. Whoever adds up rows from
`baseOffset` to `lastOffset` has every offset that the log still speaks of.

A batch belongs to the range in which it begins. So ranges that are read by different tasks, or at different times, give
each batch once, wherever between two of its offsets they meet.
"""

from collections.abc import Iterator

import pyarrow as pa

from headrace.model.batch import HEADER_SIZE, NO_TIMESTAMP, BatchHeader, Buffer, read_header, read_prefix
from headrace.wire.kafka.records import control_kind, decode_batch

# As Spark says it.
SCHEMA = (
    "topic string, partition int, baseOffset bigint, lastOffset bigint, recordCount int, sizeBytes int, "
    "baseTimestamp timestamp, maxTimestamp timestamp, producerId bigint, producerEpoch int, baseSequence int, "
    "isTransactional boolean, isControl boolean, controlKind int, controlValue binary"
)

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
    ]
)

_Row = tuple[object, ...]


def entries(records: Buffer, *, topic: str, partition: int, start: int, end: int) -> tuple[pa.RecordBatch, int]:
    """The batches that begin within start <= offset < end, and where to go on reading.

    A broker sends whole batches: the first may begin before the start, and the last may be cut off by the byte limit.
    """
    rows: list[_Row] = []
    next_offset, at = start, 0
    while len(records) - at >= HEADER_SIZE:
        _, size = read_prefix(records, at)
        if at + size > len(records):
            break
        header = read_header(records, at)
        if start <= header.base_offset < end:
            rows += _rows(header, memoryview(records)[at : at + size])
        next_offset = max(next_offset, header.next_offset)
        at += size
    return _batch(topic, partition, rows), next_offset


def _batch(topic: str, partition: int, rows: list[_Row]) -> pa.RecordBatch:
    own = list(ARROW_SCHEMA)[2:]
    columns = zip(*rows, strict=True) if rows else ([] for _ in own)
    arrays = [pa.array(column, field.type) for column, field in zip(columns, own, strict=True)]
    place = [pa.repeat(topic, len(rows)), pa.repeat(pa.scalar(partition, pa.int32()), len(rows))]
    return pa.RecordBatch.from_arrays([*place, *arrays], schema=ARROW_SCHEMA)


def _rows(header: BatchHeader, batch: memoryview) -> Iterator[_Row]:
    times = (_micros(header.base_timestamp_ms), _micros(header.max_timestamp_ms))
    producer = (header.producer_id, header.producer_epoch) if header.has_producer else (None, None)
    if not header.is_control or not header.record_count:
        sequence = header.base_sequence if header.has_producer and not header.is_control else None
        yield (
            *(header.base_offset, header.last_offset, header.record_count, header.size, *times, *producer, sequence),
            *(header.is_transactional, header.is_control, None, None),
        )
        return
    size = header.size
    for record in decode_batch(batch):
        yield (
            *(record.offset, record.offset, 1, size, *times, *producer, None),
            *(header.is_transactional, True, control_kind(record), record.value),
        )
        size = 0


def _micros(timestamp_ms: int) -> int | None:
    return None if timestamp_ms == NO_TIMESTAMP else timestamp_ms * 1000
