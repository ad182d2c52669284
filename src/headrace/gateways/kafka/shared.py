"""What all connections of one listener share, and the sweep that looks after their deadlines.

Deadlines are looked at once every `sweep_ms` for all connections, against a clock that is read once a sweep. A timer
for each frame would cost more than the parsing of the frame.
"""

from collections.abc import Callable
from typing import Protocol

from headrace.broker.under_way import UnderWay
from headrace.gateways.kafka.answer import Reply
from headrace.gateways.kafka.budget import ByteBudget
from headrace.gateways.kafka.counters import KafkaCounters
from headrace.gateways.kafka.limits import KafkaLimits
from headrace.gateways.kafka.warning import PeerWarnings
from headrace.host.clock import Clock, Timer

# A frame, and the host that it came from.
Serve = Callable[[bytearray, str], Reply]


class Swept(Protocol):
    """A connection, as the sweep and the listener see it."""

    def check_deadlines(self, now_ms: int) -> None: ...

    def drain(self) -> None: ...

    def abort(self) -> None: ...


class Shared:
    def __init__(self, *, serve: Serve, limits: KafkaLimits, clock: Clock, counters: KafkaCounters) -> None:
        self.serve = serve
        self.limits = limits
        self.clock = clock
        self.counters = counters
        self.warnings = PeerWarnings(clock)
        self.budget = ByteBudget(limits.frames_in_flight_bytes_max, slack_bytes=limits.frame_ahead_bytes)
        # A read is parsed to its end, and what is left of it copied out, before any other connection reads.
        self.receive_buffer = bytearray(limits.receive_bytes)
        self.receive_view = memoryview(self.receive_buffer)
        self.connections: set[Swept] = set()
        self.under_way = UnderWay()
        # The time of the last sweep: late by sweep_ms at most, and free to read.
        self.now_ms = clock.monotonic_ms()
        self.on_empty: Callable[[], None] | None = None
        self._timer: Timer | None = None

    def start_sweeping(self) -> None:
        self.now_ms = self.clock.monotonic_ms()
        self._timer = self.clock.call_later(self.limits.sweep_ms, self._sweep)

    def stop_sweeping(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _sweep(self) -> None:
        self.start_sweeping()
        for connection in list(self.connections):
            connection.check_deadlines(self.now_ms)

    def remove(self, connection: Swept) -> None:
        self.connections.discard(connection)
        if not self.connections and self.on_empty is not None:
            self.on_empty()
