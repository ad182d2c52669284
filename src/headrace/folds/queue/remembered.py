"""Ids that were seen, each with the offset of its message, until they are forgotten.

In order of arrival: the oldest are looked at first, so one whose end lies far ahead (a producer may write any
timestamp) keeps younger ones in memory longer than needed, and never makes one be forgotten early. At most `IDS_MAX`
are held, the oldest forgotten first: about 300 bytes each, reached only above 13,000 of them a second for five
minutes.

An id may be added undated: the entry in which it arrived says no time of the clock by which it is to be forgotten. The
next one that does dates it.
"""

from collections import OrderedDict

from pyroaring import BitMap64

IDS_MAX = 4_000_000
_UNDATED_MS = (1 << 63) - 1


class RememberedIds:
    """Ids, each until its moment."""

    __slots__ = ("_ids", "_ids_max", "_undated")

    def __init__(self, *, ids_max: int = IDS_MAX) -> None:
        self._ids: OrderedDict[bytes, tuple[int, int]] = OrderedDict()  # offset, and until when
        self._ids_max = ids_max
        self._undated: list[bytes] = []

    def __len__(self) -> int:
        return len(self._ids)

    def find(self, id_: bytes, now_ms: int) -> int | None:
        known = self._ids.get(id_)
        return known[0] if known is not None and known[1] > now_ms else None

    def add(self, id_: bytes, offset: int, until_ms: int = _UNDATED_MS) -> None:
        self._ids[id_] = (offset, until_ms)
        # Also if it is here with a moment that has passed: the order is that of the arrivals, whether or not somebody
        # has cleaned up in between.
        self._ids.move_to_end(id_)
        if until_ms == _UNDATED_MS:
            self._undated.append(id_)
        if len(self._ids) > self._ids_max:
            self._ids.popitem(last=False)

    def date(self, until_ms: int) -> None:
        """Give undated ids their moment."""
        for id_ in self._undated:
            if id_ in self._ids:
                self._ids[id_] = (self._ids[id_][0], until_ms)
        self._undated.clear()

    def forget(self, now_ms: int) -> None:
        while self._ids and next(iter(self._ids.values()))[1] <= now_ms:
            self._ids.popitem(last=False)

    def drop(self, offsets: BitMap64, *, below: int) -> None:
        """Forget the ids of these messages, of those below an offset."""
        gone = [id_ for id_, (offset, _) in self._ids.items() if offset < below and offset in offsets]
        for id_ in gone:
            del self._ids[id_]

    def dump(self) -> list[tuple[bytes, tuple[int, int]]]:
        """Ids with offset and moment, oldest first. Added again in this order, they make the same state."""
        return list(self._ids.items())
