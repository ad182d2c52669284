"""From positions in a buffer to Arrow columns. Bytes are copied once, by compiled code, into the column that asked."""

from collections.abc import Callable
from functools import lru_cache

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from headrace.spark.arrow.header import read_headers
from headrace.spark.arrow.record import Field, Records
from headrace.spark.arrow.varint import Bytes

_MICROSECONDS = 1000
_TIME_MS_MAX = (1 << 63) // _MICROSECONDS - 1
_CONSTANT_ROWS = 1 << 16
_INLINE_BYTES_MAX = 12  # what an Arrow view holds itself, instead of a position


def binary_column(data: Bytes, field: Field) -> pa.Array:
    """The bytes of a field, copied out of the data."""
    if len(field.sizes) and field.sizes.min() > _INLINE_BYTES_MAX:
        return _long_values(data, field)
    values = _any_values(data, field)
    is_null = field.sizes < 0
    return _with_nulls(values, is_null) if is_null.any() else values


def _long_values(data: Bytes, field: Field) -> pa.Array:
    """Values none of which is short or null, in two thirds of the time.

    A view has a length, the value's first bytes (which only comparisons look at), a buffer's number and a position.
    """
    views = np.zeros((len(field.sizes), 4), dtype=np.int32)
    views[:, 0] = field.sizes
    views[:, 3] = field.starts
    array = pa.Array.from_buffers(pa.binary_view(), len(views), [None, pa.py_buffer(views), pa.py_buffer(data)])
    return array.cast(pa.binary())


def _any_values(data: Bytes, field: Field) -> pa.Array:
    """Arrow is told of twice as many elements, which follow each other in the buffer: a value, what is between it and
    the next one, the next value, and so on. Of those it gathers every other one.
    """
    count = len(field.starts)
    edges = np.empty(2 * count + 1, dtype=np.int32)
    edges[:-1:2] = field.starts
    edges[1::2] = field.ends
    edges[-1] = edges[-2] if count else 0
    pieces = pa.Array.from_buffers(pa.binary(), 2 * count, [None, pa.py_buffer(edges), pa.py_buffer(data)])
    return pieces.take(pa.array(np.arange(0, 2 * count, 2, dtype=np.int32)))


def _with_nulls(array: pa.Array, is_null: npt.NDArray[np.bool_]) -> pa.Array:
    buffers = array.buffers()
    return pa.Array.from_buffers(array.type, len(array), [validity(~is_null), *buffers[1:]])


def validity(is_valid: npt.NDArray[np.bool_]) -> pa.Buffer:
    return pa.py_buffer(np.packbits(is_valid, bitorder="little"))


def headers_column(records: Records, kind: pa.ListType) -> pa.Array:
    """A list of names and values for each record, null for those that have none, as Spark's Kafka source has it."""
    assert records.header_counts is not None
    assert records.header_starts is not None
    counts = records.header_counts
    offsets = np.zeros(len(counts) + 1, dtype=np.int32)
    np.cumsum(counts, out=offsets[1:])
    names, values = read_headers(records.data, counts, records.header_starts, records.ends)
    key = _text(binary_column(records.data, names))
    value = binary_column(records.data, values)
    items = pa.StructArray.from_arrays([key, value], fields=list(kind.value_type))
    buffers = [validity(counts > 0), pa.py_buffer(offsets)]
    return pa.Array.from_buffers(kind, len(counts), buffers, children=[items])


def _text(column: pa.Array) -> pa.Array:
    """Names of headers. Nobody checks them when they are sent: bytes that are no text must not keep the message from
    being read, and what stands for them is what Kafka's own consumers, and with them Spark's source, put there.
    """
    try:
        return column.cast(pa.string())
    except pa.ArrowInvalid:
        return pa.array([name.decode("utf-8", "replace") for name in column.to_pylist()], pa.string())


def _timestamps(records: Records, kind: pa.DataType) -> pa.Array:
    # A producer may have sent any number; the ends of what Spark knows stand for what is beyond them.
    times_ms = np.clip(records.timestamps_ms, -_TIME_MS_MAX, _TIME_MS_MAX)
    return _numbers(times_ms * _MICROSECONDS, kind)


def _numbers(numbers: npt.NDArray[np.signedinteger], kind: pa.DataType) -> pa.Array:
    array: pa.Array = pa.Array.from_buffers(kind, len(numbers), [None, pa.py_buffer(np.ascontiguousarray(numbers))])
    return array


@lru_cache(maxsize=64)
def _constants(topic: str, partition: int) -> tuple[pa.Array, pa.Array]:
    """Columns of one topic and one partition number, of which every batch gets as many rows as it has."""
    return (
        pa.repeat(pa.scalar(topic, pa.string()), _CONSTANT_ROWS),
        pa.repeat(pa.scalar(partition, pa.int32()), _CONSTANT_ROWS),
    )


def _repeated(constant: pa.Array, count: int) -> pa.Array:
    return constant[:count] if count <= len(constant) else pa.repeat(constant[0], count)


Column = Callable[[Records, str, int, pa.DataType], pa.Array]


def _key(records: Records, topic: str, partition: int, kind: pa.DataType) -> pa.Array:
    assert records.key is not None
    return binary_column(records.data, records.key)


def _value(records: Records, topic: str, partition: int, kind: pa.DataType) -> pa.Array:
    assert records.value is not None
    return binary_column(records.data, records.value)


COLUMNS: dict[str, Column] = {
    "key": _key,
    "value": _value,
    "topic": lambda records, topic, partition, _: _repeated(_constants(topic, partition)[0], len(records)),
    "partition": lambda records, topic, partition, _: _repeated(_constants(topic, partition)[1], len(records)),
    "offset": lambda records, topic, partition, kind: _numbers(records.offsets, kind),
    "timestamp": lambda records, topic, partition, kind: _timestamps(records, kind),
    "timestampType": lambda records, topic, partition, kind: _numbers(records.timestamp_types.astype(np.int32), kind),
    "headers": lambda records, topic, partition, kind: headers_column(records, kind),
}


def record_batch(records: Records, *, topic: str, partition: int, columns: pa.Schema) -> pa.RecordBatch:
    """The asked columns of some records."""
    arrays = [COLUMNS[field.name](records, topic, partition, field.type) for field in columns]
    return pa.RecordBatch.from_arrays(arrays, schema=columns)
