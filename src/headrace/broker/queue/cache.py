"""Messages that will soon be handed out, decoded and kept by bytes.

Receiving 10 of a batch of 1,000 must not decode 1,000 a hundred times, and a message that was just sent need not be
read at all. A message is here from its send or its first reading until it is handed out; what a backlog holds beyond
the bound is read again when its turn comes.

What came together is one run, and runs stand in a line, the oldest first, which is dropped first. A run whose messages
are all gone weighs nothing, and so no bound of bytes would ever drop it: one message at the front that nobody asks for
would keep every later run. So such runs are counted, and swept out wherever they stand once they are the larger part.
"""

from array import array
from collections import deque
from collections.abc import Iterable, Sequence

from headrace.model.message import Message
from headrace.wire.message import StoredMessage

# What a message costs beyond its bytes: the objects around it.
_OVERHEAD_BYTES = 400
# So many runs without messages are left alone, and beyond them as many as there are runs with some.
_EMPTY_COUNT = 64


class Run:
    """Messages that came together, and how many of them are still kept."""

    __slots__ = ("count", "offsets", "view")

    def __init__(self, view: "CacheView", offsets: Sequence[int]) -> None:
        self.view = view
        self.offsets = offsets
        self.count = 0


class MessageCache:
    """One for a node, shared by the queues; what came first goes first."""

    def __init__(self, *, bytes_max: int) -> None:
        self._bytes_max = bytes_max
        self._bytes = 0
        self._runs: deque[Run] = deque()
        self._empty_count = 0  # of the runs, those without messages

    @property
    def size_bytes(self) -> int:
        return self._bytes

    @property
    def run_count(self) -> int:
        return len(self._runs)

    @property
    def has_room(self) -> bool:
        """Whether something may be kept that nobody has asked for yet."""
        return self._bytes * 2 < self._bytes_max

    @property
    def room_bytes(self) -> int:
        """How much of that there is."""
        return self._bytes_max // 2 - self._bytes

    def view(self) -> "CacheView":
        """A partition's part of it."""
        return CacheView(self)

    def account(self, run: Run, size_bytes: int) -> None:
        """Note what a view keeps now, and have the oldest dropped if that is too much."""
        if not run.count:
            return
        self._runs.append(run)
        self._bytes += size_bytes
        while self._runs and (self._bytes > self._bytes_max or not self._runs[0].count):
            oldest = self._runs.popleft()
            if oldest.count:
                oldest.view.drop_run(oldest)
            self._empty_count -= 1
        if self._empty_count > _EMPTY_COUNT + len(self._runs) // 2:
            self._runs = deque(kept for kept in self._runs if kept.count)
            self._empty_count = 0

    def release(self, run: Run, size_bytes: int) -> None:
        """One message of a run is kept no longer."""
        self._bytes -= size_bytes
        run.count -= 1
        if not run.count:
            self._empty_count += 1


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

    def add_read(self, messages: Iterable[StoredMessage]) -> None:
        """Keep messages that were read together, as many as there is room for."""
        room_bytes = self._cache.room_bytes
        size_bytes = 0
        kept: list[StoredMessage] = []
        for message in messages:
            if size_bytes >= room_bytes:
                break
            if message.offset not in self._read and message.offset not in self._sent:
                kept.append(message)
                size_bytes += len(message.body) + _OVERHEAD_BYTES
        run = Run(self, array("q", [message.offset for message in kept]))
        run.count = len(kept)
        self._read.update((message.offset, (message, run)) for message in kept)
        self._cache.account(run, size_bytes)

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
            self._cache.release(sent[2], len(sent[0].body) + _OVERHEAD_BYTES)
            return
        read = self._read.pop(offset, None)
        if read is not None:
            self._cache.release(read[1], len(read[0].body) + _OVERHEAD_BYTES)

    def drop(self, offsets: Iterable[int]) -> None:
        for offset in offsets:
            self.take(offset)

    def drop_run(self, run: Run) -> None:
        """Keep what is left of a run no longer. What was read again since is of another run, and stays."""
        for offset in run.offsets:
            sent, read = self._sent.get(offset), self._read.get(offset)
            if (sent is not None and sent[2] is run) or (read is not None and read[1] is run):
                self.take(offset)

    def clear(self) -> None:
        self.drop([*self._sent, *self._read])
