"""The last offset of each key, in memory that is bounded: sixteen bytes of hash and eight of offset for a key.

Open addressing in two flat arrays. A dict would need ten times as much for the same, and the table's size is what
limits how much of a log one pass of compaction looks at. The hash is salted anew for every table, so that nobody can
choose keys that all fall on one place; two keys with the same 128 bits do not happen.
"""

from array import array
from hashlib import blake2b

HASH_SIZE = 16
ENTRY_BYTES = HASH_SIZE + 8

_LOAD_MAX = 0.7  # above it the walks to a free place become long
_COUNT_MIN = 16


class OffsetMap:
    def __init__(self, *, count_max: int, bytes_max: int, salt: bytes) -> None:
        """For at most so many keys, of which as many are taken as fit into the bytes."""
        slots = max(min(int(count_max / _LOAD_MAX) + 1, bytes_max // ENTRY_BYTES), _COUNT_MIN)
        self.capacity = int(slots * _LOAD_MAX)
        self._slots = slots
        self._salt = salt
        self._count = 0
        self._hashes = bytearray(slots * HASH_SIZE)
        self._offsets = array("q", [-1]) * slots

    def __len__(self) -> int:
        return self._count

    def has_room(self, count: int) -> bool:
        return self._count + count <= self.capacity

    def put(self, key: bytes, offset: int) -> None:
        """Note an offset of a key, of which the highest counts."""
        digest, slot = self._find(key)
        if self._offsets[slot] < 0:
            if self._count >= self._slots - 1:
                self._grow()
                digest, slot = self._find(key)
            self._hashes[slot * HASH_SIZE : (slot + 1) * HASH_SIZE] = digest
            self._count += 1
        self._offsets[slot] = max(self._offsets[slot], offset)

    def get(self, key: bytes) -> int:
        """The last offset of a key, -1 where there is none."""
        return self._offsets[self._find(key)[1]]

    def _find(self, key: bytes) -> tuple[bytes, int]:
        digest = blake2b(key, digest_size=HASH_SIZE, salt=self._salt).digest()
        return digest, self._place(digest)

    def _place(self, digest: bytes) -> int:
        """Where a hash is, or is to be."""
        hashes, offsets, slots = self._hashes, self._offsets, self._slots
        slot = int.from_bytes(digest[:8], "big") % slots
        while offsets[slot] >= 0 and hashes[slot * HASH_SIZE : (slot + 1) * HASH_SIZE] != digest:
            slot = slot + 1 if slot + 1 < slots else 0
        return slot

    def _grow(self) -> None:
        """Twice as large. Only for a single batch with more keys than the whole table may have."""
        hashes, offsets, slots = self._hashes, self._offsets, self._slots
        self._slots = slots * 2
        self._hashes = bytearray(self._slots * HASH_SIZE)
        self._offsets = array("q", [-1]) * self._slots
        for old in range(slots):
            if offsets[old] >= 0:
                digest = bytes(hashes[old * HASH_SIZE : (old + 1) * HASH_SIZE])
                slot = self._place(digest)
                self._hashes[slot * HASH_SIZE : (slot + 1) * HASH_SIZE] = digest
                self._offsets[slot] = offsets[old]
