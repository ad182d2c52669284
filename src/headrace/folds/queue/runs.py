"""Moments that come from the queue's default delay or time to live, for whole runs of messages.

Ten million messages under a queue's default must not cost an object each. So such a moment is rounded up to a
thousandth of the span (0.9 s for 15 minutes), and neighbours that share it are one run: about a thousand runs at a
time, whatever the traffic. What a message asks for itself is kept exactly, in `Deadlines`.
"""

from bisect import bisect_right
from collections.abc import Iterable, Iterator
from itertools import islice, takewhile

from pyroaring import BitMap64

from headrace.folds.queue.deadlines import Deadlines

_RUNS_FOR_A_SPAN = 1000


def rounded_up_ms(from_ms: int, span_ms: int) -> int:
    grain_ms = max(1, span_ms // _RUNS_FOR_A_SPAN)
    return -(-(from_ms + span_ms) // grain_ms) * grain_ms


class Runs:
    """Runs of offsets with one moment each, in order of offset, not overlapping."""

    __slots__ = ("_bases", "_ends", "_moments")

    def __init__(self) -> None:
        self._bases: list[int] = []
        self._ends: dict[int, int] = {}
        self._moments = Deadlines()

    def __bool__(self) -> bool:
        return bool(self._bases)

    def add(self, base: int, end: int, moment_ms: int, *, previous_end: int) -> None:
        """Take up messages that arrived. `previous_end`: where the message before them ended, whatever it was."""
        if self._bases:
            last = self._bases[-1]
            # Entries that are not messages may lie between the two.
            if self._ends[last] == previous_end and self._moments.values[last] == moment_ms:
                self._ends[last] = end
                return
        self._bases.append(base)
        self._ends[base] = end
        self._moments.put(base, moment_ms)

    def find_ms(self, offset: int) -> int | None:
        """The moment of the run that an offset is in."""
        index = bisect_right(self._bases, offset) - 1
        if index < 0 or offset >= self._ends[self._bases[index]]:
            return None
        return self._moments.values[self._bases[index]]

    def is_due(self, now_ms: int) -> bool:
        return self._moments.is_due(now_ms)

    def pop_due(self, now_ms: int, count_max: int, members: BitMap64) -> list[int]:
        """Up to so many members whose moment has come, run by run. They are kept no longer."""
        found: list[int] = []
        gone_count = 0
        while len(found) < count_max and self._moments.is_due(now_ms):
            for base, moment_ms in self._moments.pop_due(now_ms, 1):
                end = self._ends.pop(base)
                found += islice(offsets_in(members, base, end), count_max - len(found))
                if len(found) == count_max and found[-1] + 1 < end:
                    self._cut(base, found[-1] + 1, end, moment_ms)
                else:
                    gone_count += 1
        self._forget(gone_count)
        return found

    def _cut(self, base: int, rest: int, end: int, moment_ms: int) -> None:
        """Of this run there is a rest."""
        self._bases[bisect_right(self._bases, base) - 1] = rest
        self._ends[rest] = end
        self._moments.put(rest, moment_ms)

    def _forget(self, gone_count: int) -> None:
        """So many runs have no end any more. Most often they are the first ones."""
        if any(base in self._ends for base in islice(self._bases, gone_count)):
            self._bases = [base for base in self._bases if base in self._ends]
        else:
            del self._bases[:gone_count]

    def next_ms(self) -> int | None:
        return self._moments.next_ms()

    def pop_below(self, offset: int) -> None:
        """Forget what ends at or below an offset."""
        for base in [base for base in self._bases if self._ends[base] <= offset]:
            del self._ends[base]
            self._moments.pop(base)
        self._bases = [base for base in self._bases if base in self._ends]

    def dump(self) -> list[tuple[int, int, int]]:
        """Base, end and moment of each."""
        return [(base, self._ends[base], self._moments.values[base]) for base in self._bases]

    def load(self, runs: Iterable[tuple[int, int, int]]) -> None:
        for base, end, moment_ms in runs:
            self._bases.append(base)
            self._ends[base] = end
            self._moments.put(base, moment_ms)


def offsets_in(offsets: BitMap64, start: int, end: int) -> Iterator[int]:
    """Those of a set from a start, and below an end."""
    return takewhile(end.__gt__, offsets.iter_equal_or_larger(start))
