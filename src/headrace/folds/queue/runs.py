"""Moments that come from the queue's default delay or time to live, for whole runs of messages.

Ten million messages under a queue's default must not cost an object each. So such a moment is rounded up to a
thousandth of the span (0.9 s for 15 minutes), and neighbours that share it are one run: about a thousand runs at a
time, whatever the traffic. What a message asks for itself is kept exactly, in `Deadlines`.
"""

from bisect import bisect_right
from collections.abc import Iterable

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

    def pop_due(self, now_ms: int) -> list[tuple[int, int]]:
        """Runs whose moment has come: base and end."""
        found = [(base, self._ends.pop(base)) for base, _ in self._moments.pop_due(now_ms)]
        if found:
            self._bases = [base for base in self._bases if base in self._ends]
        return found

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
