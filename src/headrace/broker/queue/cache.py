"""Messages that will soon be handed out, decoded and kept by bytes.

Receiving 10 of a batch of 1,000 must not decode 1,000 a hundred times, and a message that was just sent need not be
read at all. A message is here from its send or its first reading until it is handed out; what a backlog holds beyond
the bound is read again when its turn comes.
"""

from collections import deque
from collections.abc import Iterable, Sequence

from headrace.model.message import Message
from headrace.wire.message import StoredMessage

# What a message costs beyond its bytes: the objects around it.
_OVERHEAD_BYTES = 400


class Run:
    """Messages that came together, and how many of them are still kept."""

    __slots__ = ("count", "offsets", "view")

    def __init__(self, view: "CacheView", offsets: range) -> None:
        self.view = view
        self.offsets = offsets
        self.count = 0


class MessageCache:
    """One for a node, shared by the queues; what came first goes first."""

    def __init__(self, *, bytes_max: int) -> None:
        self._bytes_max = bytes_max
        self._bytes = 0
        self._runs: deque[Run] = deque()

    @property
    def size_bytes(self) -> int:
        return self._bytes

    @property
    def has_room(self) -> bool:
        """Whether something may be kept that nobody has asked for yet."""
        return self._bytes * 2 < self._bytes_max

    def view(self) -> "CacheView":
        """A partition's part of it."""
        return CacheView(self)

    def account(self, run: Run, size_bytes: int) -> None:
        """Note what a view keeps now, and have the oldest dropped if that is too much."""
        self._runs.append(run)
        self._bytes += size_bytes
        while self._runs and (self._bytes > self._bytes_max or not self._runs[0].count):
            oldest = self._runs.popleft()
            if oldest.count:
                oldest.view.drop(oldest.offsets)

    def release(self, size_bytes: int) -> None:
        self._bytes -= size_bytes


class CacheView:
    """One partition's part of the cache: messages as they were sent, or as they were read."""

    def __init__(self, cache: MessageCache) -> None:
        self._cache = cache
        self._sent: dict[int, tuple[Message, int, Run]] = {}
        self._read: dict[int, tuple[StoredMessage, Run]] = {}

    @property
    def has_room(self) -> bool:
        return self._cache.has_room

    def add_sent(self, base: int, messages: Sequence[Message], sent_ms: int) -> None:
        """Keep messages that were just written; those with headers are read when their turn comes."""
        kept, size_bytes = self._sent, 0
        run = Run(self, range(base, base + len(messages)))
        for offset, message in enumerate(messages, base):
            if not message[2]:
                kept[offset] = message, sent_ms, run
                size_bytes += len(message[0]) + _OVERHEAD_BYTES
                run.count += 1
        self._cache.account(run, size_bytes)

    def add(self, message: StoredMessage) -> None:
        """Keep a message that was read."""
        offset = message.offset
        if offset not in self._read and offset not in self._sent:
            run = Run(self, range(offset, offset + 1))
            run.count = 1
            self._read[offset] = message, run
            self._cache.account(run, len(message.body) + _OVERHEAD_BYTES)

    def get(self, offset: int) -> StoredMessage | None:
        found = self._sent.get(offset)
        if found is None:
            read = self._read.get(offset)
            return None if read is None else read[0]
        (body, key, _, priority, delay_ms, ttl_ms, deduplication_id), sent_ms, _ = found
        return StoredMessage(offset, sent_ms, key, body, (), priority, delay_ms, ttl_ms, deduplication_id)

    def take(self, offset: int) -> None:
        """Keep a message no longer."""
        sent = self._sent.pop(offset, None)
        if sent is not None:
            sent[2].count -= 1
            self._cache.release(len(sent[0].body) + _OVERHEAD_BYTES)
            return
        read = self._read.pop(offset, None)
        if read is not None:
            read[1].count -= 1
            self._cache.release(len(read[0].body) + _OVERHEAD_BYTES)

    def drop(self, offsets: Iterable[int]) -> None:
        for offset in offsets:
            self.take(offset)

    def clear(self) -> None:
        self.drop([*self._sent, *self._read])
