"""Arrow columns to record batches: what `decode` does, the other way round, and with as few Python objects.

A record is a few numbers, a key, a value and headers, one after the other. The numbers of all rows are made with numpy
as short byte strings; then Arrow joins, row by row, what belongs together, and what comes out are the records of all
rows in one buffer. Batches are parts of it, each with a header before it, and compressed if that is asked for.

The batches belong to no producer and have no CRC: `stamp` writes both, when it is known whose they are.
"""

from collections.abc import Iterator
from itertools import pairwise
from struct import Struct

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headrace.model.batch import HEADER_SIZE, LENGTH_PREFIX_SIZE, MAGIC, Buffer
from headrace.model.errors import InvalidRecordError, UnsupportedCodecError
from headrace.model.ids import NO_PRODUCER_ID
from headrace.spark.arrow.varint import Bytes, Ints, Mask, varint_sizes, write_varints
from headrace.wire.kafka.compression import Codec, compress, output_limit
from headrace.wire.kafka.stamp import stamp

__all__ = ["encode_batches", "stamp"]

CODECS = {codec.name.lower(): codec for codec in Codec}

# Rows that are encoded together; Arrow counts the bytes of a column with 32 bits.
_PART_BYTES = 32 << 20
# What a record has at most besides key, value, headers and their lengths: its own length, attributes and two deltas.
_FRAME_BYTES_MAX = 5 + 1 + 10 + 5
_HEADER = Struct(">qiibIhiqqqhii")
_NOTHING = pa.scalar(b"", pa.binary())
_NO_HEADERS = pa.scalar(b"\x00", pa.binary())


def encode_batches(
    key: pa.Array | None,
    value: pa.Array,
    headers: pa.Array | None,
    timestamp_ms: pa.Array | int,
    *,
    codec: str,
    level: int | None = None,
    batch_bytes_max: int,
) -> list[bytearray]:
    """Rows in their order, in batches of at most so many bytes before compression (a larger row is one by itself).

    `key` and `value` are binary or strings, `headers` lists of (key, value), `timestamp_ms` numbers or one for all.
    Without a level, it is the codec's usual one.
    """
    if codec not in CODECS:
        raise UnsupportedCodecError(f"compression codec {codec!r} does not exist; use {', '.join(CODECS)}")
    if not len(value):
        return []
    rows = _Rows(key, value, headers, timestamp_ms)
    borders = rows.borders(batch_bytes_max - HEADER_SIZE)
    return [batch for part in _parts(borders, rows.sizes) for batch in rows.encode(part, CODECS[codec], level)]


class _Rows:
    def __init__(
        self, key: pa.Array | None, value: pa.Array, headers: pa.Array | None, timestamp_ms: pa.Array | int
    ) -> None:
        self._key = None if key is None or key.null_count == len(key) else _binary(key)
        self._value = _binary(value)
        self._tail = _Tail(headers) if headers is not None and headers.null_count < len(headers) else None
        if isinstance(timestamp_ms, int):
            self._times_ms = np.full(len(value), timestamp_ms, dtype=np.int64)
        else:
            self._times_ms = timestamp_ms.to_numpy(zero_copy_only=False).astype(np.int64)
        self._key_sizes = None if self._key is None else _sizes(self._key)
        self._value_sizes = _sizes(self._value)
        # At most: what the deltas take is known when it is known which rows are in a batch.
        self.sizes: Ints = _FRAME_BYTES_MAX + varint_sizes(self._value_sizes) + np.maximum(self._value_sizes, 0)
        self.sizes += 1 if self._key_sizes is None else varint_sizes(self._key_sizes) + np.maximum(self._key_sizes, 0)
        self.sizes += 1 if self._tail is None else self._tail.sizes

    def borders(self, bytes_max: int) -> list[int]:
        """Where batches begin, and the end."""
        ends = np.cumsum(self.sizes)
        borders = [0]
        while borders[-1] < len(ends):
            first = borders[-1]
            used = int(ends[first - 1]) if first else 0
            borders.append(max(first + 1, int(np.searchsorted(ends, used + bytes_max, side="right"))))
        return borders

    def encode(self, borders: list[int], codec: Codec, level: int | None) -> Iterator[bytearray]:
        """The batches between some borders."""
        rows = slice(borders[0], borders[-1])
        counts = np.diff(borders)
        firsts = np.array(borders[:-1])
        times_ms = self._times_ms[rows]
        base_times_ms = self._times_ms[firsts]
        time_deltas = times_ms - np.repeat(base_times_ms, counts)
        offset_deltas = np.arange(len(times_ms)) - np.repeat(firsts - borders[0], counts)
        joined = self._join(rows, time_deltas, offset_deltas)
        starts = np.frombuffer(joined.buffers()[1], dtype=np.int32)[: len(joined) + 1]
        data = memoryview(joined.buffers()[2])
        max_times_ms = np.maximum.reduceat(times_ms, firsts - borders[0])
        for index, (first, end) in enumerate(pairwise(borders)):
            records = data[starts[first - borders[0]] : starts[end - borders[0]]]
            used, payload = _packed(records, codec, level)
            yield _batch(payload, used, end - first, int(base_times_ms[index]), int(max_times_ms[index]))

    def _join(self, rows: slice, time_deltas: Ints, offset_deltas: Ints) -> pa.Array:
        value_sizes = self._value_sizes[rows]
        key_sizes = np.full(len(value_sizes), -1) if self._key_sizes is None else self._key_sizes[rows]
        tail_sizes: Ints | int = 1 if self._tail is None else self._tail.sizes[rows]
        numbers = [write_varints(column) for column in (time_deltas, offset_deltas, key_sizes, value_sizes)]
        length = 1 + tail_sizes + np.maximum(key_sizes, 0) + np.maximum(value_sizes, 0)
        for _, used in numbers:
            length = length + used.sum(axis=1)
        attributes = (np.zeros((len(length), 1), dtype=np.uint8), np.ones((len(length), 1), dtype=np.bool_))
        head = [write_varints(length), attributes, *numbers[:3]]
        if self._key is None:
            pieces = [_strings([*head, numbers[3]])]
        else:
            pieces = [_strings(head), self._key[rows], _strings([numbers[3]])]
        pieces.append(self._value[rows])
        pieces += [_NO_HEADERS] if self._tail is None else self._tail.pieces(rows)
        return pc.binary_join_element_wise(*pieces, _NOTHING, null_handling="replace", null_replacement="")


class _Tail:
    """The headers of each row as bytes: how many there are, and of each the name and the value."""

    def __init__(self, headers: pa.Array) -> None:
        counts = headers.value_lengths().fill_null(0).to_numpy(zero_copy_only=False).astype(np.int64)
        items = headers.flatten()
        name, value = (_binary(column) for column in items.flatten())
        if items.null_count or name.null_count:
            raise InvalidRecordError("a header without a name; give every header a name")
        joined = pc.binary_join_element_wise(
            _strings([write_varints(_sizes(name))]),
            name,
            _strings([write_varints(_sizes(value))]),
            value,
            _NOTHING,
            null_handling="replace",
            null_replacement="",
        )
        ends = np.concatenate(([0], np.cumsum(counts)))
        starts = np.frombuffer(joined.buffers()[1], dtype=np.int32)[ends] if len(joined) else np.zeros_like(ends)
        starts = starts.astype(np.int32)
        self._counts = write_varints(counts)
        self._items = pa.Array.from_buffers(
            pa.binary(), len(counts), [None, pa.py_buffer(starts), joined.buffers()[2] or pa.py_buffer(b"")]
        )
        self.sizes = self._counts[1].sum(axis=1) + np.diff(starts)

    def pieces(self, rows: slice) -> list[pa.Array]:
        numbers, used = self._counts
        return [_strings([(numbers[rows], used[rows])]), self._items[rows]]


def _binary(array: pa.Array) -> pa.Array:
    return array if array.type == pa.binary() else array.cast(pa.binary())


def _sizes(array: pa.Array) -> Ints:
    """Lengths, -1 for null."""
    sizes: Ints = pc.binary_length(array).fill_null(-1).to_numpy(zero_copy_only=False).astype(np.int64)
    return sizes


def _strings(numbers: list[tuple[Bytes, Mask]]) -> pa.Array:
    """Varints of several columns, row by row one after the other, as one short string for each row."""
    data = np.concatenate([column for column, _ in numbers], axis=1) if len(numbers) > 1 else numbers[0][0]
    used = np.concatenate([mask for _, mask in numbers], axis=1) if len(numbers) > 1 else numbers[0][1]
    ends = np.zeros(len(data) + 1, dtype=np.int32)
    np.cumsum(used.sum(axis=1), out=ends[1:])
    return pa.Array.from_buffers(pa.binary(), len(data), [None, pa.py_buffer(ends), pa.py_buffer(data[used])])


def _parts(borders: list[int], sizes: Ints) -> Iterator[list[int]]:
    """Borders of batches that are encoded together, each part from where the last ended."""
    ends = np.cumsum(sizes)
    part, used = [0], 0
    for border in borders[1:]:
        part.append(border)
        if ends[border - 1] - used >= _PART_BYTES:
            yield part
            part, used = [border], int(ends[border - 1])
    if len(part) > 1:
        yield part


def _packed(records: memoryview, codec: Codec, level: int | None) -> tuple[Codec, Buffer]:
    """Compressed, unless readers would take what comes of it for a bomb, as they do of one large row of zeros."""
    if codec == Codec.NONE:
        return codec, records
    payload = compress(codec, bytes(records), level=level)
    return (codec, payload) if len(records) <= output_limit(len(payload)) else (Codec.NONE, records)


def _batch(payload: Buffer, codec: Codec, count: int, base_time_ms: int, max_time_ms: int) -> bytearray:
    length = HEADER_SIZE - LENGTH_PREFIX_SIZE + len(payload)
    times = (base_time_ms, max_time_ms)
    header = _HEADER.pack(0, length, -1, MAGIC, 0, codec, count - 1, *times, NO_PRODUCER_ID, -1, -1, count)
    return bytearray().join((header, payload))
