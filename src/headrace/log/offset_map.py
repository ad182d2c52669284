"""The last offset of each key, in memory that is bounded: sixteen bytes of hash and eight of offset for a key.

Open addressing in flat arrays. A dict would need ten times as much for the same, and the table's size is what
limits how much of a log one pass of compaction looks at. The hash is salted anew for every table, so that nobody can
choose keys that all fall on one place; two keys with the same 128 bits do not happen.
"""

import struct
from array import array
from hashlib import blake2b

HASH_SIZE = 16
ENTRY_BYTES = HASH_SIZE + 8

_HALVES = struct.Struct(">QQ")
_LOAD_MAX = 0.7  # above it the walks to a free place become long
_COUNT_MIN = 16


class OffsetMap:
    def __init__(self, *, count_max: int, bytes_max: int, salt: bytes) -> None:
        """For at most so many keys, of which as many are taken as fit into the bytes."""
        slots = max(min(int(count_max / _LOAD_MAX) + 1, bytes_max // ENTRY_BYTES), _COUNT_MIN)
        self.capacity = int(slots * _LOAD_MAX)
        self._salt = salt
        self._count = 0
        self._clear(slots)

    def __len__(self) -> int:
        return self._count

    def has_room(self, count: int) -> bool:
        return self._count + count <= self.capacity

    def put(self, key: bytes, offset: int) -> None:
        """Note an offset of a key, of which the highest counts."""
        first, second = self._hash(key)
        slot = self._place(first, second)
        if self._offsets[slot] < 0:
            if self._count >= self._slots - 1:
                self._grow()
                slot = self._place(first, second)
            self._firsts[slot], self._seconds[slot] = first, second
            self._count += 1
        self._offsets[slot] = max(self._offsets[slot], offset)

    def get(self, key: bytes) -> int:
        """The last offset of a key, -1 where there is none."""
        return self._offsets[self._place(*self._hash(key))]

    def _hash(self, key: bytes) -> tuple[int, int]:
        first, second = _HALVES.unpack(blake2b(key, digest_size=HASH_SIZE, salt=self._salt).digest())
        return first, second

    def _place(self, first: int, second: int) -> int:
        """Where a hash is, or is to be."""
        firsts, seconds, offsets = self._firsts, self._seconds, self._offsets
        slot = first % self._slots
        while offsets[slot] >= 0 and (firsts[slot] != first or seconds[slot] != second):
            slot = slot + 1 if slot + 1 < self._slots else 0
        return slot

    def _clear(self, slots: int) -> None:
        self._slots = slots
        # The two halves of each key's hash, and its offset; -1 where there is none.
        self._firsts, self._seconds = array("Q", bytes(slots * 8)), array("Q", bytes(slots * 8))
        self._offsets = array("q", [-1]) * slots

    def _grow(self) -> None:
        """Twice as large. Only for a single batch with more keys than the whole table may have."""
        old = [entry for entry in zip(self._firsts, self._seconds, self._offsets, strict=True) if entry[2] >= 0]
        self._clear(self._slots * 2)
        for first, second, offset in old:
            slot = self._place(first, second)
            self._firsts[slot], self._seconds[slot], self._offsets[slot] = first, second, offset
