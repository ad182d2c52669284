"""Records in batches (magic 2): build a batch from records, and take one apart.

The node itself stores and serves batches without looking inside; this is for who makes records (the command line,
REST, control entries) and who reads them (consumers of ours, folds, `log dump`).

A record is a varint of its length, then: attributes int8 (0), timestamp minus the batch's base, offset minus the
batch's base, key, value, headers; numbers and lengths as zigzag varints, length -1 for null. The layout of a batch's
header is in `headrace.model.batch`.
"""

import struct
from collections.abc import Sequence
from typing import NamedTuple

from headrace.model.batch import (
    ATTRIBUTE_CONTROL,
    ATTRIBUTE_LOG_APPEND_TIME,
    ATTRIBUTE_TRANSACTIONAL,
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
from headrace.wire.kafka.compression import OUTPUT_BYTES_MAX, RATIO_MAX, Codec, compress, decompress

Headers = tuple[tuple[str, bytes | None], ...]

CONTROL_KEY_VERSION = 0

_HEADER = struct.Struct(">qiibIhiqqqhii")
_CRC = struct.Struct(">I")
_CONTROL_KEY = struct.Struct(">hh")

_RECORD_SIZE_MIN = 7  # length, attributes, two deltas, two lengths and a count of one byte each
_RECORD_HEADER_SIZE_MIN = 2
_VARINT_BITS_MAX = 64
_NULL = b"\x01"


class Record(NamedTuple):
    """One message. The offset is known of records that were read, and assigned to those that are written."""

    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: Headers = ()
    offset: int = -1


class _Varints(dict[int, bytes]):
    """Zigzag varints of numbers, the usual ones remembered: a lookup costs a tenth of making one."""

    def __missing__(self, number: int) -> bytes:
        rest = (number << 1) ^ (number >> 63)
        out = bytearray()
        while rest > 0x7F:
            out.append(rest & 0x7F | 0x80)
            rest >>= 7
        out.append(rest)
        data = bytes(out)
        if -1 <= number < 8192:
            self[number] = data
        return data


varints = _Varints()


def encode_batch(
    records: Sequence[Record],
    *,
    codec: int = Codec.NONE,
    base_offset: int = 0,
    leader_epoch: int = -1,
    producer_id: int = NO_PRODUCER_ID,
    producer_epoch: int = -1,
    base_sequence: int = -1,
    is_transactional: bool = False,
    is_control: bool = False,
) -> bytearray:
    """A batch of at least one record, with offsets one after another from the base. Writable, for `assign`."""
    if not records:
        raise ValueError("a batch has at least one record")
    base_timestamp_ms = records[0].timestamp_ms
    payload = compress(codec, _encode_records(records, base_timestamp_ms))
    attributes = codec
    if is_transactional:
        attributes |= ATTRIBUTE_TRANSACTIONAL
    if is_control:
        attributes |= ATTRIBUTE_CONTROL
    batch = bytearray(HEADER_SIZE)
    _HEADER.pack_into(
        batch,
        0,
        base_offset,
        HEADER_SIZE - LENGTH_PREFIX_SIZE + len(payload),
        leader_epoch,
        MAGIC,
        0,
        attributes,
        len(records) - 1,
        base_timestamp_ms,
        max(record.timestamp_ms for record in records),
        producer_id,
        producer_epoch,
        base_sequence,
        len(records),
    )
    batch += payload
    _CRC.pack_into(batch, CRC_POSITION, crc32c(memoryview(batch)[CRC_START:]))
    return batch


def encode_control_batch(
    kind: int,
    value: bytes,
    *,
    timestamp_ms: int,
    base_offset: int = 0,
    leader_epoch: int = -1,
    producer_id: int = NO_PRODUCER_ID,
    producer_epoch: int = -1,
    is_transactional: bool = False,
) -> bytearray:
    """A batch of one control record, which consumers skip: not for users, but in the log's order."""
    return encode_batch(
        [Record(timestamp_ms, _CONTROL_KEY.pack(CONTROL_KEY_VERSION, kind), value)],
        base_offset=base_offset,
        leader_epoch=leader_epoch,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        is_transactional=is_transactional,
        is_control=True,
    )


def encode_control_records(entries: Sequence[tuple[int, bytes]], *, timestamp_ms: int) -> bytearray:
    """A batch of several control records, each a kind and a value."""
    records = [Record(timestamp_ms, _CONTROL_KEY.pack(CONTROL_KEY_VERSION, kind), value) for kind, value in entries]
    return encode_batch(records, is_control=True)


def control_kind(record: Record) -> int:
    """What kind of control record this is: 0 abort, 1 commit, others as their owners say."""
    if record.key is None or len(record.key) < _CONTROL_KEY.size:
        raise CorruptBatchError(f"the key of the control record at offset {record.offset} is {record.key!r}")
    kind: int = _CONTROL_KEY.unpack_from(record.key)[1]
    return kind


def _encode_records(records: Sequence[Record], base_timestamp_ms: int) -> bytes:
    pieces: list[bytes] = []
    for index, (timestamp_ms, key, value, headers, _) in enumerate(records):
        head = b"".join(
            (
                b"\x00",
                varints[timestamp_ms - base_timestamp_ms],
                varints[index],
                _NULL if key is None else varints[len(key)],
                key or b"",
                _NULL if value is None else varints[len(value)],
            )
        )
        body = value or b""
        tail = encode_headers(headers) if headers else b"\x00"
        pieces += (varints[len(head) + len(body) + len(tail)], head, body, tail)
    return b"".join(pieces)


def encode_headers(headers: Headers) -> bytes:
    pieces = [varints[len(headers)]]
    for name, value in headers:
        data = name.encode()
        pieces += (varints[len(data)], data)
        pieces += (_NULL,) if value is None else (varints[len(value)], value)
    return b"".join(pieces)


def check_batch(batch: Buffer) -> BatchHeader:
    """The header of a buffer that holds exactly one whole batch, with its size, magic, count and CRC verified."""
    if len(batch) < HEADER_SIZE:
        raise CorruptBatchError(f"a batch of {len(batch)} bytes; its header alone takes {HEADER_SIZE}")
    header = read_header(batch)
    if header.size != len(batch):
        raise CorruptBatchError(f"a batch that says it has {header.size} bytes, and has {len(batch)}")
    if header.magic != MAGIC:
        raise CorruptBatchError(f"a batch of magic {header.magic}; only {MAGIC} is known")
    crc = crc32c(memoryview(batch)[CRC_START:])
    if crc != header.crc:
        raise CorruptBatchError(f"a batch with CRC {header.crc:#010x} in its header, and {crc:#010x} over its bytes")
    if header.record_count < 0 or header.last_offset_delta < 0:
        raise CorruptBatchError(f"{header.record_count} records up to offset delta {header.last_offset_delta}")
    return header


def decode_batch(
    batch: Buffer, *, output_bytes_max: int = OUTPUT_BYTES_MAX, ratio_max: int = RATIO_MAX
) -> list[Record]:
    """The records of a buffer that holds exactly one batch. Control batches too: the caller looks at the header."""
    header = check_batch(batch)
    data = decompress(
        header.codec, memoryview(batch)[HEADER_SIZE:], output_bytes_max=output_bytes_max, ratio_max=ratio_max
    )
    if header.record_count * _RECORD_SIZE_MIN > len(data):
        raise CorruptBatchError(f"{header.record_count} records cannot be in {len(data)} bytes")
    try:
        return _decode_records(data, header)
    except IndexError:
        raise CorruptBatchError(f"records that go on after their {len(data)} bytes") from None


def _decode_records(data: bytes, header: BatchHeader) -> list[Record]:
    """One pass, with the one-byte varints (nearly all) read in place: a call for each would take half of the time.

    A length beyond the data need not be looked at where it is read: what follows it is then read from behind the end,
    or the record does not end where it said.
    """
    base_offset, last_delta = header.base_offset, header.last_offset_delta
    base_timestamp_ms = header.base_timestamp_ms
    log_append_time = bool(header.attributes & ATTRIBUTE_LOG_APPEND_TIME)
    records: list[Record] = []
    at = 0
    for _ in range(header.record_count):
        start = at
        if (size := data[at]) > 0x7F:
            size, at = _long_varint(data, at)
        end = at + 1 + ((size >> 1) ^ -(size & 1))
        at += 2  # the attributes, which mean nothing
        if (stamp := data[at]) > 0x7F:
            stamp, at = _long_varint(data, at)
        at += 1
        if (delta := data[at]) > 0x7F:
            delta, at = _long_varint(data, at)
        at += 1
        delta = (delta >> 1) ^ -(delta & 1)
        key, at = _field(data, at)
        value, at = _field(data, at)
        if data[at] == 0:
            headers: Headers = ()
            at += 1
        else:
            headers, at = _decode_headers(data, at, end)
        if at != end or not 0 <= delta <= last_delta:
            raise CorruptBatchError(
                f"record at byte {start} says that it ends at {end} and is {delta} after the base, "
                f"but ends at {at} in a batch of {last_delta + 1} offsets"
            )
        timestamp_ms = header.max_timestamp_ms if log_append_time else base_timestamp_ms + ((stamp >> 1) ^ -(stamp & 1))
        records.append(Record(timestamp_ms, key, value, headers, base_offset + delta))
    if at != len(data):
        raise CorruptBatchError(f"{len(data) - at} bytes after the last of {header.record_count} records")
    return records


def _field(data: bytes, at: int) -> tuple[bytes | None, int]:
    """A key or value with its length before it, and where it ends."""
    if (size := data[at]) > 0x7F:
        size, at = _long_varint(data, at)
    at += 1
    if size & 1:
        if size != 1:
            raise CorruptBatchError(f"a negative length at byte {at}")
        return None, at
    end = at + (size >> 1)
    return data[at:end], end


def _decode_headers(data: bytes, at: int, end: int) -> tuple[Headers, int]:
    count, at = _long_varint(data, at)
    at += 1
    count = (count >> 1) ^ -(count & 1)
    if count < 0 or count * _RECORD_HEADER_SIZE_MIN > end - at:
        raise CorruptBatchError(f"{count} headers cannot be in {end - at} bytes at byte {at}")
    headers: list[tuple[str, bytes | None]] = []
    for _ in range(count):
        name, at = _field(data, at)
        if name is None:
            raise CorruptBatchError(f"a header without a name before byte {at}")
        value, at = _field(data, at)
        # Nobody checks names when they are sent. One that is no text must not keep its message from being read: what
        # stands for it is what Kafka's Java consumer puts there.
        headers.append((name.decode(errors="replace"), value))
    return tuple(headers), at


def _long_varint(data: bytes, at: int) -> tuple[int, int]:
    """A varint of any length, still in zigzag form, and where its last byte is."""
    start = at
    if (second := data[at + 1]) < 0x80 and data[at] > 0x7F:
        return data[at] & 0x7F | second << 7, at + 1
    number = shift = 0
    while True:
        byte = data[at]
        number |= (byte & 0x7F) << shift
        if byte < 0x80:
            if number >> _VARINT_BITS_MAX:
                break
            return number, at
        shift += 7
        if shift >= _VARINT_BITS_MAX + 6:
            break
        at += 1
    raise CorruptBatchError(f"a varint at byte {start} of more than {_VARINT_BITS_MAX} bits")
