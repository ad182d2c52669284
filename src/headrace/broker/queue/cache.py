"""Messages that will soon be handed out, decoded and kept by bytes.

Receiving 10 of a batch of 1,000 must not decode 1,000 a hundred times, and a message that was just sent need not be
read at all. A message is here from its send or its first reading until it is handed out; what a backlog holds beyond
the bound is read again when its turn comes.
"""

from collections import deque

from headrace.wire.message import StoredMessage

# What a message costs beyond its bytes: the objects around it.
_OVERHEAD_BYTES = 400


class MessageCache:
    """One for a node, shared by the queues; the message that came first goes first."""

    def __init__(self, *, bytes_max: int) -> None:
        self._bytes_max = bytes_max
        self._bytes = 0
        self._order: deque[tuple[dict[int, StoredMessage], int]] = deque()

    @property
    def size_bytes(self) -> int:
        return self._bytes

    def view(self) -> "CacheView":
        """A partition's part of it."""
        return CacheView(self)

    def add(self, messages: dict[int, StoredMessage], message: StoredMessage) -> None:
        if message.offset in messages:
            return
        messages[message.offset] = message
        self._order.append((messages, message.offset))
        self._bytes += _size(message)
        while self._bytes > self._bytes_max and self._order:
            oldest, offset = self._order.popleft()
            self.take(oldest, offset)
        if len(self._order) > 2 * self._bytes_max // _OVERHEAD_BYTES:
            self._order = deque((held, offset) for held, offset in self._order if offset in held)

    def take(self, messages: dict[int, StoredMessage], offset: int) -> StoredMessage | None:
        message = messages.pop(offset, None)
        if message is not None:
            self._bytes -= _size(message)
        return message

    @property
    def has_room(self) -> bool:
        """Whether something may be kept that nobody has asked for yet."""
        return self._bytes * 2 < self._bytes_max


class CacheView:
    """One partition's part of the cache."""

    def __init__(self, cache: MessageCache) -> None:
        self._cache = cache
        self._messages: dict[int, StoredMessage] = {}

    @property
    def has_room(self) -> bool:
        return self._cache.has_room

    def add(self, message: StoredMessage) -> None:
        self._cache.add(self._messages, message)

    def get(self, offset: int) -> StoredMessage | None:
        return self._messages.get(offset)

    def take(self, offset: int) -> StoredMessage | None:
        """The message, which is not kept any longer."""
        return self._cache.take(self._messages, offset)

    def clear(self) -> None:
        for offset in list(self._messages):
            self.take(offset)


def _size(message: StoredMessage) -> int:
    return len(message.body) + _OVERHEAD_BYTES
