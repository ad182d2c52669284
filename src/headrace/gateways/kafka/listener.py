"""The gateway as one thing that starts and stops."""

import logging

from headrace.gateways.answers import AnswerBudget
from headrace.gateways.kafka.connection import KafkaConnection
from headrace.gateways.kafka.counters import KafkaCounters
from headrace.gateways.kafka.limits import KafkaLimits
from headrace.gateways.kafka.shared import Serve, Shared
from headrace.host.clock import Clock
from headrace.host.transport import Listener, Transport

_LOGGER = logging.getLogger(__name__)


class KafkaListener:
    """Accepts on one address and serves its connections until it is stopped."""

    def __init__(self, shared: Shared, listener: Listener) -> None:
        self._shared = shared
        self._listener = listener

    @property
    def address(self) -> tuple[str, int]:
        return self._listener.address

    @property
    def counters(self) -> KafkaCounters:
        return self._shared.counters

    @property
    def connection_count(self) -> int:
        return len(self._shared.connections)

    @property
    def frames_in_flight_bytes(self) -> int:
        return self._shared.budget.used_bytes

    async def stop(self) -> None:
        """Stop accepting, answer what is in flight for a bounded time, then close: clients reconnect elsewhere."""
        await self._listener.close()
        await self._shared.drain(deadline_ms=self._shared.limits.stop_deadline_ms, on_cut=_tell_of_cut)


def _tell_of_cut(connection_count: int, request_count: int) -> None:
    counts = {"connection_count": connection_count, "request_count": request_count}
    _LOGGER.warning("Kafka clients cut at shutdown", extra=counts)


async def listen(
    transport: Transport,
    host: str,
    port: int,
    *,
    serve: Serve,
    limits: KafkaLimits,
    clock: Clock,
    counters: KafkaCounters,
    answers: AnswerBudget | None = None,
) -> KafkaListener:
    shared = Shared(serve=serve, limits=limits, clock=clock, counters=counters, answers=answers)
    listener = await transport.listen(host, port, lambda: KafkaConnection(shared))
    shared.start_sweeping()
    return KafkaListener(shared, listener)
