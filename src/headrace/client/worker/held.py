"""The messages that a worker holds: those that wait for a handler, those being handled, and whose lease is due.

Pure: no clock, no waiting. In an ordered queue a key has one handler at a time, and when a message of a key was not
acknowledged those behind it are given back, for they must not overtake it.
"""

from collections.abc import Iterable, Iterator

from headrace.client.queue.message import AsyncMessage


class Held:
    __slots__ = ("extend_at_ms", "message")

    def __init__(self, message: AsyncMessage, *, now_ms: int) -> None:
        self.message = message
        self.extend_at_ms = 0
        self.leased_again(now_ms)

    def leased_again(self, now_ms: int) -> None:
        """At half of the lease it is time to extend it."""
        self.extend_at_ms = now_ms + int(self.message.lease * 500)


class Holdings:
    def __init__(self, *, concurrency: int, ahead_max: int) -> None:
        self.is_ordered = False
        self._concurrency = concurrency
        self._ahead_max = ahead_max
        self._waiting: dict[Held, None] = {}  # in the order in which they came
        self._handled: set[Held] = set()
        self._settling: set[Held] = set()
        self._busy_keys: set[bytes] = set()

    def __len__(self) -> int:
        return len(self._waiting) + len(self._handled) + len(self._settling)

    def __iter__(self) -> Iterator[Held]:
        yield from self._waiting
        yield from self._handled

    @property
    def has_leases(self) -> bool:
        """Whether there are any to be kept: one whose outcome is being told has none."""
        return bool(self._waiting or self._handled)

    def take_no_more_than_handled(self) -> None:
        self._ahead_max = 0

    def room(self) -> int:
        """How many more to ask for: none while every handler is busy and half of what may wait does."""
        if len(self._handled) >= self._concurrency and len(self._waiting) > self._ahead_max // 2:
            return 0
        return max(0, self._concurrency + self._ahead_max - len(self))

    def add(self, messages: Iterable[AsyncMessage], *, now_ms: int) -> None:
        for message in messages:
            self._waiting[Held(message, now_ms=now_ms)] = None

    def start_next(self) -> Held | None:
        """The next message whose handler may begin now."""
        if len(self._handled) >= self._concurrency:
            return None
        for held in self._waiting:
            key = self._order_key(held)
            if key is None or key not in self._busy_keys:
                del self._waiting[held]
                self._handled.add(held)
                if key is not None:
                    self._busy_keys.add(key)
                return held
        return None

    def handled(self, held: Held) -> None:
        """The handler is done, its place free; what it made of the message is still to be told."""
        self._handled.discard(held)
        self._settling.add(held)

    def settled(self, held: Held, *, acknowledged: bool) -> list[Held]:
        """It is over with a message. Returns those that wait behind it and must go back.

        One that is given back for at once may have come again before we hear of it. It is behind nobody.
        """
        self._settling.discard(held)
        key = self._order_key(held)
        if key is None:
            return []
        self._busy_keys.discard(key)
        if acknowledged:
            return []
        behind = [
            other for other in self._waiting if other.message.key == key and other.message.offset != held.message.offset
        ]
        for other in behind:
            del self._waiting[other]
        return behind

    def take_waiting(self) -> list[Held]:
        """All that no handler has begun with."""
        waiting = list(self._waiting)
        self._waiting.clear()
        return waiting

    def lost(self, held: Held) -> bool:
        """Its lease is over. Returns whether no handler had it yet; it is then forgotten."""
        if held in self._waiting:
            del self._waiting[held]
            return True
        return False

    def _order_key(self, held: Held) -> bytes | None:
        return held.message.key if self.is_ordered else None
