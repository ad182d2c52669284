"""One connection to an HTTP listener: a request out, its answer in, then the next.

Requests are not pipelined: when a connection breaks, exactly one request is in doubt. A caller that goes away while its
request is unanswered takes the connection with it, because what would come next belongs to nobody; the node sees the
end and gives back what it had leased for that caller.
"""

import asyncio
from typing import NamedTuple, cast

import httptools

from headrace.client.errors import ConnectionLostError, UnreachableError
from headrace.host.clock import Clock
from headrace.host.transport import Transport
from headrace.model.address import Address
from headrace.model.errors import TimedOutError

_INTERIM_STATUSES = 200  # below it: an interim answer, and the real one follows


class Answer(NamedTuple):
    status: int
    content_type: str
    retry_after_s: float
    body: bytes
    follows_doubt: bool = False  # an earlier attempt may have been carried out


class HttpConnection(asyncio.Protocol):
    """Made by `connect`; a closed one is never reopened."""

    def __init__(self, address: Address, *, clock: Clock, answer_bytes_max: int) -> None:
        self.address = address
        self.idle_since_ms = clock.monotonic_ms()
        self._clock = clock
        self._answer_bytes_max = answer_bytes_max
        self._transport: asyncio.Transport | None = None
        self._lost: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiter: asyncio.Future[Answer] | None = None
        self._keeps_alive = True
        self._parser = httptools.HttpResponseParser(self)
        self._begin_answer()

    @property
    def is_open(self) -> bool:
        return self._transport is not None and not self._transport.is_closing() and self._keeps_alive

    async def ask(self, head: bytes, body: bytes, *, timeout_ms: float) -> Answer:
        """Send a request and wait for its answer, at most as long as the timeout says."""
        assert self._waiter is None, "one request at a time"
        if not self.is_open:
            raise ConnectionLostError(f"the connection to {self.address} is closed")
        assert self._transport is not None
        waiter: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        self._waiter = waiter
        timer = self._clock.call_later(timeout_ms, lambda: self._give_up(timeout_ms))
        if body:
            self._transport.writelines((head, body))
        else:
            # Not as an empty piece: asyncio of Python 3.13.0 keeps that for ever, and the connection never closes.
            self._transport.write(head)
        try:
            return await waiter
        except BaseException:
            self.abort()
            raise
        finally:
            timer.cancel()
            self.idle_since_ms = self._clock.monotonic_ms()

    def abort(self) -> None:
        if self._transport is not None:
            self._transport.abort()

    async def close(self) -> None:
        if self._transport is not None:
            self._transport.close()
            await self._lost

    def _give_up(self, timeout_ms: float) -> None:
        self._fail(TimedOutError(f"{self.address} did not answer within {timeout_ms:.0f} ms"))

    def _fail(self, error: Exception) -> None:
        waiter, self._waiter = self._waiter, None
        if waiter is not None and not waiter.done():
            waiter.set_exception(error)

    # Callbacks of the transport.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # Not an isinstance check: uvloop's transports have the methods and not the class.
        self._transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        if self._waiter is None:
            # Nobody asked. A node that is about to close says so in this way, and nothing of it concerns a request.
            self.abort()
            return
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserError as error:
            self._fail(
                ConnectionLostError(
                    f"{self.address} answered with something that is no HTTP ({error}); is it the node's HTTP address?"
                )
            )
            self.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        lost = f"{self.address} closed the connection before it answered; the request may have been carried out"
        self._fail(ConnectionLostError(lost))
        if not self._lost.done():
            self._lost.set_result(None)

    # Callbacks of the parser.

    def _begin_answer(self) -> None:
        self._content_type = ""
        self._retry_after_s = 0.0
        self._body: list[bytes] = []
        self._body_bytes = 0

    def on_header(self, name: bytes, value: bytes) -> None:
        match name.lower():
            case b"content-type":
                self._content_type = value.decode("latin-1").partition(";")[0].strip().lower()
            case b"retry-after" if value.isdigit():
                self._retry_after_s = float(value)

    def on_body(self, data: bytes) -> None:
        self._body_bytes += len(data)
        if self._body_bytes > self._answer_bytes_max:
            self._fail(
                ConnectionLostError(
                    f"{self.address} answers with more than {self._answer_bytes_max} bytes; ask for fewer messages"
                )
            )
            self.abort()
            return
        self._body.append(data)

    def on_message_complete(self) -> None:
        status = self._parser.get_status_code()
        if status < _INTERIM_STATUSES:
            self._begin_answer()
            return
        body = self._body[0] if len(self._body) == 1 else b"".join(self._body)
        answer = Answer(status, self._content_type, self._retry_after_s, body)
        self._keeps_alive = self._parser.should_keep_alive()
        self._begin_answer()
        waiter, self._waiter = self._waiter, None
        if waiter is not None and not waiter.done():
            waiter.set_result(answer)


async def connect(
    address: Address, *, transport: Transport, clock: Clock, timeout_ms: float, answer_bytes_max: int
) -> HttpConnection:
    """Open a connection. An error means that nothing was asked of anybody."""

    def factory() -> HttpConnection:
        return HttpConnection(address, clock=clock, answer_bytes_max=answer_bytes_max)

    advice = "is a node running there? start one with `headrace up`, or give its HTTP address"
    try:
        async with asyncio.timeout(timeout_ms / 1000):
            _, connection = await transport.connect(address.host, address.port, factory)
    except TimeoutError:
        raise UnreachableError(f"{address} did not accept a connection within {timeout_ms:.0f} ms; {advice}") from None
    except OSError as error:
        reason = error.strerror or str(error)
        raise UnreachableError(f"{address} cannot be reached ({reason}); {advice}") from error
    return connection
