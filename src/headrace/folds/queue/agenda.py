"""Offsets and moments, the earliest moment first.

Moments mostly come in the order in which they will pass: leases of one length end in the order in which they were
taken. So an entry goes to the end of a line if nothing in that line comes after it, where it costs two numbers in
arrays. There are a few lines, since there are a few lengths. What fits into none is put in a heap, where it costs an
object; and so does a moment that is too far away for an array's number.

An entry is outdated when its offset has another moment meanwhile, or none. Whoever has the moments finds that out when
the entry comes first, and weeds out the others before they are many.
"""

from array import array
from collections.abc import Mapping, Sequence
from heapq import heapify, heappop, heappush
from itertools import compress, islice, takewhile

NEVER_MS = 1 << 80  # after every moment
_LINES_MAX = 4
# So many entries that have passed are left in a line, and beyond them as many as are still to come.
_PASSED_COUNT = 1024
_WEEDED_COUNT = 8192  # at a time, so that nothing large has to be allocated for it
_OFFSET_BITS = 64
_OFFSET_MASK = (1 << _OFFSET_BITS) - 1
_NOTHING = -NEVER_MS  # for an offset without a moment: before every moment


class Agenda:
    """Entries that are taken from the front."""

    __slots__ = ("_heap", "_lines", "count", "first_ms")

    def __init__(self) -> None:
        self._lines: list[_Line] = []
        self._heap: list[int] = []  # moment and offset, packed in one integer
        self.count = 0
        self.first_ms = NEVER_MS  # of the first entry

    @property
    def heap_count(self) -> int:
        """How many entries cost an object."""
        return len(self._heap)

    def push(self, moment_ms: int, offsets: Sequence[int]) -> None:
        """Take up some offsets, in order, for one moment."""
        self.count += len(offsets)
        if moment_ms < self.first_ms:
            self.first_ms = moment_ms
        for line in self._lines:
            if line.append(moment_ms, offsets):
                return
        if len(self._lines) < _LINES_MAX:
            line = _Line()
            if line.append(moment_ms, offsets):
                self._lines.append(line)
                return
        for offset in offsets:
            heappush(self._heap, (moment_ms << _OFFSET_BITS) | offset)

    def first(self) -> tuple[int, int]:
        """The first entry's moment and offset. There is one."""
        line = self._first_line()
        if line is None:
            return self._heap[0] >> _OFFSET_BITS, self._heap[0] & _OFFSET_MASK
        return line.moments[line.start], line.offsets[line.start]

    def pop(self) -> None:
        """The first entry has passed."""
        self.count -= 1
        line = self._first_line()
        if line is None:
            heappop(self._heap)
        elif line.pass_first():
            self._lines.remove(line)
        self._find_first_ms()

    def drop_gone(self, values: Mapping[int, int]) -> None:
        """Drop what stands first in the lines and has no moment any more: what was leased first is often done first."""
        for line in self._lines:
            self.count -= line.drop_gone(values)
        self._lines = [line for line in self._lines if line.offsets]
        self._find_first_ms()

    def weed(self, values: Mapping[int, int], shift: int) -> None:
        """Drop what is outdated, and put where it belongs what was put off. Moments stand above a shift of values."""
        put_off: list[int] = []
        for line in self._lines:
            put_off += line.weed(values, shift)
        self._lines = [line for line in self._lines if line.offsets]
        kept = []
        for entry in self._heap:
            moment_ms, offset = entry >> _OFFSET_BITS, entry & _OFFSET_MASK
            value = values.get(offset)
            known_ms = _NOTHING if value is None else value >> shift
            if known_ms == moment_ms:
                kept.append(entry)
            elif known_ms > moment_ms:
                put_off.append(offset)
        heapify(kept)
        self._heap = kept
        self.count = len(kept) + sum(len(line.offsets) for line in self._lines)
        self._find_first_ms()
        for offset in sorted(put_off, key=values.__getitem__):
            self.push(values[offset] >> shift, (offset,))

    def _find_first_ms(self) -> None:
        self.first_ms = self.first()[0] if self.count else NEVER_MS

    def _first_line(self) -> "_Line | None":
        """The line that the first entry stands in; None: it stands in the heap."""
        if not self._heap and len(self._lines) == 1:
            return self._lines[0]
        found, first = None, self._heap[0] if self._heap else None
        for line in self._lines:
            entry = (line.moments[line.start] << _OFFSET_BITS) | line.offsets[line.start]
            if first is None or entry < first:
                found, first = line, entry
        return found


class _Line:
    """Entries in the order of their moments, and of offsets within one moment."""

    __slots__ = ("moments", "offsets", "start")

    def __init__(self) -> None:
        self.moments = array("q")
        self.offsets = array("q")
        self.start = 0  # those before it have passed

    def append(self, moment_ms: int, offsets: Sequence[int]) -> bool:
        """Take up entries if they come after all that is here."""
        moments = self.moments
        if moments:
            last_ms = moments[-1]
            if moment_ms < last_ms or (moment_ms == last_ms and offsets[0] < self.offsets[-1]):
                return False
        try:
            if len(offsets) == 1:
                moments.append(moment_ms)
                self.offsets.append(offsets[0])
            else:
                moments.extend(array("q", (moment_ms,)) * len(offsets))
                self.offsets.extend(offsets)
        except OverflowError:  # of the moment, before anything has changed
            return False
        return True

    def pass_first(self) -> bool:
        """Whether that was the last one."""
        self.start += 1
        count = len(self.offsets)
        if self.start > _PASSED_COUNT and self.start > count // 2:
            del self.moments[: self.start], self.offsets[: self.start]
            self.start, count = 0, count - self.start
        return self.start == count

    def drop_gone(self, values: Mapping[int, int]) -> int:
        """Drop the first ones that have no moment. Returns how many there were."""
        coming = islice(self.offsets, self.start, None)
        gone_count = sum(1 for _ in takewhile(lambda offset: offset not in values, coming))
        end = self.start + gone_count
        del self.moments[:end], self.offsets[:end]
        self.start = 0
        return gone_count

    def weed(self, values: Mapping[int, int], shift: int) -> list[int]:
        """Keep what is so. Returns the offsets of what was put off."""
        before = self.moments, self.offsets
        start, self.start = self.start, 0
        self.moments, self.offsets = array("q"), array("q")
        put_off: list[int] = []
        for at in range(start, len(before[0]), _WEEDED_COUNT):
            moments, offsets = (column[at : at + _WEEDED_COUNT] for column in before)
            found = map(values.get, offsets)
            known = [_NOTHING if value is None else value >> shift for value in found]
            kept = list(map(int.__eq__, known, moments))
            self.moments.extend(compress(moments, kept))
            self.offsets.extend(compress(offsets, kept))
            put_off += compress(offsets, map(int.__gt__, known, moments))
        return put_off
