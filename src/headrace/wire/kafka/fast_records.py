"""Records of uncompressed batches built, and of all batches read, at the speed that queues need.

Topics pass batches through unread; a queue builds one for what it is sent by HTTP and reads one for what it hands out.
`headrace.wire.kafka.records` does both in full generality, for 1.2 us and 2 us a record. Here:

- `build_batch` is for records of one timestamp without a producer. What depends only on a value's length is made once
  and remembered, so that a record is some lookups and a place in one join: 0.3 us, half of what aiokafka's builder
  takes.
- `read_batch` goes through aiokafka's compiled reader, 0.4 us a record. That class is private to aiokafka: nothing
  outside this module knows it, and where it cannot be imported the pure reader takes its place.

The compiled reader looks for the end of the data before each key and value, but not inside a varint, so records whose
last bytes are wrong make it read up to some thirty bytes beyond. Records come from producers, and nobody has looked at
them: so it gets a copy with that many bytes behind its end, and never the memory of somebody else.
"""

from collections.abc import Iterable, Sequence
from itertools import pairwise
from operator import itemgetter
from struct import Struct

from headrace.model.batch import (
    ATTRIBUTE_CODEC,
    ATTRIBUTE_CONTROL,
    CRC_POSITION,
    CRC_START,
    HEADER_SIZE,
    LENGTH_PREFIX_SIZE,
    MAGIC,
    BatchHeader,
    Buffer,
    read_header,
)
from headrace.model.errors import CorruptBatchError
from headrace.model.ids import NO_PRODUCER_ID
from headrace.wire.crc import crc32c
from headrace.wire.kafka.compression import decompress
from headrace.wire.kafka.records import Headers, decode_batch, varints

try:
    from aiokafka.record._crecords.default_records import DefaultRecordBatch
except ImportError:  # a platform without a wheel
    DefaultRecordBatch = None

# Key, value, headers.
NewRecord = tuple[bytes | None, bytes | None, Headers]
# Offset, timestamp in ms (None or -1: there is none), key, value, headers.
StoredRecord = tuple[int, int | None, bytes | None, bytes | None, Sequence[tuple[str, bytes | None]]]

IS_COMPILED = DefaultRecordBatch is not None

_HEADER = Struct(">qiibIhiqqqhii")
_CRC = Struct(">I")
_ROOM = bytes(HEADER_SIZE)
_PADDING = bytes(64)
_CODEC_POSITION = 22  # position of the byte that names the codec
_ONE_BYTE_INDEX = 64  # below it an index takes one byte as a varint
_TWO_BYTE_INDEX = 8192
_LENGTH_REMEMBERED_MAX = 4096
_NAMES_MAX = 256
_NAME_BYTES_MAX = 256
_COPY_BYTES_MIN = 64 << 10  # below it memory is at hand
_COPY_BYTES_MAX = 2 << 20

# Buffers for copies, as many as threads have read at once.
_kept: list[bytearray] = []

_offset_of = itemgetter(0)


def build_batch(records: Iterable[NewRecord], timestamp_ms: int, *, is_control: bool = False) -> bytearray:
    """A batch from offset 0 on with its CRC, and no leader epoch yet. Writable, for `assign`."""
    pieces = [_ROOM]
    add, frames, indexes = pieces.extend, _frames, varints
    index = 0
    for key, value, headers in records:
        if key is None and value is not None and not headers and index < _TWO_BYTE_INDEX:
            one, two, before_value = frames[len(value)]
            add((one if index < _ONE_BYTE_INDEX else two, indexes[index], before_value, value, b"\x00"))
        else:
            add(_any_record(index, key, value, headers))
        index += 1
    if not index:
        raise ValueError("a batch has at least one record")
    batch = bytearray().join(pieces)
    length = len(batch) - LENGTH_PREFIX_SIZE
    times = (timestamp_ms, timestamp_ms)
    attributes = ATTRIBUTE_CONTROL if is_control else 0
    _HEADER.pack_into(batch, 0, 0, length, -1, MAGIC, 0, attributes, index - 1, *times, NO_PRODUCER_ID, -1, -1, index)
    _CRC.pack_into(batch, CRC_POSITION, crc32c(memoryview(batch)[CRC_START:]))
    return batch


class _Frames(dict[int, tuple[bytes, bytes, bytes]]):
    """By a value's length: what precedes the index of a plain record (one byte of it, or two), and what follows it."""

    def __missing__(self, length: int) -> tuple[bytes, bytes, bytes]:
        before_value = b"\x01" + varints[length]
        size = 2 + len(before_value) + length + 1  # attributes, time, the null key and the value, no headers
        found = (varints[size + 1] + b"\x00\x00", varints[size + 2] + b"\x00\x00", before_value)
        if length <= _LENGTH_REMEMBERED_MAX:
            self[length] = found
        return found


_frames = _Frames()


class _Names(dict[str, bytes]):
    """Names of headers with their lengths. A program has few of them; a stranger's many are not remembered."""

    def __missing__(self, name: str) -> bytes:
        data = name.encode()
        found = varints[len(data)] + data
        if len(self) < _NAMES_MAX and len(data) <= _NAME_BYTES_MAX:
            self[name] = found
        return found


_names = _Names()


def _any_record(index: int, key: bytes | None, value: bytes | None, headers: Headers) -> tuple[bytes, ...]:
    head = b"\x00\x00" + varints[index] + (b"\x01" if key is None else varints[len(key)] + key)
    head += b"\x01" if value is None else varints[len(value)]
    body = value or b""
    tail = varints[len(headers)]
    for name, data in headers:
        tail += _names[name] + (b"\x01" if data is None else varints[len(data)] + data)
    return varints[len(head) + len(body) + len(tail)], head, body, tail


def read_batch(batch: Buffer, header: BatchHeader | None = None) -> list[StoredRecord]:
    """The records of a buffer that holds exactly one batch, of any codec, in ascending order of offset.

    The CRC is not summed: the log has done that for what it reads. Records that cannot be are refused all the same.
    """
    if header is None:
        header = _read_header(batch)
    try:
        records = _read_pure(batch) if DefaultRecordBatch is None else _read_compiled(batch, header)
    except UnicodeDecodeError:  # a header's name, of which the compiled reader takes text alone
        records = _read_pure(batch)
    return _in_order(records, header)


def _read_header(batch: Buffer) -> BatchHeader:
    if len(batch) < HEADER_SIZE:
        raise CorruptBatchError(f"a batch of {len(batch)} bytes; its header alone takes {HEADER_SIZE}")
    header = read_header(batch)
    if header.size != len(batch) or header.magic != MAGIC:
        raise CorruptBatchError(
            f"a batch of {len(batch)} bytes that says it has {header.size}, and has magic {header.magic}"
        )
    return header


def _read_compiled(batch: Buffer, header: BatchHeader) -> list[StoredRecord]:
    if header.attributes & ATTRIBUTE_CODEC:
        view = memoryview(batch)
        records = decompress(header.codec, view[HEADER_SIZE:])
        codec = bytes((view[_CODEC_POSITION] & ~ATTRIBUTE_CODEC,))
        head = (view[:_CODEC_POSITION], codec, view[_CODEC_POSITION + 1 : HEADER_SIZE])
        return _read_padded(b"".join((*head, records, _PADDING)), HEADER_SIZE + len(records))
    size = len(batch)
    if not _COPY_BYTES_MIN < size <= _COPY_BYTES_MAX:
        return _read_padded(b"".join((batch, _PADDING)), size)
    # New memory of this size comes from the kernel page by page, which takes longer than to read the records.
    kept = _kept.pop() if _kept else bytearray(_COPY_BYTES_MAX + len(_PADDING))
    memoryview(kept)[:size] = batch
    try:
        return _read_padded(kept, size)
    finally:
        _kept.append(kept)


def _read_padded(padded: bytes | bytearray, size: int) -> list[StoredRecord]:
    try:
        return [
            (record.offset, record.timestamp, record.key, record.value, record.headers)
            for record in DefaultRecordBatch(memoryview(padded)[:size])
        ]
    except UnicodeDecodeError:
        raise
    except Exception as error:  # noqa: BLE001 - whatever it says, these bytes are not records
        raise CorruptBatchError(f"records that cannot be read: {error}") from None


def _read_pure(batch: Buffer) -> list[StoredRecord]:
    return [(offset, time, key, value, headers) for time, key, value, headers, offset in decode_batch(batch)]


def _in_order(records: list[StoredRecord], header: BatchHeader) -> list[StoredRecord]:
    """The same records, if their offsets are those that the header has room for."""
    offsets = list(map(_offset_of, records))
    count, first, last = len(records), header.base_offset, header.base_offset + header.last_offset_delta
    if count == header.record_count:
        if count == last - first + 1 and offsets == list(range(first, first + count)):
            return records
        if all(before < after for before, after in pairwise((first - 1, *offsets, last + 1))):
            return records
    raise CorruptBatchError(
        f"{count} records, where the header says {header.record_count} that ascend from {first} to {last}"
    )
