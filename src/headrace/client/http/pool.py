"""Connections that are kept for the next request, and never more of them than a bound."""

import asyncio
from collections.abc import Sequence

from headrace.client.deadline import Deadline
from headrace.client.errors import ClosedError, UnreachableError
from headrace.client.http.connection import Answer, HttpConnection, connect
from headrace.host.clock import Clock
from headrace.host.transport import Transport
from headrace.model.address import Address
from headrace.model.errors import HeadraceError

# Below a node's own limit for connections between requests, so that this end is the one that lets go.
IDLE_MS_MAX = 30_000


class Pool:
    """Connections to whichever of some addresses answers."""

    def __init__(
        self,
        addresses: Sequence[Address],
        *,
        clock: Clock,
        transport: Transport,
        connections_max: int,
        connect_timeout_ms: int,
        answer_bytes_max: int,
    ) -> None:
        self._addresses = list(addresses)  # the one that answered last is first
        self._clock = clock
        self._transport = transport
        self._connect_timeout_ms = connect_timeout_ms
        self._answer_bytes_max = answer_bytes_max
        self._connections_max = connections_max
        self._places = asyncio.Semaphore(connections_max)
        self._idle: list[HttpConnection] = []
        self._busy: set[HttpConnection] = set()
        self._is_closed = False

    async def ask(self, line: bytes, head: bytes, body: bytes, *, timeout_ms: float) -> Answer:
        """Send a request over a connection of its own for as long as that takes.

        The head is in two parts because the host between them is the connection's.
        """
        deadline = Deadline(self._clock, timeout_ms)
        await self._take_place(timeout_ms)
        try:
            connection = self._take() or await self._connect(deadline.left_ms)
            self._busy.add(connection)
            try:
                host = b"Host: %b\r\n" % str(connection.address).encode()
                answer = await connection.ask(line + host + head, body, timeout_ms=deadline.left_ms)
            finally:
                self._busy.discard(connection)
            if connection.is_open:
                self._idle.append(connection)
            else:
                connection.abort()
            return answer
        finally:
            self._places.release()

    async def probe(self) -> None:
        """Reach an address, so that a wrong one is known at once."""
        async with self._places:
            self._idle.append(self._take() or await self._connect(self._connect_timeout_ms))

    async def drop_idle(self) -> None:
        idle, self._idle = self._idle, []
        for connection in idle:
            await connection.close()

    async def close(self) -> None:
        """Let go of everything. Whoever still waits for an answer is told that the client is closed."""
        self._is_closed = True
        for connection in tuple(self._busy):
            await connection.close()
        await self.drop_idle()

    async def _take_place(self, timeout_ms: float) -> None:
        if not self._places.locked():
            await self._places.acquire()
            return
        try:
            async with asyncio.timeout(timeout_ms / 1000):
                await self._places.acquire()
        except TimeoutError:
            raise UnreachableError(
                f"no connection was free within {timeout_ms:.0f} ms: {self._connections_max} requests before this one "
                "are not answered"
            ) from None

    def _take(self) -> HttpConnection | None:
        """The connection that was used last: the others may then grow old and be let go."""
        oldest_ms = self._clock.monotonic_ms() - IDLE_MS_MAX
        while self._idle and (self._idle[0].idle_since_ms < oldest_ms or not self._idle[0].is_open):
            self._idle.pop(0).abort()
        while self._idle:
            connection = self._idle.pop()
            if connection.is_open:
                return connection
        return None

    async def _connect(self, timeout_ms: float) -> HttpConnection:
        if self._is_closed:
            raise ClosedError("the client is closed; make another one")
        errors: list[HeadraceError] = []
        for address in tuple(self._addresses):
            try:
                connection = await connect(
                    address,
                    transport=self._transport,
                    clock=self._clock,
                    timeout_ms=min(timeout_ms, self._connect_timeout_ms),
                    answer_bytes_max=self._answer_bytes_max,
                )
            except UnreachableError as error:
                errors.append(error)
                continue
            if self._is_closed:  # meanwhile
                connection.abort()
                raise ClosedError("the client is closed; make another one")
            if address != self._addresses[0]:
                self._addresses.remove(address)
                self._addresses.insert(0, address)
            return connection
        if len(errors) == 1:
            raise errors[0]
        tried = ", ".join(str(address) for address in self._addresses)
        raise UnreachableError(f"none of {tried} answers; the last said: {errors[-1]}")
