"""The order in which messages are handed out: those that were tried stand behind those that were not tried since.

A message that was never delivered stands at its offset. One that comes back stands where it would stand
if it had been sent at the moment of its last delivery: behind everything that had arrived by then, before everything
that came later. So a message that fails again and again takes turns with the others, and neither starves.

    place    2 * offset    of a message that was not tried
             2 * end - 1   of one whose last delivery came when the messages ended at `end`

Nothing of this is stored for a message. Of one that was tried, the moment of its last attempt is known anyway
(`attempt.py`); `Marks` tell where the messages ended at that moment. Among those that were tried, the one whose last
attempt is longest ago comes first; of the same millisecond the one with fewer attempts, and then the one that was sent
first. All of it follows from entries and arrivals in the order of the log, and not from when a lease was found to be
over, so a replay has the same order.

In an ordered queue a key stands for its messages: it stands where the first of them does until it is served, and has
the moment at which it was served last from then on (`lanes.py`).
"""

from array import array
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator
from heapq import heapify, heappop, heappush, merge
from itertools import takewhile
from typing import NamedTuple

from pyroaring import BitMap64

_MARKS_MAX = 1024
_OFFSET_BITS = 64
_OFFSET_MASK = (1 << _OFFSET_BITS) - 1
_COUNT_BITS = 16
_COUNT_MASK = (1 << _COUNT_BITS) - 1
_OUTDATED_MAX = 1000  # entries of a rota beyond twice as many as it needs

Entry = tuple[int, int]  # place and offset


class Marks:
    """Where the messages ended when some were handed out, by the wall clock, which does not go back in a queue.

    There are a thousand at most. Beyond that two of the older half become one each, so a message that was handed out
    long ago may come back a little further behind than it should.
    """

    __slots__ = ("_ends", "_moments")

    def __init__(self) -> None:
        self._moments = array("q")  # of the first delivery with this end
        self._ends = array("q")

    def note(self, moment_ms: int, end: int) -> None:
        """Messages are handed out."""
        moments, ends = self._moments, self._ends
        if not ends or ends[-1] != end:
            if moments and moments[-1] == moment_ms:
                ends[-1] = end
                return
            moments.append(moment_ms)
            ends.append(end)
            if len(moments) > _MARKS_MAX:
                del moments[1 : _MARKS_MAX // 2 : 2]
                del ends[0 : _MARKS_MAX // 2 : 2]

    def end_at(self, moment_ms: int) -> int:
        """Where the messages ended at the last delivery of a moment. There was one."""
        return self._ends[max(bisect_right(self._moments, moment_ms) - 1, 0)]

    def clear(self) -> None:
        """Nothing is left that was handed out."""
        del self._moments[:], self._ends[:]

    def dump(self) -> list[tuple[int, int]]:
        return list(zip(self._moments, self._ends, strict=True))

    def load(self, marks: Iterable[tuple[int, int]]) -> None:
        for moment_ms, end in marks:
            self._moments.append(moment_ms)
            self._ends.append(end)


def rotation_key(moment_ms: int, count: int) -> int:
    """What those that were tried are ordered by: their last delivery, and how many there were."""
    return moment_ms << _COUNT_BITS | count


def next_key(key: int, moment_ms: int) -> int:
    """The key after another delivery; 0: there was none."""
    return rotation_key(moment_ms, min((key & _COUNT_MASK) + 1, _COUNT_MASK))


class Rotation(NamedTuple):
    """What tells the places of those that were tried."""

    marks: Marks
    key_of: Callable[[int], int]  # by offset


class Rota:
    """Offsets that take turns. One that is taken away stays in the heap until it comes first."""

    __slots__ = ("_heap", "_key_of", "_limit", "_marks", "members")

    def __init__(self, rotation: Rotation) -> None:
        self._marks, self._key_of = rotation
        self._heap: list[int] = []  # key and offset, packed in one integer
        self._limit = _OUTDATED_MAX
        self.members = BitMap64()

    def add(self, offset: int) -> None:
        self.members.add(offset)
        heappush(self._heap, self._key_of(offset) << _OFFSET_BITS | offset)
        if len(self._heap) > self._limit:
            self._tidy()

    def load(self, offsets: BitMap64) -> None:
        self.members |= offsets
        self._tidy()

    def first(self, count: int) -> list[Entry]:
        """The next ones, and their places."""
        heap, members = self._heap, self.members
        found: list[Entry] = []
        kept: list[int] = []
        while heap:
            entry = heap[0]
            offset, key = entry & _OFFSET_MASK, entry >> _OFFSET_BITS
            if offset in members and self._key_of(offset) == key and not (kept and kept[-1] == entry):
                found.append((2 * self._marks.end_at(key >> _COUNT_BITS) - 1, offset))
                if len(found) == count:
                    break
                kept.append(entry)
            heappop(heap)
        for entry in kept:
            heappush(heap, entry)
        return found

    def _tidy(self) -> None:
        key_of = self._key_of
        self._heap = [key_of(offset) << _OFFSET_BITS | offset for offset in self.members]
        heapify(self._heap)
        self._limit = 2 * len(self._heap) + _OUTDATED_MAX


class Line:
    """Messages of one priority that could be handed out."""

    __slots__ = ("_rotation", "fresh", "tried")

    def __init__(self, rotation: Rotation) -> None:
        self._rotation = rotation
        self.fresh = BitMap64()
        self.tried: Rota | None = None  # most queues have none

    def __bool__(self) -> bool:
        return bool(self.fresh) or (self.tried is not None and bool(self.tried.members))

    def __contains__(self, offset: int) -> bool:
        return offset in self.fresh or (self.tried is not None and offset in self.tried.members)

    def add(self, offset: int, *, is_tried: bool = False) -> None:
        if not is_tried:
            self.fresh.add(offset)
            return
        if self.tried is None:
            self.tried = Rota(self._rotation)
        self.tried.add(offset)

    def load(self, ready: BitMap64, tried: BitMap64) -> None:
        """Take up messages, of which some were tried."""
        self.fresh |= ready - tried
        if not ready.isdisjoint(tried):
            self.tried = Rota(self._rotation)
            self.tried.load(ready & tried)

    def discard(self, offset: int) -> None:
        self.fresh.discard(offset)
        if self.tried is not None:
            self.tried.members.discard(offset)

    def discard_below(self, offset: int) -> None:
        for offsets in self.sets():
            offsets.remove_range(0, offset)

    def sets(self) -> list[BitMap64]:
        """Of these, each message is in one."""
        return [self.fresh] if self.tried is None else [self.fresh, self.tried.members]

    def has_below(self, upto: int) -> bool:
        return any(offsets and offsets.min() < upto for offsets in self.sets())

    def first(self, count: int, upto: int) -> Iterator[int]:
        """Its messages below an offset, in the order in which they are to be handed out; at least so many."""
        if self.tried is None or not self.tried.members:
            return takewhile(upto.__gt__, self.fresh)
        if not self.fresh:
            return iter([offset for _, offset in self.tried.first(count) if offset < upto])
        fresh = ((2 * offset, offset) for offset in takewhile(upto.__gt__, self.fresh))
        return (offset for _, offset in merge(fresh, self.tried.first(count)) if offset < upto)
