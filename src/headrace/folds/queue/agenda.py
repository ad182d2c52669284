"""Offsets and moments, the earliest moment first.

Moments mostly come in the order in which they will pass: leases of one length end in the order in which they were
taken. So an entry goes to the end of a line if nothing in that line comes after it, where it costs two numbers in
arrays. There are a few lines, since there are a few lengths. What fits into none is put in a heap, where it costs an
object; and so does a moment that is too far away for an array's number.

An entry is outdated when its offset has another moment meanwhile, or none. Whoever has the moments finds that out when
the entry comes first, and has some looked through now and then, a stretch at a time, since there may be a million.
"""

from array import array
from collections.abc import Mapping, Sequence
from heapq import heapify, heappop, heappush
from itertools import compress

NEVER_MS = 1 << 80  # after every moment
_LINES_MAX = 4
_STRETCH_COUNT = 4096  # entries that lie together in a line
_OFFSET_BITS = 64
_OFFSET_MASK = (1 << _OFFSET_BITS) - 1


class Agenda:
    """Entries that are taken from the front."""

    __slots__ = ("_heap", "_lines", "_place", "count", "first_ms")

    def __init__(self) -> None:
        self._lines: list[_Line] = []
        self._heap: list[int] = []  # moment and offset, packed in one integer
        self._place = (0, 0)  # the line and the stretch to be looked through next
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
        return line.first()

    def pop(self) -> None:
        """The first entry has passed."""
        self.count -= 1
        line = self._first_line()
        if line is None:
            heappop(self._heap)
        elif line.pass_first():
            self._lines.remove(line)
        self._find_first_ms()

    def drop_outdated(self, values: Mapping[int, int], shift: int) -> int:
        """Drop from one stretch, or from the heap, what says another moment than stands above a shift of a number.

        From the front of a line, if what stands there is outdated: what was leased first is often done first. Else it
        goes on where it ended the last time. Returns how many entries were looked at.
        """
        for line in self._lines:
            moment_ms, offset = line.first()
            if not _is_so(values.get(offset), shift, moment_ms):
                return self._drop_from(line, 0, values, shift)[0]
        line_at, stretch_at = self._place
        if line_at >= len(self._lines):
            self._place = (0, 0)
            return self._drop_from_heap(values, shift)
        line = self._lines[line_at]
        stretch_at = min(stretch_at, len(line.stretches) - 1)
        looked_count, dropped_count = self._drop_from(line, stretch_at, values, shift)
        if dropped_count < looked_count:  # else the next stretch, or the next line, stands there now
            stretch_at += 1
        self._place = (line_at, stretch_at) if stretch_at < len(line.stretches) else (line_at + 1, 0)
        return looked_count

    def _drop_from(self, line: "_Line", at: int, values: Mapping[int, int], shift: int) -> tuple[int, int]:
        """How many were looked at, and how many dropped."""
        counts = line.drop_outdated(at, values, shift)
        self.count -= counts[1]
        if not line.stretches:
            self._lines.remove(line)
        self._find_first_ms()
        return counts

    def _drop_from_heap(self, values: Mapping[int, int], shift: int) -> int:
        heap = self._heap
        self._heap = [entry for entry in heap if _is_so(values.get(entry & _OFFSET_MASK), shift, entry >> _OFFSET_BITS)]
        heapify(self._heap)
        self.count -= len(heap) - len(self._heap)
        self._find_first_ms()
        return len(heap)

    def _find_first_ms(self) -> None:
        self.first_ms = self.first()[0] if self.count else NEVER_MS

    def _first_line(self) -> "_Line | None":
        """The line that the first entry stands in; None: it stands in the heap."""
        if not self._heap and len(self._lines) == 1:
            return self._lines[0]
        found, first = None, self._heap[0] if self._heap else None
        for line in self._lines:
            moment_ms, offset = line.first()
            entry = (moment_ms << _OFFSET_BITS) | offset
            if first is None or entry < first:
                found, first = line, entry
        return found


class _Line:
    """Entries in the order of their moments, and of offsets within one moment: one at least, once the first is in."""

    __slots__ = ("start", "stretches")

    def __init__(self) -> None:
        self.stretches: list[tuple[array[int], array[int]]] = []  # moments and offsets
        self.start = 0  # of the first stretch, those before it have passed

    def append(self, moment_ms: int, offsets: Sequence[int]) -> bool:
        """Take up entries if they come after all that is here."""
        stretches = self.stretches
        if stretches:
            moments, places = stretches[-1]
            last_ms = moments[-1]
            if moment_ms < last_ms or (moment_ms == last_ms and offsets[0] < places[-1]):
                return False
        is_new = not stretches or len(places) >= _STRETCH_COUNT
        if is_new:
            moments, places = array("q"), array("q")
        try:
            if len(offsets) == 1:
                moments.append(moment_ms)
                places.append(offsets[0])
            else:
                moments.extend(array("q", (moment_ms,)) * len(offsets))
                places.extend(offsets)
        except OverflowError:  # of the moment, before anything has changed
            return False
        if is_new:
            stretches.append((moments, places))
        return True

    def first(self) -> tuple[int, int]:
        moments, offsets = self.stretches[0]
        return moments[self.start], offsets[self.start]

    def pass_first(self) -> bool:
        """Whether that was the last one."""
        self.start += 1
        if self.start == len(self.stretches[0][1]):
            del self.stretches[0]
            self.start = 0
        return not self.stretches

    def drop_outdated(self, at: int, values: Mapping[int, int], shift: int) -> tuple[int, int]:
        """Look through a stretch. Returns how many were looked at, and how many dropped."""
        moments, offsets = self.stretches[at]
        if at == 0:
            del moments[: self.start], offsets[: self.start]
            self.start = 0
        kept = [
            value is not None and value >> shift == moment_ms
            for value, moment_ms in zip(map(values.get, offsets), moments, strict=True)
        ]
        count = sum(kept)
        if count:
            self.stretches[at] = array("q", compress(moments, kept)), array("q", compress(offsets, kept))
        else:
            del self.stretches[at]
        return len(kept), len(kept) - count


def _is_so(value: int | None, shift: int, moment_ms: int) -> bool:
    return value is not None and value >> shift == moment_ms
