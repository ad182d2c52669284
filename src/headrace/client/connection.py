"""One connection to one broker: frames out, frames in, each answer to its waiter.

Requests may be in flight together; the broker answers in order and the correlation id says which. Whatever breaks the
connection breaks every waiter with an error that means *maybe*: the request may have been carried out.
"""

import asyncio
import struct
from typing import Any, NamedTuple, TypeVar, cast

from headrace import __version__
from headrace.client.errors import UNSUPPORTED_VERSION, ConnectionLostError, UnreachableError
from headrace.host.clock import Clock
from headrace.host.transport import Transport
from headrace.model.address import Address
from headrace.model.errors import TimedOutError, UnsupportedError
from headrace.wire.kafka.frame import encode_request, read_correlation_id, read_response
from headrace.wire.kafka.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from headrace.wire.kafka.primitives import MalformedError
from headrace.wire.kafka.registry import APIS

T = TypeVar("T")

API_VERSIONS = 18
_LENGTH = struct.Struct(">i")

# Versions above these name topics by id alone, and this client asks by name; or are spoken between brokers alone.
_VERSION_CEILINGS = {0: 12, 1: 12, 24: 3}


class Waiter(NamedTuple):
    api_key: int
    version: int
    future: "asyncio.Future[Any]"


class Connection(asyncio.BufferedProtocol):
    """Made by `connect`. `call` sends a request and gives its answer; a closed connection is never reopened."""

    def __init__(self, address: Address, *, clock: Clock, client_id: str, frame_bytes_max: int) -> None:
        self.address = address
        self._clock = clock
        self._client_id = client_id
        self._frame_bytes_max = frame_bytes_max
        self._transport: asyncio.Transport | None = None
        self._waiters: dict[int, Waiter] = {}
        self._correlation_id = 0
        self._versions: dict[int, int] = {}
        self._lost = asyncio.Event()
        self._writable = asyncio.Event()
        self._writable.set()
        # A frame is received into a buffer of exactly its size, so that record sets are never copied.
        self._length = bytearray(_LENGTH.size)
        self._frame: bytearray | None = None
        self._filled = 0

    @property
    def is_open(self) -> bool:
        return self._transport is not None and not self._transport.is_closing()

    def close(self) -> None:
        if self._transport is not None:
            self._transport.close()

    async def wait_closed(self) -> None:
        await self._lost.wait()

    async def negotiate(self, *, timeout_ms: int) -> None:
        """Learn what the broker speaks and take, for each API, the highest version that both sides know."""
        request = ApiVersionsRequest(client_software_name="headrace", client_software_version=__version__)
        response: ApiVersionsResponse = await self._send(API_VERSIONS, 3, request, timeout_ms=timeout_ms)
        if response.error_code == UNSUPPORTED_VERSION:
            response = await self._send(API_VERSIONS, 0, ApiVersionsRequest(), timeout_ms=timeout_ms)
        for offered in response.api_keys:
            api = APIS.get(offered.api_key)
            if api is None:
                continue
            highest = min(api.stable_version, offered.max_version, _VERSION_CEILINGS.get(api.key, api.stable_version))
            if highest >= max(api.min_version, offered.min_version):
                self._versions[api.key] = highest

    def version(self, api_key: int) -> int:
        """The version that will be used for an API."""
        try:
            return self._versions[api_key]
        except KeyError:
            name = APIS[api_key].name
            raise UnsupportedError(f"the broker at {self.address} does not offer {name} in a version we know") from None

    async def call(self, api_key: int, request: Any, kind: type[T], *, timeout_ms: int) -> T:
        """Send a request and wait for its answer, at most as long as the timeout says."""
        response = await self._send(api_key, self.version(api_key), request, timeout_ms=timeout_ms)
        assert isinstance(response, kind)
        return response

    async def post(self, api_key: int, request: Any) -> None:
        """Send a request that gets no answer (Produce with acks=0), once the peer has taken what came before."""
        await self._writable.wait()
        self._write(api_key, self.version(api_key), request)

    async def _send(self, api_key: int, version: int, request: Any, *, timeout_ms: int) -> Any:
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        correlation_id = self._write(api_key, version, request)
        self._waiters[correlation_id] = Waiter(api_key, version, future)

        def give_up() -> None:
            if not future.done():
                name = APIS[api_key].name
                future.set_exception(TimedOutError(f"{self.address} did not answer {name} within {timeout_ms} ms"))

        timer = self._clock.call_later(timeout_ms, give_up)
        try:
            return await future
        finally:
            # The waiter stays where it is: an answer that comes too late is recognised by it and dropped.
            timer.cancel()

    def _write(self, api_key: int, version: int, request: Any) -> int:
        if not self.is_open:
            raise ConnectionLostError(f"the connection to {self.address} is closed")
        assert self._transport is not None
        self._correlation_id = (self._correlation_id + 1) & 0x7FFFFFFF
        self._transport.write(encode_request(api_key, version, self._correlation_id, self._client_id, request))
        return self._correlation_id

    # asyncio's side.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # Not an isinstance check: uvloop's transports have the methods and not the class.
        self._transport = cast(asyncio.Transport, transport)

    def pause_writing(self) -> None:
        self._writable.clear()

    def resume_writing(self) -> None:
        self._writable.set()

    def get_buffer(self, sizehint: int) -> memoryview:
        return memoryview(self._length if self._frame is None else self._frame)[self._filled :]

    def buffer_updated(self, nbytes: int) -> None:
        self._filled += nbytes
        if self._frame is None:
            if self._filled == _LENGTH.size:
                self._begin_frame(_LENGTH.unpack(self._length)[0])
        elif self._filled == len(self._frame):
            frame, self._frame, self._filled = self._frame, None, 0
            self._answered(frame)

    def _begin_frame(self, size: int) -> None:
        self._filled = 0
        if not _LENGTH.size <= size <= self._frame_bytes_max:
            self._break(
                f"{self.address} announced an answer of {size} bytes, which is none of Kafka's or above the limit of "
                f"{self._frame_bytes_max}; is a Kafka listener there?"
            )
            return
        self._frame = bytearray(size)

    def _answered(self, frame: bytearray) -> None:
        waiter = self._waiters.pop(read_correlation_id(frame), None)
        if waiter is None:
            self._break(f"{self.address} answered a question that was never asked")
            return
        if waiter.future.done():
            return
        try:
            waiter.future.set_result(read_response(waiter.api_key, waiter.version, frame).value)
        except MalformedError as error:
            waiter.future.set_exception(error)

    def eof_received(self) -> bool:
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        self._writable.set()
        self._lost.set()
        self._fail_waiters(f"{self.address} closed the connection before it answered")

    def _break(self, why: str) -> None:
        self._fail_waiters(why)
        assert self._transport is not None
        self._transport.abort()

    def _fail_waiters(self, why: str) -> None:
        waiters, self._waiters = self._waiters, {}
        for waiter in waiters.values():
            if not waiter.future.done():
                waiter.future.set_exception(ConnectionLostError(f"{why}; the request may have been carried out"))


async def connect(
    address: Address,
    *,
    transport: Transport,
    clock: Clock,
    client_id: str,
    frame_bytes_max: int,
    timeout_ms: int,
) -> Connection:
    """Open a connection and agree on versions."""

    def factory() -> Connection:
        return Connection(address, clock=clock, client_id=client_id, frame_bytes_max=frame_bytes_max)

    advice = "is a node running there? start one with `headrace up`, or say where with --server"
    try:
        async with asyncio.timeout(timeout_ms / 1000):
            _, connection = await transport.connect(address.host, address.port, factory)
    except TimeoutError:
        raise UnreachableError(f"{address} did not accept a connection within {timeout_ms} ms; {advice}") from None
    except OSError as error:
        reason = error.strerror or str(error)
        raise UnreachableError(f"{address} cannot be reached ({reason}); {advice}") from error
    try:
        await connection.negotiate(timeout_ms=timeout_ms)
    except BaseException:
        connection.close()
        await connection.wait_closed()
        raise
    return connection
