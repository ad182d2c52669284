"""Taking records out of a stored batch without touching the others.

The records that stay keep their bytes, their distance from the base offset and their time, and the batch keeps its
offsets, its producer's sequence, its epoch and its codec, as Kafka's cleaner does: who counts offsets or sequences sees
no difference. Only count, length, largest time and checksum are new.
"""

import struct
from collections.abc import Container, Iterator
from typing import NamedTuple

from headrace.model.batch import (
    ATTRIBUTE_CODEC,
    ATTRIBUTE_LOG_APPEND_TIME,
    CRC_POSITION,
    CRC_START,
    HEADER_SIZE,
    LENGTH_PREFIX_SIZE,
    NO_TIMESTAMP,
    BatchHeader,
    Buffer,
)
from headrace.model.errors import CorruptBatchError, HeadraceError
from headrace.wire.crc import crc32c
from headrace.wire.kafka.compression import compress, decompress

_INT32 = struct.Struct(">i")
_UINT32 = struct.Struct(">I")
_INT16 = struct.Struct(">h")
_INT64 = struct.Struct(">q")
_LENGTH_POSITION = 8
_ATTRIBUTES_POSITION = 21
_MAX_TIMESTAMP_POSITION = 35
_COUNT_POSITION = 57


class _Place(NamedTuple):
    """Where one record lies among the uncompressed records of its batch."""

    start: int
    end: int
    offset: int
    timestamp_ms: int


def keep_records(header: BatchHeader, batch: Buffer, live: Container[int]) -> bytes:
    """The batch with only those records whose offsets are live. One that cannot be read stays whole."""
    try:
        data = decompress(header.codec, memoryview(batch)[HEADER_SIZE : header.size])
        kept = [place for place in _places(header, data) if place.offset in live]
        if len(kept) == header.record_count:
            return bytes(batch)
        if not kept:
            return empty_batch(header, batch)
        payload = compress(header.codec, b"".join(data[place.start : place.end] for place in kept))
    except (HeadraceError, IndexError):
        # The sender's checksum is right, so this is what was sent; what it means is for its readers to say.
        return bytes(batch)
    is_stamped = header.attributes & ATTRIBUTE_LOG_APPEND_TIME
    newest = header.max_timestamp_ms if is_stamped else max(place.timestamp_ms for place in kept)
    return _sealed(bytearray(memoryview(batch)[:HEADER_SIZE]), payload, count=len(kept), max_timestamp_ms=newest)


def empty_batch(header: BatchHeader, batch: Buffer) -> bytes:
    """The batch without any record, which only stands for its offsets and sequences."""
    head = bytearray(memoryview(batch)[:HEADER_SIZE])
    _INT16.pack_into(head, _ATTRIBUTES_POSITION, header.attributes & ~ATTRIBUTE_CODEC)
    return _sealed(head, b"", count=0, max_timestamp_ms=header.max_timestamp_ms)


def newest_ms(header: BatchHeader, batch: Buffer, *, from_offset: int) -> int:
    """The largest time among a batch's records from an offset on."""
    if header.attributes & ATTRIBUTE_LOG_APPEND_TIME:
        return header.max_timestamp_ms
    try:
        data = decompress(header.codec, memoryview(batch)[HEADER_SIZE : header.size])
        times = [place.timestamp_ms for place in _places(header, data) if place.offset >= from_offset]
    except (HeadraceError, IndexError):
        return NO_TIMESTAMP
    return max(times, default=NO_TIMESTAMP)


def _sealed(head: bytearray, payload: bytes, *, count: int, max_timestamp_ms: int) -> bytes:
    _INT32.pack_into(head, _LENGTH_POSITION, HEADER_SIZE - LENGTH_PREFIX_SIZE + len(payload))
    _INT64.pack_into(head, _MAX_TIMESTAMP_POSITION, max_timestamp_ms)
    _INT32.pack_into(head, _COUNT_POSITION, count)
    _UINT32.pack_into(head, CRC_POSITION, crc32c(payload, crc32c(memoryview(head)[CRC_START:])))
    return bytes(head) + payload


def _places(header: BatchHeader, data: bytes) -> Iterator[_Place]:
    """Each record's place, from its length and the two numbers at its beginning."""
    at = 0
    for _ in range(header.record_count):
        start = at
        size, at = _varint(data, at)
        end = at + size
        # One byte of attributes, which mean nothing, lies before the numbers.
        stamp, at = _varint(data, at + 1)
        delta, at = _varint(data, at)
        if not at <= end <= len(data) or not 0 <= delta <= header.last_offset_delta:
            raise CorruptBatchError(f"a record of {size} bytes at byte {start} of {len(data)}, offset delta {delta}")
        yield _Place(start, end, header.base_offset + delta, header.base_timestamp_ms + stamp)
        at = end
    if at != len(data):
        raise CorruptBatchError(f"{len(data) - at} bytes after the last of {header.record_count} records")


def _varint(data: bytes, at: int) -> tuple[int, int]:
    """A zigzag varint, and where it ends."""
    number = shift = 0
    while (byte := data[at]) > 0x7F:
        number |= (byte & 0x7F) << shift
        shift += 7
        at += 1
    number |= byte << shift
    return (number >> 1) ^ -(number & 1), at + 1
