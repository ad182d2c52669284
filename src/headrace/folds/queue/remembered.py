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

An id may be added undated: the entry in which it arrived says no time of the clock by which it is to be forgotten. The
next one that does dates it.
"""

from collections import deque
from collections.abc import Callable
from itertools import chain

from pyroaring import BitMap64

IDS_MAX = 4_000_000
CHUNK_COUNT = 4096  # entries that are swept at a time
_UNDATED_MS = (1 << 63) - 1
_SWEPT_BY_AN_ARRIVING_CHUNK = 2

Entry = tuple[bytes, int, int]  # the id, its message's offset, and until when it is remembered


class _Chunk:
    """Entries that arrived one after the other. A snapshot may hold their list, so it is replaced and not changed."""

    __slots__ = ("entries", "is_unswept", "offsets", "until_max_ms")

    def __init__(self) -> None:
        self.entries: list[Entry] = []
        self.offsets = BitMap64()
        self.until_max_ms = -_UNDATED_MS
        self.is_unswept = False


class RememberedIds:
    """Ids, each until its moment."""

    __slots__ = ("_at", "_chunk_count", "_chunks", "_count", "_ids_max", "_known", "_offsets", "_undated", "_unswept")

    def __init__(self, *, ids_max: int = IDS_MAX, chunk_count: int = CHUNK_COUNT) -> None:
        self._ids_max = ids_max
        self._chunk_count = chunk_count
        self._known: dict[bytes, Entry] = {}  # dead entries among them, until they are swept
        self._offsets = BitMap64()  # of all that are remembered
        self._count = 0  # how many these are
        self._chunks: deque[_Chunk] = deque()
        self._at = 0  # before it, nothing of the first chunk is remembered
        self._undated: deque[Entry] = deque()
        self._unswept: deque[_Chunk] = deque()

    def __len__(self) -> int:
        return self._count

    def find(self, id_: bytes, now_ms: int) -> int | None:
        known = self._known.get(id_)
        return known[1] if known is not None and known[2] > now_ms and known[1] in self._offsets else None

    def add(self, id_: bytes, offset: int, until_ms: int = _UNDATED_MS) -> None:
        known = self._known.get(id_)
        if known is not None and known[1] in self._offsets:
            # Also one whose moment has passed: the order is that of the arrivals, whether or not somebody has cleaned
            # up in between.
            self._let_go(known[1])
        entry = id_, offset, until_ms
        self._known[id_] = entry
        self._offsets.add(offset)
        self._count += 1
        if until_ms == _UNDATED_MS:
            self._undated.append(entry)
        else:
            self._append(entry)
        if self._count > self._ids_max:
            self._forget_oldest()

    def date(self, until_ms: int) -> None:
        """Give undated ids their moment."""
        undated, self._undated = self._undated, deque()
        for id_, offset, _ in undated:
            if offset in self._offsets:
                self._known[id_] = entry = id_, offset, until_ms
                self._append(entry)

    def forget(self, now_ms: int) -> None:
        while (chunk := self._oldest()) is not None:
            if chunk.until_max_ms <= now_ms:
                self._count -= self._offsets.intersection_cardinality(chunk.offsets)
                self._offsets -= chunk.offsets
                self._leave()
                continue
            _, offset, until_ms = chunk.entries[self._at]
            if until_ms > now_ms:
                return
            self._let_go(offset)

    def drop(self, offsets: BitMap64, *, below: int) -> None:
        """Forget the ids of these messages, of those below an offset."""
        gone = self._offsets & offsets
        if gone:
            gone.remove_range(below, max(gone.max() + 1, below))
        if not gone:
            return
        self._offsets -= gone
        self._count -= len(gone)
        self._undated = deque(entry for entry in self._undated if entry[1] in self._offsets or self._swept(entry))
        for chunk in self._chunks:
            if not gone.isdisjoint(chunk.offsets):
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
        chunks = [chunk.entries for chunk in self._chunks]
        if chunks:
            chunks[-1] = chunks[-1].copy()  # more is added to this one
        chunks.append(list(self._undated))
        return lambda: [entry for entry in chain.from_iterable(chunks) if entry[1] in offsets]

    def _append(self, entry: Entry) -> None:
        if not self._chunks or len(self._chunks[-1].entries) >= self._chunk_count:
            self._chunks.append(_Chunk())
            for _ in range(_SWEPT_BY_AN_ARRIVING_CHUNK):
                self.sweep()
        chunk = self._chunks[-1]
        chunk.entries.append(entry)
        chunk.offsets.add(entry[1])
        if entry[2] > chunk.until_max_ms:
            chunk.until_max_ms = entry[2]

    def _let_go(self, offset: int) -> None:
        self._offsets.discard(offset)
        self._count -= 1

    def _forget_oldest(self) -> None:
        chunk = self._oldest()
        if chunk is not None:
            self._let_go(chunk.entries[self._at][1])
            return
        while self._undated:
            entry = self._undated.popleft()
            if entry[1] in self._offsets:
                self._let_go(entry[1])
                self._swept(entry)
                return

    def _oldest(self) -> _Chunk | None:
        """The chunk of the oldest dated id that is remembered, which stands at `_at`."""
        while self._chunks:
            chunk = self._chunks[0]
            if self._at or not self._offsets.isdisjoint(chunk.offsets):
                entries, end = chunk.entries, len(chunk.entries)
                while self._at < end and entries[self._at][1] not in self._offsets:
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
        kept = [entry for entry in chunk.entries if entry[1] in self._offsets or self._swept(entry)]
        chunk.is_unswept = False
        chunk.entries = kept
        chunk.offsets &= self._offsets
        chunk.until_max_ms = max((entry[2] for entry in kept), default=-_UNDATED_MS)
        if self._chunks and self._chunks[0] is chunk:
            self._at = 0

    def _swept(self, entry: Entry) -> bool:
        """A dead entry is taken out, unless its id came again. Always false: it is not to be kept."""
        if self._known.get(entry[0]) is entry:
            del self._known[entry[0]]
        return False
