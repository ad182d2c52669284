"""What all connections of one listener share."""

from collections.abc import Callable

from headrace.gateways.answers import AnswerBudget
from headrace.gateways.connections import Connections
from headrace.gateways.kafka.answer import Reply
from headrace.gateways.kafka.budget import ByteBudget
from headrace.gateways.kafka.counters import KafkaCounters
from headrace.gateways.kafka.limits import KafkaLimits
from headrace.gateways.kafka.warning import PeerWarnings
from headrace.host.clock import Clock

# A frame, and the host that it came from.
Serve = Callable[[bytearray, str], Reply]


class Shared(Connections):
    def __init__(
        self,
        *,
        serve: Serve,
        limits: KafkaLimits,
        clock: Clock,
        counters: KafkaCounters,
        answers: AnswerBudget | None = None,
    ) -> None:
        super().__init__(
            clock=clock,
            sweep_ms=limits.sweep_ms,
            connections_max=limits.connections_max,
            for_address_max=limits.connections_for_address_max,
            answers=answers,
        )
        self.serve = serve
        self.limits = limits
        self.counters = counters
        self.warnings = PeerWarnings(clock)
        self.budget = ByteBudget(limits.frames_in_flight_bytes_max, slack_bytes=limits.frame_ahead_bytes)
        # A read is parsed to its end, and what is left of it copied out, before any other connection reads.
        self.receive_buffer = bytearray(limits.receive_bytes)
        self.receive_view = memoryview(self.receive_buffer)
