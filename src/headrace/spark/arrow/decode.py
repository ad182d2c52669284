"""Record batches, as a broker sends them, straight into Arrow columns.

    bytes --walk--> batches that count --join--> records of many batches --columns--> RecordBatches

Walking looks at headers: what is before or behind the asked offsets, control batches and what an aborted transaction
sent is passed over, and the CRC of the rest is summed. Uncompressed records stay where they are in the fetched bytes;
compressed ones are unpacked one after another into one buffer. Then everything is done for all records of several
batches at once (see `record` and `column`), and only for the columns that are asked for.

A RecordBatch holds many rows, because each one costs Spark up to a millisecond, and a bounded number of bytes, because
the JVM holds it whole.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from headrace.model.batch import HEADER_SIZE, BatchHeader, Buffer, read_header
from headrace.model.errors import CorruptBatchError, HeadraceError
from headrace.spark.arrow.aborted import Aborted
from headrace.spark.arrow.bound import Payload
from headrace.spark.arrow.column import COLUMNS, record_batch
from headrace.spark.arrow.record import Records, read_records
from headrace.wire.kafka.compression import Codec, decompress
from headrace.wire.kafka.records import check_batch

# Of the records that are decoded together.
CHUNK_BYTES = 8 << 20
CHUNK_ROWS = 32_768
# Of one RecordBatch. One batch of a producer may be larger than a chunk, most of all when it is unpacked.
COLUMNS_BYTES_MAX = 16 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """What is asked of the batches of one partition."""

    topic: str
    partition: int
    start: int
    end: int
    columns: pa.Schema

    def __post_init__(self) -> None:
        unknown = [name for name in self.columns.names if name not in COLUMNS]
        if unknown:
            raise ValueError(f"no column is named {unknown[0]}; there are {', '.join(COLUMNS)}")


class Batch(NamedTuple):
    """A batch in the fetched bytes whose records are wanted."""

    header: BatchHeader
    start: int
    unpacked: bytes | None = None  # None: the records as they are, behind the header

    @property
    def end(self) -> int:
        return self.start + self.header.size

    @property
    def records_bytes(self) -> int:
        return self.header.size - HEADER_SIZE if self.unpacked is None else len(self.unpacked)


def decode_batches(
    records: Buffer,
    *,
    topic: str,
    partition: int,
    start: int,
    end: int,
    columns: pa.Schema,
    aborted: Sequence[tuple[int, int]] = (),
) -> tuple[list[pa.RecordBatch], int]:
    """The rows of `start <= offset < end`, and the offset behind the last whole batch, where to go on.

    `aborted` are producer ids and first offsets, as a fetch with read_committed answers them.
    """
    wanted = Wanted(topic=topic, partition=partition, start=start, end=end, columns=columns)
    found, next_offset = decode_lazily(records, wanted, aborted)
    return list(found), next_offset


def decode_lazily(
    records: Buffer, wanted: Wanted, aborted: Sequence[tuple[int, int]] = ()
) -> tuple[Iterator[pa.RecordBatch], int]:
    """The same, each RecordBatch decoded when it is taken: together they may be many times as large as the records."""
    whole, place = _whole(records)
    batches, next_offset = _walk(whole, place, place + len(records), wanted, Aborted(aborted))
    found = (columns for chunk in _chunks(whole, batches, wanted) for columns in _decode(whole, chunk, wanted))
    return found, next_offset


def _whole(records: Buffer) -> tuple[bytes | bytearray, int]:
    """The object that a view looks at, and where: single bytes of it are read in half the time."""
    if not isinstance(records, memoryview):
        return records, 0
    owner = records.obj
    if not isinstance(owner, bytes | bytearray) or not len(records):
        return bytes(records), 0
    view, all_of_it = np.frombuffer(records, dtype=np.uint8), np.frombuffer(owner, dtype=np.uint8)
    return owner, view.ctypes.data - all_of_it.ctypes.data


def _walk(data: bytes | bytearray, at: int, end: int, wanted: Wanted, aborted: Aborted) -> tuple[list[Batch], int]:
    """The batches that have rows to give, and where to go on. A last batch that was cut off is left for then."""
    batches = []
    next_offset = wanted.start
    while end - at >= HEADER_SIZE:
        header = read_header(data, at)
        if header.size < HEADER_SIZE:
            raise _damaged(wanted, header, f"it says that it has {header.size} bytes")
        if at + header.size > end:
            break
        is_passed_over = aborted.has(header) or header.is_control or not header.record_count
        if not is_passed_over and header.next_offset > wanted.start and header.base_offset < wanted.end:
            batches.append(Batch(header, at))
        next_offset = max(next_offset, header.next_offset)
        at += header.size
    return batches, next_offset


def _chunks(data: bytes | bytearray, batches: Sequence[Batch], wanted: Wanted) -> Iterator[list[Batch]]:
    """Batches with their CRC checked and their records unpacked, as many as are decoded together."""
    chunk: list[Batch] = []
    size = rows = 0
    for batch in batches:
        unpacked = _checked(data, batch, wanted)
        chunk.append(unpacked)
        size += unpacked.records_bytes
        rows += unpacked.header.record_count
        if size >= CHUNK_BYTES or rows >= CHUNK_ROWS:
            yield chunk
            chunk, size, rows = [], 0, 0
    if rows:
        yield chunk


def _checked(data: bytes | bytearray, batch: Batch, wanted: Wanted) -> Batch:
    view = memoryview(data)[batch.start : batch.end]
    try:
        header = check_batch(view)
        if header.codec == Codec.NONE:
            return batch
        return batch._replace(unpacked=decompress(header.codec, view[HEADER_SIZE:]))
    except HeadraceError as error:
        raise _damaged(wanted, batch.header, str(error)) from error


def _decode(data: bytes | bytearray, chunk: Sequence[Batch], wanted: Wanted) -> list[pa.RecordBatch]:
    try:
        return _columns(data, chunk, wanted)
    except CorruptBatchError as error:
        # Joined, they do not say which one it is.
        if len(chunk) > 1:
            for batch in chunk:
                _decode(data, (batch,), wanted)
        raise _damaged(wanted, chunk[0].header, str(error)) from error


def _columns(data: bytes | bytearray, chunk: Sequence[Batch], wanted: Wanted) -> list[pa.RecordBatch]:
    names = set(wanted.columns.names)
    buffer, payloads = _joined(data, chunk)
    records = read_records(
        buffer, payloads, with_key="key" in names, with_value="value" in names, with_headers="headers" in names
    )
    return [
        record_batch(part, topic=wanted.topic, partition=wanted.partition, columns=wanted.columns)
        for part in _parts(records, wanted)
    ]


def _joined(data: bytes | bytearray, chunk: Sequence[Batch]) -> tuple[bytes | bytearray, list[Payload]]:
    """One buffer that has the records of all batches: what was fetched, or a new one where some were compressed."""
    if all(batch.unpacked is None for batch in chunk):
        return data, [Payload(batch.header, batch.start + HEADER_SIZE, batch.end) for batch in chunk]
    payloads, at = [], 0
    for batch in chunk:
        payloads.append(Payload(batch.header, at, at + batch.records_bytes))
        at += batch.records_bytes
    view = memoryview(data)
    pieces = [
        view[batch.start + HEADER_SIZE : batch.end] if batch.unpacked is None else batch.unpacked for batch in chunk
    ]
    return b"".join(pieces), payloads


def _parts(records: Records, wanted: Wanted) -> Iterator[Records]:
    """The rows that are wanted, in parts that a RecordBatch may hold."""
    first, end = np.searchsorted(records.offsets, (wanted.start, wanted.end)).tolist()
    while first < end:
        limit = int(records.ends[first]) + COLUMNS_BYTES_MAX
        stop = min(end, max(first + 1, int(np.searchsorted(records.ends, limit))))
        yield records.rows(first, stop)
        first = stop


def _damaged(wanted: Wanted, header: BatchHeader, why: str) -> CorruptBatchError:
    return CorruptBatchError(
        f"{wanted.topic}-{wanted.partition} sent a damaged batch at offset {header.base_offset}: {why}"
    )
