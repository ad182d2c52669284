"""The records of many batches as arrays of numbers: offsets, times, and where keys, values and headers are.

No record becomes a Python object. All varints of one kind are read together, so a batch of ten thousand costs as many
calls as one of ten, and many small batches cost as many as a large one.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from headrace.model.batch import ATTRIBUTE_LOG_APPEND_TIME
from headrace.model.errors import CorruptBatchError
from headrace.spark.arrow.bound import Payload, record_bounds
from headrace.spark.arrow.varint import Bytes, Ints, read_varints

NULL_SIZE = -1


@dataclass(frozen=True, slots=True)
class Field:
    """A key or a value of each record: where it begins, and how long it is (-1: null)."""

    starts: Ints
    sizes: Ints

    @property
    def ends(self) -> Ints:
        return self.starts + np.maximum(self.sizes, 0)

    def rows(self, first: int, end: int) -> "Field":
        return Field(self.starts[first:end], self.sizes[first:end])


@dataclass(frozen=True, slots=True)
class Records:
    """What was asked for of some records; `data` is what all positions are in."""

    data: Bytes
    offsets: Ints
    timestamps_ms: Ints
    timestamp_types: Ints
    ends: Ints
    key: Field | None
    value: Field | None
    header_counts: Ints | None
    header_starts: Ints | None  # behind the count

    def __len__(self) -> int:
        return len(self.offsets)

    def rows(self, first: int, end: int) -> "Records":
        def part(numbers: Ints | None) -> Ints | None:
            return None if numbers is None else numbers[first:end]

        return Records(
            self.data,
            self.offsets[first:end],
            self.timestamps_ms[first:end],
            self.timestamp_types[first:end],
            self.ends[first:end],
            self.key and self.key.rows(first, end),
            self.value and self.value.rows(first, end),
            part(self.header_counts),
            part(self.header_starts),
        )


def read_records(
    data: bytes | bytearray, payloads: Sequence[Payload], *, with_key: bool, with_value: bool, with_headers: bool
) -> Records:
    """The records of some batches, whose payloads stand in `data` in order. Raises CorruptBatchError."""
    array = np.frombuffer(data, dtype=np.uint8)
    try:
        return _read(data, array, payloads, with_key=with_key, with_value=with_value, with_headers=with_headers)
    except IndexError:
        raise CorruptBatchError("records that go on after their end") from None


def _read(
    data: bytes | bytearray,
    array: Bytes,
    payloads: Sequence[Payload],
    *,
    with_key: bool,
    with_value: bool,
    with_headers: bool,
) -> Records:
    at, ends = record_bounds(data, array, payloads)
    time_deltas, at = read_varints(array, at + 1)  # after the attributes, which mean nothing
    offset_deltas, at = read_varints(array, at)
    key = value = counts = header_starts = None
    if with_key or with_value or with_headers:
        key, at = _read_field(array, at, ends)
    if with_value or with_headers:
        value, at = _read_field(array, at, ends)
        counts, header_starts = read_varints(array, at)
        _check_tail(counts, header_starts, ends)
    offsets, timestamps_ms, types = _numbers(payloads, offset_deltas, time_deltas)
    return Records(array, offsets, timestamps_ms, types, ends, key, value, counts, header_starts)


def _read_field(array: Bytes, at: Ints, ends: Ints) -> tuple[Field, Ints]:
    sizes, starts = read_varints(array, at)
    after = starts + np.maximum(sizes, 0)
    if sizes.size and (sizes.min() < NULL_SIZE or (after >= ends).any() or (after < starts).any()):
        raise CorruptBatchError("a key or value that is longer than its record")
    return Field(starts, sizes), after


def _check_tail(counts: Ints, starts: Ints, ends: Ints) -> None:
    """A record without headers ends behind their count; one with some has to have room for them."""
    if counts.size and (counts.min() < 0 or (counts > (ends - starts) // 2).any()):
        raise CorruptBatchError("headers that cannot be in their record")
    if ((counts == 0) & (starts != ends)).any():
        raise CorruptBatchError("a record that does not end where it says")


def _numbers(payloads: Sequence[Payload], offset_deltas: Ints, time_deltas: Ints) -> tuple[Ints, Ints, Ints]:
    """Offsets, times and kinds of times, which are relative to what each batch's header says."""
    headers = [payload.header for payload in payloads]
    is_append_time = [header.attributes & ATTRIBUTE_LOG_APPEND_TIME != 0 for header in headers]
    counts = [header.record_count for header in headers]

    def spread(numbers: list[int]) -> Ints:
        return np.repeat(np.array(numbers, dtype=np.int64), counts)

    if ((offset_deltas < 0) | (offset_deltas > spread([header.last_offset_delta for header in headers]))).any():
        raise CorruptBatchError("a record whose offset is outside of its batch")
    offsets = spread([header.base_offset for header in headers]) + offset_deltas
    if (offsets[1:] <= offsets[:-1]).any():
        raise CorruptBatchError("records whose offsets do not ascend")
    types = spread([int(flag) for flag in is_append_time])
    timestamps_ms = spread([header.base_timestamp_ms for header in headers]) + time_deltas
    if any(is_append_time):
        appended_ms = spread([header.max_timestamp_ms for header in headers])
        timestamps_ms = np.where(types == 1, appended_ms, timestamps_ms)
    return offsets, timestamps_ms, types
