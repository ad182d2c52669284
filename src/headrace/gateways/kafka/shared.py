"""What all connections of one listener share."""

from collections.abc import Callable

from headrace.gateways.connections import Connection, Connections
from headrace.gateways.kafka.answer import Reply
from headrace.gateways.kafka.budget import ByteBudget
from headrace.gateways.kafka.counters import KafkaCounters
from headrace.gateways.kafka.limits import KafkaLimits
from headrace.gateways.kafka.warning import PeerWarnings
from headrace.host.clock import Clock

# A frame, and the host that it came from.
Serve = Callable[[bytearray, str], Reply]


class Shared(Connections):
    def __init__(self, *, serve: Serve, limits: KafkaLimits, clock: Clock, counters: KafkaCounters) -> None:
        super().__init__(clock=clock, sweep_ms=limits.sweep_ms)
        self.serve = serve
        self.limits = limits
        self.counters = counters
        self.warnings = PeerWarnings(clock)
        self.budget = ByteBudget(limits.frames_in_flight_bytes_max, slack_bytes=limits.frame_ahead_bytes)
        # A read is parsed to its end, and what is left of it copied out, before any other connection reads.
        self.receive_buffer = bytearray(limits.receive_bytes)
        self.receive_view = memoryview(self.receive_buffer)

    def remove(self, connection: Connection) -> None:
        self.connections.discard(connection)
        if not self.connections and self.on_empty is not None:
            self.on_empty()
