"""The sparse index of a segment: offset to position, and time to offset.

An entry is made for the first batch after every `index_interval_bytes`. It holds the batch's base offset, its
position, and the largest timestamp of all batches before it. Since that never falls, both lookups are a bisection for
the last entry that is surely not too late; the caller walks on from there, batch by batch.

On disk the two halves are `.index` (offset, position) and `.timeindex` (timestamp, offset), each a row of blocks:

    count uint32 | CRC-32C uint32 of the entries | count entries of two int64

Blocks are only appended. They are a cache: whatever does not check is dropped with all that follows it, and the walk
makes it anew.
"""

import struct
from array import array
from bisect import bisect_left, bisect_right
from typing import NamedTuple

from headrace.model.batch import NO_TIMESTAMP
from headrace.model.ids import Offset
from headrace.wire.crc import crc32c

_BLOCK = struct.Struct(">II")
_ENTRY_SIZE = 16


class IndexEntry(NamedTuple):
    offset: Offset
    position: int
    earlier_max_timestamp_ms: int


class IndexBlocks(NamedTuple):
    """Bytes to write at these ends of `.index` and `.timeindex`; whatever stands behind them there is void."""

    positions: tuple[int, int]
    by_offset: bytes
    by_time: bytes


class SparseIndex:
    __slots__ = (
        "_interval_bytes",
        "_offsets",
        "_positions",
        "_saved_bytes",
        "_saved_count",
        "_times",
        "is_sealed",
        "max_timestamp_ms",
        "sealed_at",
    )

    def __init__(self, interval_bytes: int) -> None:
        self._interval_bytes = interval_bytes
        self._offsets = array("q")
        self._positions = array("q")
        self._times = array("q")
        self._saved_count = 0
        self._saved_bytes = (0, 0)
        self.max_timestamp_ms = NO_TIMESTAMP
        self.is_sealed = False
        self.sealed_at: Offset | None = None

    def __len__(self) -> int:
        return len(self._offsets)

    @property
    def last(self) -> IndexEntry | None:
        return self._entry(len(self._offsets) - 1) if self._offsets else None

    def add(self, offset: Offset, position: int, max_timestamp_ms: int) -> None:
        """Note a batch. It becomes an entry if the last one is far enough behind."""
        if not self._positions or position - self._positions[-1] >= self._interval_bytes:
            self._offsets.append(offset)
            self._positions.append(position)
            self._times.append(self.max_timestamp_ms)
        if max_timestamp_ms > self.max_timestamp_ms:
            self.max_timestamp_ms = max_timestamp_ms

    def floor(self, offset: Offset) -> IndexEntry | None:
        """The last entry at or before an offset."""
        at = bisect_right(self._offsets, offset)
        return self._entry(at - 1) if at else None

    def floor_position(self, position: int) -> IndexEntry | None:
        """The last entry at or before a byte of the file."""
        at = bisect_right(self._positions, position)
        return self._entry(at - 1) if at else None

    def before_time(self, timestamp_ms: int) -> IndexEntry | None:
        """The last entry with nothing at or after this time before it."""
        at = bisect_left(self._times, timestamp_ms)
        return self._entry(at - 1) if at else None

    def truncate_to(self, position: int) -> None:
        """Forget entries at or after a byte of the file. The largest timestamp falls back to the last entry's."""
        keep = bisect_left(self._positions, position)
        if keep < len(self._positions):
            self.max_timestamp_ms = self._times[keep]
            del self._offsets[keep:], self._positions[keep:], self._times[keep:]
            if self._saved_count > keep:
                self.forget_saved()
        self.is_sealed = False

    def _entry(self, at: int) -> IndexEntry:
        return IndexEntry(Offset(self._offsets[at]), self._positions[at], self._times[at])

    # On disk.

    @property
    def has_unsaved(self) -> bool:
        return self._saved_count < len(self._offsets)

    def take_unsaved(self, *, sealed_at: Offset | None = None) -> "IndexBlocks":
        """What came since the last call, and where in the files it belongs.

        A segment that will not grow is sealed: one last time entry with its true largest timestamp and its end offset
        tells a later load that nothing is missing.
        """
        start, self._saved_count = self._saved_count, len(self._offsets)
        offsets, times = self._offsets[start:], self._times[start:]
        index = _block(offsets, self._positions[start:]) if offsets else b""
        if sealed_at is not None:
            times, offsets = times + array("q", [self.max_timestamp_ms]), offsets + array("q", [sealed_at])
            self.is_sealed = True
        timeindex = _block(times, offsets) if offsets else b""
        blocks = IndexBlocks(self._saved_bytes, index, timeindex)
        self._saved_bytes = (self._saved_bytes[0] + len(index), self._saved_bytes[1] + len(timeindex))
        return blocks

    def forget_saved(self) -> None:
        """Have everything written anew: what is on disk is in doubt."""
        self._saved_count, self._saved_bytes, self.is_sealed = 0, (0, 0), False

    @classmethod
    def load(cls, index: bytes, timeindex: bytes, *, interval_bytes: int, position_max: int) -> "SparseIndex":
        """Read back as much as checks in both files and lies below a position that is known to be whole."""
        self = cls(interval_bytes)
        offsets, positions, index_bytes = _read_blocks(index)
        times, time_offsets, timeindex_bytes = _read_blocks(timeindex)
        for offset, position, time, time_offset in zip(offsets, positions, times, time_offsets, strict=False):
            ordered = not self._offsets or (offset > self._offsets[-1] and position > self._positions[-1])
            if offset != time_offset or position >= position_max or not ordered:
                break
            self._offsets.append(offset)
            self._positions.append(position)
            self._times.append(time)
        if self._times:
            self.max_timestamp_ms = self._times[-1]
        count = len(self._offsets)
        if count == len(offsets) and count <= len(times) <= count + 1:
            self._saved_count = count
            self._saved_bytes = (index_bytes, timeindex_bytes)
            if len(times) == count + 1:
                self.is_sealed = True
                self.sealed_at = Offset(time_offsets[-1])
                self.max_timestamp_ms = times[-1]
        # Else the two files do not tell the same story, and both are written anew from their beginning.
        return self


def _block(first: "array[int]", second: "array[int]") -> bytes:
    entries = struct.pack(f">{2 * len(first)}q", *(value for pair in zip(first, second, strict=True) for value in pair))
    return _BLOCK.pack(len(first), crc32c(entries)) + entries


def _read_blocks(data: bytes) -> "tuple[array[int], array[int], int]":
    first, second = array("q"), array("q")
    view = memoryview(data)
    position = 0
    while position + _BLOCK.size <= len(view):
        count, crc = _BLOCK.unpack_from(view, position)
        entries = view[position + _BLOCK.size : position + _BLOCK.size + count * _ENTRY_SIZE]
        if len(entries) != count * _ENTRY_SIZE or count == 0 or crc32c(entries) != crc:
            break
        values = struct.unpack(f">{2 * count}q", entries)
        first.extend(values[::2])
        second.extend(values[1::2])
        position += _BLOCK.size + len(entries)
    return first, second, position
