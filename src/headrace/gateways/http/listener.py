"""The HTTP server as one thing that starts and stops."""

import logging

from headrace.gateways.answers import AnswerBudget
from headrace.gateways.http.connection import HttpConnection
from headrace.gateways.http.counters import HttpCounters
from headrace.gateways.http.limits import HttpLimits
from headrace.gateways.http.origin import Hosts
from headrace.gateways.http.router import Router
from headrace.gateways.http.shared import Shared
from headrace.host.clock import Clock
from headrace.host.rand import Rand
from headrace.host.transport import Listener, Transport

_LOGGER = logging.getLogger(__name__)


class HttpListener:
    """Accepts on one address and serves its connections until it is stopped."""

    def __init__(self, shared: Shared, listener: Listener) -> None:
        self._shared = shared
        self._listener = listener

    @property
    def address(self) -> tuple[str, int]:
        return self._listener.address

    @property
    def counters(self) -> HttpCounters:
        return self._shared.counters

    @property
    def connection_count(self) -> int:
        return len(self._shared.connections)

    @property
    def bodies_in_flight_bytes(self) -> int:
        return self._shared.bodies_bytes

    async def stop(self) -> None:
        """Stop accepting, answer what is in flight for a bounded time, then close."""
        await self._listener.close()
        await self._shared.drain(deadline_ms=self._shared.limits.stop_deadline_ms, on_cut=_tell_of_cut)


def _tell_of_cut(connection_count: int, request_count: int) -> None:
    counts = {"connection_count": connection_count, "request_count": request_count}
    _LOGGER.warning("HTTP clients cut at shutdown", extra=counts)


async def listen_http(
    transport: Transport,
    host: str,
    port: int,
    *,
    router: Router,
    clock: Clock,
    rand: Rand,
    counters: HttpCounters,
    limits: HttpLimits,
    hosts: Hosts | None = None,
    answers: AnswerBudget | None = None,
) -> HttpListener:
    """Serve these routes on an address until the listener is stopped. Without `hosts` any Host header is taken."""
    shared = Shared(
        router=router, limits=limits, clock=clock, rand=rand, counters=counters, hosts=hosts, answers=answers
    )
    listener = await transport.listen(host, port, lambda: HttpConnection(shared))
    shared.start_sweeping()
    return HttpListener(shared, listener)
