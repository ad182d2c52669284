"""The asynchronous queue client.

    async with AsyncClient("127.0.0.1:8080") as client:
        tasks = client.queue("tasks")
        await tasks.send("one tea")

Theory of operation. A client has one pool of HTTP connections for calls that are answered soon and one for receives
that wait; `http` has them, and the rule about what is repeated. A queue gathers single calls to batches. What is
asked of a queue is a method of `AsyncQueue`; `headrace.client.queue.sync` has the same for programs without an event
loop, and does nothing but wait.

A client belongs to one event loop and may be shared by its tasks.
"""

from collections.abc import Sequence
from types import TracebackType
from typing import Self

from headrace.client.http.caller import Caller
from headrace.client.http.pool import Pool
from headrace.client.process_bound import ProcessBound
from headrace.client.queue.administration import Administration
from headrace.client.queue.description import ClockReport, Description
from headrace.client.queue.outgoing import Span
from headrace.client.queue.queue import AsyncQueue
from headrace.client.queue.sender import make_ids
from headrace.client.queue.transaction import AsyncTransaction
from headrace.client.settings import DEFAULT_HTTP, QueueClientConfig, http_servers
from headrace.host.clock import Clock, SystemClock
from headrace.host.rand import Rand, SystemRand
from headrace.host.transport import TcpTransport, Transport
from headrace.model.address import Address, parse_address
from headrace.model.errors import InvalidRequestError


class AsyncClient(ProcessBound):
    """Queues of a node, reached over HTTP. Use it as a context manager, or `close` it.

    Without `servers` it takes those that HEADRACE_HTTP names, or else 127.0.0.1:8080.
    """

    def __init__(
        self,
        servers: str | Sequence[str | Address] | None = None,
        *,
        config: QueueClientConfig | None = None,
        clock: Clock | None = None,
        rand: Rand | None = None,
        transport: Transport | None = None,
    ) -> None:
        servers = http_servers() if servers is None else servers
        listed = servers.split(",") if isinstance(servers, str) else servers
        addresses = [_address(server) for server in listed]
        if not addresses:
            raise InvalidRequestError("no server is named; give the HTTP address of a node, for example 127.0.0.1:8080")
        config = config or QueueClientConfig()
        clock, rand, transport = clock or SystemClock(), rand or SystemRand(), transport or TcpTransport()

        def pool(connections_max: int) -> Pool:
            return Pool(
                addresses,
                clock=clock,
                transport=transport,
                connections_max=connections_max,
                connect_timeout_ms=config.connect_timeout_ms,
                answer_bytes_max=config.answer_bytes_max,
            )

        self._caller = Caller(
            pool(config.connections_max), pool(config.waiting_connections_max), config, clock=clock, rand=rand
        )
        self._administration = Administration(self._caller)
        self._ids = make_ids(self._caller)
        self._queues: dict[str, AsyncQueue] = {}

    async def connect(self) -> None:
        """Reach a server. Without a retry: who begins with a wrong address should hear of it at once."""
        await self._caller.connect()

    async def close(self) -> None:
        """Send what is pending, then let go of the connections; receives that wait end in ClosedError."""
        self._caller.check_loop()
        for queue in tuple(self._queues.values()):
            await queue.close()
        await self._caller.close()

    async def close_connections(self) -> None:
        """Let go of the connections that are idle; the next calls make new ones."""
        await self._caller.drop_idle()

    async def __aenter__(self) -> Self:
        await self.connect()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.close()

    def queue(self, name: str) -> AsyncQueue:
        """A queue by its name. Nothing is asked of the node yet: a queue that is missing is made by its first send."""
        known = self._queues.get(name)
        if known is None:
            # Threads of a `Client` ask for one at once, and only what is kept here is sent at the close.
            known = self._queues.setdefault(name, AsyncQueue(name, self._caller, self._administration, self._ids))
        return known

    def transaction(self, *, timeout: Span | None = None) -> AsyncTransaction:
        """Sends and acknowledgements that count together: `async with client.transaction() as tx`.

        It is aborted by itself so long after it began; None leaves that to the node.
        """
        return AsyncTransaction(self._caller, timeout)

    async def clock(self) -> ClockReport:
        """Whether the node believes its machine's clock."""
        return await self._administration.clock()

    async def confirm_clock(self) -> ClockReport:
        """Have the node believe its machine's clock. Taken at its administrator's address only."""
        return await self._administration.confirm_clock()

    async def queues(self, prefix: str = "") -> list[str]:
        """The names of all queues, sorted."""
        return await self._administration.names(prefix)

    async def describe_queues(self, prefix: str = "") -> list[Description]:
        """What all queues hold and how they are set, by name: one request for each thousand of them."""
        return await self._administration.descriptions(prefix)


def _address(server: str | Address) -> Address:
    if isinstance(server, Address):
        return server
    scheme, is_url, text = server.strip().rpartition("://")
    if is_url and scheme.lower() == "https":
        raise InvalidRequestError(f"{server} asks for TLS, which this client does not speak yet; use http://")
    if is_url and scheme.lower() != "http":
        raise InvalidRequestError(f"{server} is no HTTP address; write host:port or http://host:port")
    text, _, path = text.partition("/")
    if path.strip("/"):
        raise InvalidRequestError(f"{server} has a path, and a node's routes begin at /; leave /{path} out")
    try:
        if ":" not in text:
            raise ValueError(f"{server!r} has no port; a node's own is 8080: write {text}:8080")
        address = parse_address(text)
        # What no name server could be asked for; else that is found out only when somebody asks.
        address.host.encode("idna")
    except UnicodeError:
        raise InvalidRequestError(
            f"{server!r} has no valid host; write host:port, for example {DEFAULT_HTTP}"
        ) from None
    except ValueError as error:
        raise InvalidRequestError(str(error)) from None
    return address
