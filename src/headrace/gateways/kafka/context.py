"""What every handler is given, and what an API's file declares about itself."""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass
from typing import Any, TypeVar

from headrace.broker.group.port import GroupPort
from headrace.broker.group.share_port import SharePort
from headrace.broker.under_way import UnderWay
from headrace.cluster.catalog import NodeAddress
from headrace.gateways.answers import AnswerBudget
from headrace.gateways.kafka.answer import Reply
from headrace.gateways.kafka.counters import KafkaCounters
from headrace.gateways.kafka.deadlines import Deadlines
from headrace.gateways.kafka.errors import ErrorCode, RefusedError
from headrace.gateways.kafka.limits import KafkaLimits
from headrace.gateways.kafka.metadata_cache import MetadataCache
from headrace.gateways.kafka.port import BrokerPort, TransactionPort
from headrace.gateways.kafka.share_session import ShareSessions
from headrace.gateways.kafka.warning import PeerWarnings
from headrace.host.clock import Clock
from headrace.model.errors import HeadraceError, TimedOutError
from headrace.wire.kafka.frame import RequestHeader

T = TypeVar("T")


class Context:
    """One gateway's ties to its node. Holds nothing that a restart would lose."""

    def __init__(
        self,
        broker: BrokerPort,
        *,
        groups: GroupPort | None = None,
        transactions: TransactionPort | None = None,
        shares: SharePort | None = None,
        limits: KafkaLimits,
        clock: Clock,
        counters: KafkaCounters,
        answers: AnswerBudget | None = None,
    ) -> None:
        self.broker = broker
        self._groups = groups
        self._transactions = transactions
        self._shares = shares
        self._share_sessions = None if shares is None else ShareSessions(shares.let_go, clock)
        self.limits = limits
        self.clock = clock
        self.counters = counters
        self.answers = answers or AnswerBudget()
        self.warnings = PeerWarnings(clock)
        # Incremental changes read a topic's settings and write them back: one at a time.
        self.altering = asyncio.Lock()
        self.metadata_cache = MetadataCache(limits.metadata_answers_max)
        self.deadlines = Deadlines(clock)
        self._under_way = UnderWay()

    @property
    def has_groups(self) -> bool:
        return self._groups is not None

    @property
    def has_transactions(self) -> bool:
        return self._transactions is not None

    @property
    def groups(self) -> GroupPort:
        assert self._groups is not None, "APIs of groups are served where there are groups"
        return self._groups

    @property
    def transactions(self) -> TransactionPort:
        if self._transactions is None:
            raise RefusedError(
                ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
                "transactions are not served here; produce without a transactional id",
            )
        return self._transactions

    @property
    def shares(self) -> SharePort:
        assert self._shares is not None, "APIs of share groups are served where there are queues"
        return self._shares

    @property
    def share_sessions(self) -> ShareSessions:
        assert self._share_sessions is not None, "APIs of share groups are served where there are queues"
        return self._share_sessions

    def this_node(self) -> NodeAddress:
        """Where clients reach this node."""
        for node in self.broker.nodes():
            if node.node_id == self.broker.node_id:
                return node
        raise RefusedError(ErrorCode.LEADER_NOT_AVAILABLE, "this node has no address for Kafka clients yet; retry")

    def explain(self, error: BaseException) -> BaseException:
        """Note an error that goes into an answer; one that no rule expected is logged with its traceback."""
        if not isinstance(error, HeadraceError | RefusedError):
            self.counters.handler_failures += 1
            self.warnings.fail("Kafka request failed", error)
        return error

    async def finish_within(self, timeout_ms: int, work: Coroutine[Any, Any, T]) -> T:
        """Wait for administrative work until the client's deadline. Then it goes on, and the client hears *maybe*."""
        task = self._under_way.begin(work)
        ready = asyncio.Event()
        task.add_done_callback(lambda _: ready.set())
        timer = self.clock.call_later(max(timeout_ms, 1), ready.set)
        try:
            await ready.wait()
        finally:
            timer.cancel()
        if not task.done():
            raise TimedOutError(f"not done within {timeout_ms} ms; it goes on, so look before you repeat it")
        return task.result()


@dataclass(frozen=True, slots=True, kw_only=True)
class Api:
    """One API as this gateway serves it.

    `handle` gets the parsed request and returns the response, at once or as an awaitable. `refuse` builds the response
    that carries an error for everything that the request asked; it may return None where no field can carry one, and
    then the connection is closed. What `only_waits` ends with its connection; anything else goes on to its end.
    """

    key: int
    version_min: int
    version_max: int
    handle: Callable[[Context, Any, int], Any | Awaitable[Any]]
    refuse: Callable[[Any, int, int, str], Any]
    # What is advertised, where that differs from what is served.
    version_min_advertised: int | None = None
    only_waits: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class RawApi:
    """An API that reads the frame and builds the answer's buffers by hand."""

    key: int
    version_min: int
    version_max: int
    serve: Callable[[Context, RequestHeader, bytearray], Reply]
    # Builds the whole answer for an error that concerns the request; None if there is no answer to be had.
    refuse: Callable[[Context, RequestHeader, bytearray, int, str], Reply]
    version_min_advertised: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PeerApi:
    """A RawApi that also wants to know from which host it is called, to show that to an operator."""

    key: int
    version_min: int
    version_max: int
    serve: Callable[[Context, RequestHeader, bytearray, str], Reply]
    refuse: Callable[[Context, RequestHeader, bytearray, int, str], Reply]
    version_min_advertised: int | None = None

    def called_from(self, host: str) -> RawApi:
        return RawApi(
            key=self.key,
            version_min=self.version_min,
            version_max=self.version_max,
            serve=lambda context, header, frame: self.serve(context, header, frame, host),
            refuse=self.refuse,
        )


AnyApi = Api | RawApi | PeerApi
