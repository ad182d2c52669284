"""Ids that were seen, each with the offset of its message, until they are forgotten.

In order of arrival: the oldest are looked at first, so one whose end lies far ahead (a producer may write any
timestamp) keeps younger ones in memory longer than needed, and never makes one be forgotten early. At most `IDS_MAX`
are held, the oldest forgotten first: about 300 bytes each, reached only above 13,000 of them a second for five
minutes.

Millions may be forgotten at one moment, and whoever else is served by the same thread must not wait while each is
looked at. So a set of offsets says which ids are remembered: an entry whose offset has left it is dead, wherever it
still stands. Entries stand in chunks in the order of arrival, and to forget chunks, or what a purge drops, is a
difference of sets. What is dead is taken out of memory later, chunk by chunk, while others arrive and by whoever calls
`sweep`. When that is done makes no difference to any answer.

All of it is kept in a form that neither grows nor is looked through in one long step: many small tables in place of one
large, whose growth would move millions of entries, and none of them made of objects that the garbage collector visits.

An id may be added undated: the entry in which it arrived says no time of the clock by which it is to be forgotten. The
next one that does dates it.
"""

from array import array
from collections import deque
from collections.abc import Callable, Sequence
from itertools import chain

from pyroaring import BitMap64

IDS_MAX = 4_000_000
CHUNK_COUNT = 4096  # entries that are swept at a time
_TABLES = 256
_TABLE_SHIFT = 24  # a table places its own by the lower bits of the same hash
_UNDATED_MS = (1 << 63) - 1
_SWEPT_BY_AN_ARRIVING_CHUNK = 2

Entry = tuple[bytes, int, int]  # the id, its message's offset, and until when it is remembered
# What is known of an id in one number: until when, and in the lower 63 bits the offset.
_OFFSET_BITS = 63
_OFFSET_MASK = (1 << _OFFSET_BITS) - 1


class _Chunk:
    """Entries that arrived one after the other, as columns, to which more may be added until there are enough."""

    __slots__ = ("ids", "is_unswept", "members", "offsets", "until_max_ms", "untils_ms")

    def __init__(self) -> None:
        self.ids: Sequence[bytes] = []  # a tuple once the chunk is full, which the collector passes over
        self.offsets = array("q")
        self.untils_ms = array("q")
        self.members = BitMap64()  # the offsets as a set
        self.until_max_ms = -_UNDATED_MS
        self.is_unswept = False

    def entries(self) -> list[Entry]:
        return list(zip(self.ids, self.offsets, self.untils_ms, strict=True))


class RememberedIds:
    """Ids, each until its moment."""

    __slots__ = ("_at", "_chunk_count", "_chunks", "_count", "_ids_max", "_offsets", "_tables", "_undated", "_unswept")

    def __init__(self, *, ids_max: int = IDS_MAX, chunk_count: int = CHUNK_COUNT) -> None:
        self._ids_max = ids_max
        self._chunk_count = chunk_count
        # What is known of each id; dead ones are among them, until they are swept.
        self._tables: list[dict[bytes, int]] = [{} for _ in range(_TABLES)]
        self._offsets = BitMap64()  # of all that are remembered
        self._count = 0  # how many these are
        self._chunks: deque[_Chunk] = deque()
        self._at = 0  # before it, nothing of the first chunk is remembered
        self._undated: deque[tuple[bytes, int]] = deque()  # ids and offsets
        self._unswept: deque[_Chunk] = deque()

    def __len__(self) -> int:
        return self._count

    @property
    def held_count(self) -> int:
        """How many are in memory, dead ones too."""
        return sum(map(len, self._tables))

    def find(self, id_: bytes, now_ms: int) -> int | None:
        known = self._table(id_).get(id_)
        if known is None or known >> _OFFSET_BITS <= now_ms:
            return None
        offset = known & _OFFSET_MASK
        return offset if offset in self._offsets else None

    def add(self, id_: bytes, offset: int, until_ms: int = _UNDATED_MS) -> None:
        if until_ms > _UNDATED_MS:
            until_ms = _UNDATED_MS - 1  # a producer's clock may say anything; neither ever comes
        table = self._table(id_)
        known = table.get(id_)
        if known is not None and (before := known & _OFFSET_MASK) in self._offsets:
            # Also one whose moment has passed: the order is that of the arrivals, whether or not somebody has cleaned
            # up in between.
            self._let_go(before)
        table[id_] = until_ms << _OFFSET_BITS | offset
        self._offsets.add(offset)
        self._count += 1
        if until_ms == _UNDATED_MS:
            self._undated.append((id_, offset))
        else:
            self._append(id_, offset, until_ms)
        if self._count > self._ids_max:
            self._forget_oldest()

    def date(self, until_ms: int) -> None:
        """Give undated ids their moment."""
        undated, self._undated = self._undated, deque()
        for id_, offset in undated:
            if offset in self._offsets:
                self._table(id_)[id_] = until_ms << _OFFSET_BITS | offset
                self._append(id_, offset, until_ms)

    def forget(self, now_ms: int) -> None:
        while (chunk := self._oldest()) is not None:
            if chunk.until_max_ms <= now_ms:
                self._count -= self._offsets.intersection_cardinality(chunk.members)
                self._offsets -= chunk.members
                self._leave()
                continue
            if chunk.untils_ms[self._at] > now_ms:
                return
            self._let_go(chunk.offsets[self._at])

    def drop(self, offsets: BitMap64, *, below: int) -> None:
        """Forget the ids of these messages, of those below an offset."""
        gone = self._offsets & offsets
        if gone:
            gone.remove_range(below, max(gone.max() + 1, below))
        if not gone:
            return
        self._offsets -= gone
        self._count -= len(gone)
        self._undated = deque(one for one in self._undated if one[1] in self._offsets or self._swept(*one))
        for chunk in self._chunks:
            if not gone.isdisjoint(chunk.members):
                self._want_sweep(chunk)
        self._oldest()

    def sweep(self) -> bool:
        """Take some of what is dead out of memory. Whether there is more."""
        if self._unswept:
            self._sweep(self._unswept.popleft())
        return bool(self._unswept)

    def freeze(self) -> Callable[[], list[Entry]]:
        """Take down what a snapshot needs. What is returned lists it, in any thread and while this goes on.

        Entries, oldest first. Added again in this order, they make the same state.
        """
        offsets = self._offsets.copy()
        full = [(chunk.ids, chunk.offsets, chunk.untils_ms) for chunk in self._chunks]
        last = full.pop() if full else ([], array("q"), array("q"))
        rest = list(zip(*last, strict=True))  # more is added to the last one
        rest += [(id_, offset, _UNDATED_MS) for id_, offset in self._undated]

        def entries() -> list[Entry]:
            columns = (zip(*chunk, strict=True) for chunk in full)
            return [entry for entry in chain(chain.from_iterable(columns), rest) if entry[1] in offsets]

        return entries

    def _table(self, id_: bytes) -> dict[bytes, int]:
        return self._tables[hash(id_) >> _TABLE_SHIFT & _TABLES - 1]

    def _append(self, id_: bytes, offset: int, until_ms: int) -> None:
        chunk = self._chunks[-1] if self._chunks else None
        if chunk is None or isinstance(chunk.ids, tuple):
            chunk = _Chunk()
            self._chunks.append(chunk)
            for _ in range(_SWEPT_BY_AN_ARRIVING_CHUNK):
                self.sweep()
        assert isinstance(chunk.ids, list)
        chunk.ids.append(id_)
        chunk.offsets.append(offset)
        chunk.untils_ms.append(until_ms)
        chunk.members.add(offset)
        if until_ms > chunk.until_max_ms:
            chunk.until_max_ms = until_ms
        if len(chunk.ids) == self._chunk_count:
            chunk.ids = tuple(chunk.ids)

    def _let_go(self, offset: int) -> None:
        self._offsets.discard(offset)
        self._count -= 1

    def _forget_oldest(self) -> None:
        chunk = self._oldest()
        if chunk is not None:
            self._let_go(chunk.offsets[self._at])
            return
        while self._undated:
            id_, offset = self._undated.popleft()
            if offset in self._offsets:
                self._let_go(offset)
                self._swept(id_, offset)
                return

    def _oldest(self) -> _Chunk | None:
        """The chunk of the oldest dated id that is remembered, which stands at `_at`."""
        while self._chunks:
            chunk = self._chunks[0]
            if self._at or not self._offsets.isdisjoint(chunk.members):
                offsets, end = chunk.offsets, len(chunk.offsets)
                while self._at < end and offsets[self._at] not in self._offsets:
                    self._at += 1
                if self._at < end:
                    return chunk
            self._leave()
        return None

    def _leave(self) -> None:
        """The first chunk is done with."""
        self._want_sweep(self._chunks.popleft())
        self._at = 0

    def _want_sweep(self, chunk: _Chunk) -> None:
        if not chunk.is_unswept:
            chunk.is_unswept = True
            self._unswept.append(chunk)

    def _sweep(self, chunk: _Chunk) -> None:
        kept = [one for one in chunk.entries() if one[1] in self._offsets or self._swept(one[0], one[1])]
        # New columns, since a snapshot may hold the old ones.
        is_full = isinstance(chunk.ids, tuple)
        ids = [id_ for id_, _, _ in kept]
        chunk.ids = tuple(ids) if is_full else ids
        chunk.offsets = array("q", [offset for _, offset, _ in kept])
        chunk.untils_ms = array("q", [until_ms for _, _, until_ms in kept])
        chunk.members = chunk.members & self._offsets
        chunk.until_max_ms = max(chunk.untils_ms, default=-_UNDATED_MS)
        chunk.is_unswept = False
        if self._chunks and self._chunks[0] is chunk:
            self._at = 0

    def _swept(self, id_: bytes, offset: int) -> bool:
        """A dead id is taken out, unless it came again. Always false: it is not to be kept."""
        table = self._table(id_)
        if id_ in table and table[id_] & _OFFSET_MASK == offset:
            del table[id_]
        return False
