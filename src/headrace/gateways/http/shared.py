"""What all connections of one listener share."""

import logging
from email.utils import formatdate

from headrace.gateways.answers import AnswerBudget
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
        answers: AnswerBudget | None = None,
    ) -> None:
        super().__init__(
            clock=clock,
            sweep_ms=limits.sweep_ms,
            connections_max=limits.connections_max,
            for_address_max=limits.connections_for_address_max,
            answers=answers,
        )
        self.heads = HeadReader(limits, find=router.find, hosts=hosts)
        self.encoder = Encoder()
        self.limits = limits
        self.counters = counters
        self.bodies_bytes = 0
        self.bodies_bytes_max = limits.bodies_in_flight_bytes_max
        # Requests are numbered; the front keeps the numbers of two runs and two listeners apart.
        self._id_front = rand.bytes(6).hex()
        self._id_count = 0
        self._warned_ms = self.now_ms - _WARNING_INTERVAL_MS

    def start_sweeping(self) -> None:
        """Here the date of the answers is as old as the last sweep."""
        super().start_sweeping()
        self.encoder.set_date(formatdate(self.clock.wall_ms() / 1000, usegmt=True))

    def next_id(self) -> str:
        """An id for a request whose client gave none."""
        self._id_count += 1
        return f"{self._id_front}-{self._id_count:x}"

    def add(self, connection: Connection) -> RefusedError | None:
        """Take a connection in, and say why it has to go at once, if it has to."""
        self.counters.connections_total += 1
        self.counters.connections_open += 1
        if self.admit(connection):
            return None
        self.counters.connections_refused += 1
        self._warn("HTTP connections refused", connection)
        return overloaded("too many connections are open; close some, use keep-alive, or retry later")

    def note_displaced(self, connection: Connection) -> None:
        self.counters.count_closed("displaced")
        self._warn("HTTP connections displaced by new ones", connection)

    def _warn(self, message: str, connection: Connection) -> None:
        if self.now_ms - self._warned_ms >= _WARNING_INTERVAL_MS:
            self._warned_ms = self.now_ms
            _LOGGER.warning(message, extra={"open": len(self.connections), "address": connection.address})


def no_room_for_answer() -> RefusedError:
    return overloaded(
        "answers that clients have not taken fill the memory for answers (answers.bytes_max); retry later"
    )


def too_many_bytes() -> RefusedError:
    return overloaded("requests of all clients together have too many bytes; retry later")


def overloaded(detail: str) -> RefusedError:
    return RefusedError(503, "overloaded", detail, headers=(("Retry-After", "1"),))
