"""The transactions of one partition: which are open and since where, which were aborted, how far readers may go.

A reader who wants committed messages only reads up to the *last stable offset*: below it every transaction is decided,
and the decision is committed. What it reads there may still be of an aborted transaction, so it is told which ones
reach into its part of the log: producer, first offset, and offset of the marker.

A transaction is open from its first batch to its marker. Offsets only grow, so the open one that began first is the
first of the dict, and aborted ones stand in order of their markers.
"""

from bisect import bisect_left
from collections import deque
from collections.abc import Collection, Iterable, Iterator
from operator import attrgetter
from typing import NamedTuple

from headrace.model.ids import Offset


class Aborted(NamedTuple):
    """An aborted transaction: nothing of this producer between the two offsets is to be shown."""

    producer_id: int
    first_offset: Offset
    last_offset: Offset  # of the marker


class _Ended(NamedTuple):
    first_offset: Offset
    marker_offset: Offset


class TransactionIndex:
    def __init__(self) -> None:
        self._open: dict[int, Offset] = {}  # producer id -> first offset
        self._aborted: list[Aborted] = []
        # Whose markers may not be committed yet: what they decide is not to be shown before.
        self._ended: deque[_Ended] = deque()

    # What happens.

    def began(self, producer_id: int, offset: Offset) -> None:
        self._open.setdefault(producer_id, offset)

    def ended(self, producer_id: int, marker_offset: Offset, *, is_commit: bool) -> None:
        first = self._open.pop(producer_id, None)
        if first is None:
            return
        self._ended.append(_Ended(first, marker_offset))
        if not is_commit:
            self._aborted.append(Aborted(producer_id, first, marker_offset))

    def forget_below(self, start: Offset) -> None:
        """The log begins here now, and with it what there is to say about it."""
        if self._aborted and self._aborted[0].last_offset < start:
            del self._aborted[: bisect_left(self._aborted, start, key=_last_offset)]

    def forget(self, marker_offsets: Collection[int]) -> None:
        """Compaction has left nothing of the transactions that ended at these offsets."""
        gone = frozenset(marker_offsets)
        self._aborted = [one for one in self._aborted if one.last_offset not in gone]

    # What may be asked.

    def stable_offset(self, high_watermark: Offset) -> Offset:
        """The last stable offset: the first one that is not decided, or whose decision is not committed."""
        ended = self._ended
        while ended and ended[0].marker_offset < high_watermark:
            ended.popleft()
        if not ended and not self._open:
            return high_watermark
        undecided = [*(one.first_offset for one in ended), self.first_open_offset]
        return min(high_watermark, *(offset for offset in undecided if offset is not None))

    @property
    def first_open_offset(self) -> Offset | None:
        return next(iter(self._open.values()), None)

    def aborted_in(self, start: Offset, end: Offset) -> list[Aborted]:
        """Those of which a reader of these offsets may meet something, in order of their first offsets."""
        at = bisect_left(self._aborted, start, key=_last_offset)
        return sorted(
            (one for one in self._aborted[at:] if one.first_offset < end), key=lambda one: (one.first_offset, one)
        )

    def open(self) -> Iterator[tuple[int, Offset]]:
        """Producer and first offset, the oldest first."""
        yield from self._open.items()

    def aborted(self) -> Iterable[Aborted]:
        return tuple(self._aborted)

    def __contains__(self, producer_id: int) -> bool:
        return producer_id in self._open

    def __len__(self) -> int:
        return len(self._open)

    def load(self, open_: Iterable[tuple[int, Offset]], aborted: Iterable[Aborted]) -> None:
        self._open = dict(sorted(open_, key=lambda one: one[1]))
        self._aborted = list(aborted)


_last_offset = attrgetter("last_offset")
