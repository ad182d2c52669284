"""What all connections of one listener share."""

import logging
from email.utils import formatdate

from headrace.gateways.connections import Connection, Connections
from headrace.gateways.http.counters import HttpCounters
from headrace.gateways.http.head_reader import HeadReader
from headrace.gateways.http.limits import HttpLimits
from headrace.gateways.http.message import Encoder, RefusedError
from headrace.gateways.http.origin import Hosts
from headrace.gateways.http.router import Router
from headrace.host.clock import Clock
from headrace.host.rand import Rand

_LOGGER = logging.getLogger(__name__)

# Between two lines about refused connections: whoever can cause a line must not be able to fill the disk with them.
_WARNING_INTERVAL_MS = 10_000


class Shared(Connections):
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
        super().__init__(clock=clock, sweep_ms=limits.sweep_ms)
        self.heads = HeadReader(limits, find=router.find, hosts=hosts)
        self.encoder = Encoder()
        self.limits = limits
        self.counters = counters
        self.bodies_bytes = 0
        self.bodies_bytes_max = limits.bodies_in_flight_bytes_max
        # Requests are numbered; the front keeps the numbers of two runs and two listeners apart.
        self._id_front = rand.bytes(6).hex()
        self._id_count = 0
        self._by_address: dict[str, int] = {}
        self._warned_ms = self.now_ms - _WARNING_INTERVAL_MS

    def start_sweeping(self) -> None:
        """Here the date of the answers is as old as the last sweep."""
        super().start_sweeping()
        self.encoder.set_date(formatdate(self.clock.wall_ms() / 1000, usegmt=True))

    def next_id(self) -> str:
        """An id for a request whose client gave none."""
        self._id_count += 1
        return f"{self._id_front}-{self._id_count:x}"

    def add(self, connection: Connection, address: str) -> RefusedError | None:
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

    def remove(self, connection: Connection, address: str) -> None:
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
