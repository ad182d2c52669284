"""Calls with a deadline, repeated where that helps and cannot do harm.

An error says one of two things. *No*: nothing was done (nobody could be reached, the node is overloaded), so the call
is repeated whatever it does. *Maybe*: the connection broke or time ran out, so it is repeated only where its sender
says that a second time changes nothing. Pauses between attempts grow and are jittered; when the deadline comes, the
last error is raised, not a bare timeout.
"""

import asyncio

from headrace.client.deadline import Deadline
from headrace.client.errors import UnreachableError
from headrace.client.http.connection import Answer
from headrace.client.http.pool import Pool
from headrace.client.http.problem import refusal
from headrace.client.outage import Outage
from headrace.client.settings import QueueClientConfig
from headrace.host.clock import Clock
from headrace.host.rand import Rand
from headrace.model.errors import (
    DiskFullError,
    HeadraceError,
    InvalidRequestError,
    QueueFullError,
    StoreUnavailableError,
    TimedOutError,
    TooManyLeasedError,
)

JSON = "application/json"
MSGPACK = "application/msgpack"

_SUCCESS = range(200, 300)
# What a node may need for its answer beyond the wait that was asked for.
_ANSWER_SLACK_MS = 10_000
# Retriable, and yet no use of a retry within a call's time: somebody has to make room first.
_NEEDS_ROOM = (QueueFullError, TooManyLeasedError, DiskFullError)


def is_maybe(error: HeadraceError) -> bool:
    """Whether the request may have been carried out all the same."""
    return isinstance(error, TimedOutError | StoreUnavailableError)


def is_worth_repeating(error: HeadraceError, *, is_repeatable: bool) -> bool:
    if not error.retriable or isinstance(error, _NEEDS_ROOM):
        return False
    return is_repeatable or not is_maybe(error)


class Pauses:
    """How long to rest before each next attempt."""

    def __init__(self, config: QueueClientConfig, rand: Rand) -> None:
        self._next_ms = float(config.retry_pause_ms)
        self._max_ms = config.retry_pause_ms_max
        self._rand = rand

    def next_ms(self, *, at_least_ms: float = 0) -> float:
        pause_ms = max(at_least_ms, self._next_ms * self._rand.uniform(0.5, 1.5))
        self._next_ms = min(self._next_ms * 2, self._max_ms)
        return pause_ms


class Caller:
    """Long polls have connections of their own, so that however many wait, a send finds a way through."""

    def __init__(self, quick: Pool, waiting: Pool, config: QueueClientConfig, *, clock: Clock, rand: Rand) -> None:
        self.config = config
        self.clock = clock
        self.rand = rand
        self._quick = quick
        self._waiting = waiting
        self._outage = Outage()
        self._loop: asyncio.AbstractEventLoop | None = None

    def check_loop(self) -> None:
        """Connections belong to the loop that made them; in another one an answer would never be heard of."""
        loop = asyncio.get_running_loop()
        if self._loop is None:
            self._loop = loop
        elif loop is not self._loop:
            raise InvalidRequestError(
                "this AsyncClient belongs to another event loop, that of its first call; make one in each loop, or "
                "use Client, which threads may share"
            )

    async def connect(self) -> None:
        self.check_loop()
        await self._quick.probe()

    async def drop_idle(self) -> None:
        self.check_loop()
        await self._quick.drop_idle()
        await self._waiting.drop_idle()

    async def close(self) -> None:
        await self._quick.close()
        await self._waiting.close()

    async def call(
        self,
        method: str,
        target: str,
        body: bytes = b"",
        *,
        form: str = JSON,
        is_repeatable: bool = True,
        wait_ms: int = 0,
        deadline: Deadline | None = None,
    ) -> Answer:
        """Carry out a request; any answer but success is raised as an error of the tree."""
        self.check_loop()
        line = f"{method} {target} HTTP/1.1\r\n".encode("ascii")
        head = b"Accept: %b\r\n" % form.encode()
        if body or method != "GET":
            head += b"Content-Type: %b\r\nContent-Length: %d\r\n" % (form.encode(), len(body))
        head += b"\r\n"
        if deadline is None:
            deadline = Deadline(self.clock, self.config.deadline_ms + wait_ms)
        elif deadline.is_past:
            raise UnreachableError("the node answered nothing for so long that this was not even tried; retry later")
        pauses = Pauses(self.config, self.rand)
        in_doubt = False
        while True:
            asked_ms = 0.0
            try:
                answer = await self._attempt(line, head, body, wait_ms, deadline)
                if self._outage.is_on:
                    self._outage.end()
                if answer.status in _SUCCESS:
                    return answer._replace(follows_doubt=True) if in_doubt else answer
                asked_ms = answer.retry_after_s * 1000
                raise refusal(answer)
            except HeadraceError as error:
                pause_ms = pauses.next_ms(at_least_ms=asked_ms)
                repeat = self.config.retries and is_worth_repeating(error, is_repeatable=is_repeatable)
                if not repeat or pause_ms >= deadline.left_ms:
                    raise
                self._outage.note(error)
                in_doubt = in_doubt or is_maybe(error)
            await self.clock.sleep(pause_ms)

    async def _attempt(self, line: bytes, head: bytes, body: bytes, wait_ms: int, deadline: Deadline) -> Answer:
        if wait_ms:
            timeout_ms = min(deadline.left_ms, wait_ms + _ANSWER_SLACK_MS)
            return await self._waiting.ask(line, head, body, timeout_ms=timeout_ms)
        return await self._quick.ask(line, head, body, timeout_ms=deadline.left_ms)
