"""Where records begin and end: the one thing of a batch that can only be found record by record.

A record says how long it is, so each is found through the one before it. Two things keep that from being the slowest
part. Records of one size, which many producers send, are found together: where every k-th byte from here says the same
length, each of those records ends where the next begins. All others are walked by a table from the first two bytes of a
record to its whole size, in a generator that numpy drains.
"""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from headrace.model.batch import BatchHeader
from headrace.model.errors import CorruptBatchError
from headrace.spark.arrow.varint import Bytes, Ints, read_varints

RECORD_SIZE_MIN = 7  # length, attributes, two deltas, two lengths and a count of one byte each
_LENGTH_BYTES_MAX = 5
_RUN_MIN = 32  # below it, to look for a run costs more than to walk
_RUNS_MAX = 6  # a batch of one size has three of them, since the offset's varint grows at 64 and at 8192


class Payload(NamedTuple):
    """The uncompressed records of one batch, as a part of some buffer."""

    header: BatchHeader
    start: int
    end: int


def record_bounds(data: bytes | bytearray, array: Bytes, payloads: Sequence[Payload]) -> tuple[Ints, Ints]:
    """Where each record of some batches begins, behind its length, and where it ends (`array` is the same data)."""
    counts = [payload.header.record_count for payload in payloads]
    for payload in payloads:
        if payload.header.record_count * RECORD_SIZE_MIN > payload.end - payload.start:
            raise CorruptBatchError(
                f"{payload.header.record_count} records cannot be in {payload.end - payload.start} bytes"
            )
    try:
        starts = _starts(data, array, payloads, counts)
    except IndexError:
        raise CorruptBatchError("records that go on after their end") from None
    ends = np.empty_like(starts)
    ends[:-1] = starts[1:]
    ends[np.cumsum(counts) - 1] = [payload.end for payload in payloads]
    _, begins = read_varints(array, starts)
    return begins, ends


def _starts(data: bytes | bytearray, array: Bytes, payloads: Sequence[Payload], counts: Sequence[int]) -> Ints:
    # Batches that were fetched together are alike: where the first does not begin with a run, none is looked for.
    if not _run(array, payloads[0].start, payloads[0].end, counts[0])[1]:
        walk = _Walk(data, payloads)
        starts = np.fromiter(walk.starts(), dtype=np.int64, count=sum(counts) + 1)
        if walk.is_whole:
            return starts[:-1]
    each = [_starts_of(data, array, *payload[1:], count) for payload, count in zip(payloads, counts, strict=True)]
    return each[0] if len(each) == 1 else np.concatenate(each)


def _size(first: int, second: int) -> int:
    """Bytes of a record with its length, from its first two bytes; 0 where they do not say it."""
    if first < 0x80:
        return 0 if first & 1 else 1 + (first >> 1)
    length = first & 0x7F | second << 7
    return 0 if second > 0x7F or length & 1 else 2 + (length >> 1)


_SIZES = [[_size(first, second) for second in range(256)] for first in range(256)]


class _Walk:
    """Records of some batches one by one; `is_whole` afterwards if each batch ended where its last record did."""

    def __init__(self, data: bytes | bytearray, payloads: Sequence[Payload]) -> None:
        self._data = data
        self._payloads = payloads
        self.is_whole = True

    def starts(self) -> Iterator[int]:
        data, sizes = self._data, _SIZES
        for header, at, end in self._payloads:
            for _ in range(header.record_count):
                yield at
                # Stands still at a length of three bytes: then the batch does not end where it should.
                at += sizes[data[at]][data[at + 1]]
            self.is_whole &= at == end
        yield 0  # for the walk to come to its end


def _starts_of(data: bytes | bytearray, array: Bytes, start: int, end: int, count: int) -> Ints:
    """Of one batch, whose records fill the part of the data exactly."""
    starts = np.empty(count, dtype=np.int64)
    found, at = 0, start
    for _ in range(_RUNS_MAX):
        size, length = _run(array, at, end, count - found)
        if not length:
            break
        starts[found : found + length] = at + size * np.arange(length)
        found += length
        at += size * length
    if found < count:
        starts[found:] = np.fromiter(_any_starts(data, at), dtype=np.int64, count=count - found)
        last = int(starts[-1])
        at = last + _any_size(data, last)
    if at != end:
        raise CorruptBatchError(f"{count} records that end at byte {at - start} of {end - start}")
    return starts


def _run(array: Bytes, at: int, end: int, count: int) -> tuple[int, int]:
    """How long the record here is, and how many from it on are as long; 0 where that are too few to be worth it."""
    if count < _RUN_MIN:
        return 0, 0
    first, second = array[at : at + 2].tolist()
    size = _SIZES[first][second]
    if size < RECORD_SIZE_MIN:
        return 0, 0
    count = min(count, (end - at) // size)
    if count < _RUN_MIN or array[at + size] != first or array[at + size + 1] != second:
        return 0, 0
    heads = np.lib.stride_tricks.as_strided(array[at:], shape=(count, 2), strides=(size, 1))
    is_other = heads[:, 0] != first
    if first > 0x7F:
        is_other |= heads[:, 1] != second
    length = int(is_other.argmax()) if is_other.any() else count
    return (size, length) if length >= _RUN_MIN else (0, 0)


def _any_starts(data: bytes | bytearray, at: int) -> Iterator[int]:
    sizes = _SIZES
    while True:
        yield at
        at += sizes[data[at]][data[at + 1]] or _any_size(data, at)


def _any_size(data: bytes | bytearray, at: int) -> int:
    """Bytes of a record with its length, whatever it is."""
    number = 0
    for index in range(_LENGTH_BYTES_MAX):
        byte = data[at + index]
        number |= (byte & 0x7F) << 7 * index
        if byte < 0x80:
            size = index + 1 + (number >> 1)
            if number & 1 or size < RECORD_SIZE_MIN:
                break
            return size
    raise CorruptBatchError(f"a record at byte {at} whose length cannot be")
