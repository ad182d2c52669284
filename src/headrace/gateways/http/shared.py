"""What all connections of one listener share, and the sweep that looks after their deadlines.

Deadlines are looked at once every `sweep_ms` for all connections: a timer for each request would cost more than the
parsing of it.
"""

import logging
from collections.abc import Callable
from email.utils import formatdate
from typing import Protocol

from headrace.broker.under_way import UnderWay
from headrace.gateways.http.counters import HttpCounters
from headrace.gateways.http.head import HeadReader
from headrace.gateways.http.limits import HttpLimits
from headrace.gateways.http.message import Encoder, RefusedError
from headrace.gateways.http.origin import Hosts
from headrace.gateways.http.router import Router
from headrace.host.clock import Clock, Timer
from headrace.host.rand import Rand

_LOGGER = logging.getLogger(__name__)

# Between two lines about refused connections: whoever can cause a line must not be able to fill the disk with them.
_WARNING_INTERVAL_MS = 10_000


class Swept(Protocol):
    """A connection, as the sweep and the listener see it."""

    def check_deadlines(self, now_ms: int) -> None: ...

    def drain(self) -> None: ...

    def abort(self) -> None: ...


class Shared:
    def __init__(
        self,
        *,
        router: Router,
        limits: HttpLimits,
        clock: Clock,
        rand: Rand,
        counters: HttpCounters,
        hosts: Hosts | None = None,
    ) -> None:
        self.heads = HeadReader(limits, find=router.find, hosts=hosts)
        self.encoder = Encoder()
        self.limits = limits
        self.clock = clock
        self.counters = counters
        self.connections: set[Swept] = set()
        self.under_way = UnderWay()
        self.bodies_bytes = 0
        self.bodies_bytes_max = limits.bodies_in_flight_bytes_max
        # The time of the last sweep: late by sweep_ms at most, and free to read.
        self.now_ms = clock.monotonic_ms()
        self.on_empty: Callable[[], None] | None = None
        # Requests are numbered; the front keeps the numbers of two runs and two listeners apart.
        self._id_front = rand.bytes(6).hex()
        self._id_count = 0
        self._by_address: dict[str, int] = {}
        self._timer: Timer | None = None
        self._warned_ms = self.now_ms - _WARNING_INTERVAL_MS

    def start_sweeping(self) -> None:
        self.now_ms = self.clock.monotonic_ms()
        self.encoder.set_date(formatdate(self.clock.wall_ms() / 1000, usegmt=True))
        self._timer = self.clock.call_later(self.limits.sweep_ms, self._sweep)

    def stop_sweeping(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _sweep(self) -> None:
        self.start_sweeping()
        for connection in list(self.connections):
            connection.check_deadlines(self.now_ms)

    def next_id(self) -> str:
        """An id for a request whose client gave none."""
        self._id_count += 1
        return f"{self._id_front}-{self._id_count:x}"

    def add(self, connection: Swept, address: str) -> RefusedError | None:
        """Take a connection in, and say why it has to go at once, if it has to."""
        limits = self.limits
        self.connections.add(connection)
        of_address = self._by_address.get(address, 0) + 1
        self._by_address[address] = of_address
        self.counters.connections_total += 1
        self.counters.connections_open += 1
        if len(self.connections) > limits.connections_max or of_address > limits.connections_for_address_max:
            self.counters.connections_refused += 1
            if self.now_ms - self._warned_ms >= _WARNING_INTERVAL_MS:
                self._warned_ms = self.now_ms
                _LOGGER.warning("HTTP connections refused", extra={"open": len(self.connections), "address": address})
            return overloaded("too many connections are open; close some, use keep-alive, or retry later")
        return None

    def remove(self, connection: Swept, address: str) -> None:
        self.connections.discard(connection)
        self.counters.connections_open -= 1
        of_address = self._by_address[address] - 1
        if of_address:
            self._by_address[address] = of_address
        else:
            del self._by_address[address]
        if not self.connections and self.on_empty is not None:
            self.on_empty()


def too_many_bytes() -> RefusedError:
    return overloaded("requests of all clients together have too many bytes; retry later")


def overloaded(detail: str) -> RefusedError:
    return RefusedError(503, "overloaded", detail, headers=(("Retry-After", "1"),))
