"""The node's memory for answers: one number that every connection of every listener shares.

Theory of operation. A request whose answer may be large asks for a `Share` before it starts, of about as many bytes as
it will answer. It asks once nothing is ahead of it on its connection, so a connection has at most one request in line.
There are two lines, for answers of modest size and for larger ones; each is served in turn, and a quarter of the memory
is for the first alone, so that a few readers of large answers do not hold up everybody else. Small answers
(`SMALL_BYTES`) never ask. The share is given back when the answer is written. What the client then leaves untaken is
charged by force (`Untaken`), because it is in memory whatever the number says.

A request that asks for more than there is in all is granted once nothing is held, so it is served alone. One that has
waited for `wait_ms_max` is refused. While requests wait, a connection that holds bytes and does not take a twentieth of
them in `stalled_ms_max` is disconnected.
"""

import asyncio
from collections.abc import Callable

import msgspec

# Answers up to this size need no share of their own.
SMALL_BYTES = 16 * 1024


class AnswersConfig(msgspec.Struct, frozen=True, kw_only=True):
    """Answers that clients have not taken, over all connections."""

    bytes_max: int = 256 * 1024 * 1024
    # How long a request may wait for its share before it is refused.
    wait_ms_max: int = 20_000
    # While requests wait, the time in which a connection has to take a twentieth of the bytes that it holds.
    stalled_ms_max: int = 3_000


class AnswerBudget:
    def __init__(self, config: AnswersConfig | None = None) -> None:
        self.config = config or AnswersConfig()
        self.used_bytes = 0
        self._bytes_max = self.config.bytes_max
        self._modest_bytes_max = self.config.bytes_max // 64
        self._large_bytes_max = self.config.bytes_max - self.config.bytes_max // 4
        # In order of arrival; dicts, so that a share can leave early.
        self._modest: dict[Share, None] = {}
        self._large: dict[Share, None] = {}
        self._granting = False
        # For the metrics.
        self.waited_count = 0
        self.refused_count = 0

    @property
    def waiting_count(self) -> int:
        return len(self._modest) + len(self._large)

    @property
    def is_wanted(self) -> bool:
        """Whether requests wait for bytes that others hold."""
        return bool(self._modest or self._large)

    @property
    def free_bytes(self) -> int:
        return 0 if self._modest else max(self.config.bytes_max - self.used_bytes, 0)

    def has_room(self, size: int) -> bool:
        """Whether so many bytes are free and no request waits for any."""
        if self._modest or self._large:
            return False
        return self.used_bytes + size <= (self._bytes_max if size <= self._modest_bytes_max else self._large_bytes_max)

    def charge(self, size: int) -> None:
        """Take bytes that are in memory already, or give some back."""
        self.used_bytes += size
        assert self.used_bytes >= 0, "more bytes given back than taken"
        if size < 0 and self.is_wanted:
            self._grant()

    def sweep(self, now_ms: int) -> None:
        """Refuse the requests that have waited too long. Called again and again, also while nothing is given back."""
        for line in (self._modest, self._large):
            for share in list(line):
                if share.since_ms is None:
                    share.since_ms = now_ms
                elif now_ms - share.since_ms >= self.config.wait_ms_max and line.pop(share, self) is None:
                    self.refused_count += 1
                    share.decide(granted=False)
        self._grant()

    def enter(self, share: "Share") -> None:
        share.since_ms = None
        line = self._line(share.wanted)
        line[share] = None
        self._grant()
        if share in line:
            self.waited_count += 1

    def leave(self, share: "Share") -> None:
        if self._line(share.wanted).pop(share, self) is None:
            self._grant()

    def _grant(self) -> None:
        """Serve the lines from their fronts, as far as the bytes go."""
        if self._granting:
            return
        self._granting = True
        try:
            while self._grant_first(self._modest) or self._grant_first(self._large):
                pass
        finally:
            self._granting = False

    def _grant_first(self, line: "dict[Share, None]") -> bool:
        share = next(iter(line), None)
        if share is None:
            return False
        bytes_max = self._bytes_max if line is self._modest else self._large_bytes_max
        if self.used_bytes and self.used_bytes + share.wanted > bytes_max:
            return False
        del line[share]
        self.used_bytes += share.wanted
        share.decide(granted=True)
        return True

    def _line(self, size: int) -> "dict[Share, None]":
        return self._modest if size <= self._modest_bytes_max else self._large


# A struct, because one is made for every fetch.
class Share(msgspec.Struct, eq=False):
    """What one request holds of the budget, or waits for."""

    _budget: AnswerBudget
    _is_next: bool = False  # nothing is ahead of its request on its connection
    _then: Callable[[bool], None] | None = None
    held: int = 0
    wanted: int = 0
    since_ms: int | None = None  # in the line; None until the next sweep

    @property
    def is_waiting(self) -> bool:
        """Whether its request has asked and was not told yet."""
        return self._then is not None

    def ask(self, size: int, then: Callable[[bool], None]) -> None:
        """Call `then` with True once so many bytes are held, or with False if that takes too long."""
        assert self._then is None, "a share is asked for once at a time"
        self.wanted = max(size - self.held, 0)
        self._then = then
        if self._is_next:
            self._budget.enter(self)

    async def take(self, size: int) -> bool:
        """The same for a coroutine."""
        if size <= max(self.held, SMALL_BYTES):
            return True
        told: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        self.ask(size, lambda granted: None if told.done() else told.set_result(granted))
        return await told

    def next(self) -> None:
        """Nothing is ahead of its request any more."""
        if not self._is_next:
            self._is_next = True
            if self._then is not None:
                self._budget.enter(self)

    def decide(self, *, granted: bool) -> None:
        then, self._then = self._then, None
        if granted:
            self.held += self.wanted
        assert then is not None
        then(granted)

    def hold(self, size: int) -> None:
        """Hold so many bytes, whether or not there is room for them."""
        change, self.held = size - self.held, size
        if change:
            self._budget.charge(change)

    def refuse(self) -> None:
        """Say now that there was no memory, if its request waits."""
        if self._then is not None:
            self._budget.leave(self)
            self.decide(granted=False)

    def give(self) -> None:
        """Hold nothing and wait for nothing."""
        if self._then is not None:
            self._then = None
            self._budget.leave(self)
        if self.held:
            self.hold(0)


class Untaken:
    """What one connection keeps in memory because its client has not taken it, charged to the budget."""

    __slots__ = ("_budget", "_charged", "_paused")

    def __init__(self, budget: AnswerBudget) -> None:
        self._budget = budget
        self._charged = 0
        self._paused = 0  # since the transport paused; its buffers live until the last byte is taken

    def pause(self, size: int) -> None:
        self._paused = size
        self._charge(size)

    def resume(self) -> None:
        """All is taken."""
        self._paused = 0
        self._charge(0)

    def add(self, size: int) -> None:
        """More was written while the transport is paused."""
        self._paused += size

    def progress_bytes_min(self, usual: int) -> int:
        """How much the client has to take in the time for it."""
        return max(usual, self._charged // 20) if self._budget.is_wanted else usual

    def settle(self, size: int, waiting: int) -> None:
        """Charge bytes that were written, and those of answers that wait for the ones ahead of them."""
        self._charge(max(size, self._paused) + waiting)

    def _charge(self, size: int) -> None:
        if size != self._charged:
            change, self._charged = size - self._charged, size
            self._budget.charge(change)
