"""What this gateway asks of the broker: the one border that it calls across."""

from collections.abc import Awaitable, Iterable, Iterator, Mapping, Sequence
from typing import Protocol
from uuid import UUID

from headrace.broker.config import BrokerConfig
from headrace.broker.fetch import Fetch, Fetched, Room
from headrace.broker.group.port import Caller, OffsetCommit, Outcomes
from headrace.broker.pending import Appended
from headrace.broker.promise import Promise
from headrace.broker.transaction.config import TransactionsConfig
from headrace.cluster.catalog import NodeAddress
from headrace.folds.producer import ProducerState
from headrace.folds.transaction.fold import Producer
from headrace.folds.transaction.transaction import Transaction
from headrace.model.ids import Epoch, NodeId, Offset, PartitionId
from headrace.model.queue import Queue
from headrace.model.topic import Topic


class PartitionPort(Protocol):
    @property
    def id(self) -> PartitionId: ...

    @property
    def epoch(self) -> Epoch: ...

    @property
    def start_offset(self) -> Offset: ...

    @property
    def end_offset(self) -> Offset: ...

    @property
    def high_watermark(self) -> Offset: ...

    @property
    def last_stable_offset(self) -> Offset: ...

    @property
    def size_bytes(self) -> int: ...

    def append(self, records: memoryview) -> Promise[Appended]:
        """Store a record set. The frame that it is a view of belongs to the partition until the promise is."""

    def epoch_end(self, epoch: Epoch) -> tuple[Epoch, Offset]: ...

    def check_epoch(self, epoch: Epoch) -> None: ...

    async def offset_for_time(self, timestamp_ms: int) -> tuple[Offset, int] | None: ...

    async def max_timestamp(self, *, upto: Offset) -> tuple[Offset, int]: ...

    async def delete_records(self, before: Offset) -> Offset: ...

    def producers(self) -> Iterator[tuple[int, ProducerState]]: ...


class CatalogPort(Protocol):
    @property
    def revision(self) -> int: ...

    @property
    def topics(self) -> Mapping[str, Topic]: ...

    @property
    def topics_by_id(self) -> Mapping[UUID, Topic]: ...

    @property
    def queues(self) -> Mapping[str, Queue]: ...


class BrokerPort(Protocol):
    @property
    def node_id(self) -> NodeId: ...

    @property
    def cluster_id(self) -> str: ...

    @property
    def catalog(self) -> CatalogPort: ...

    @property
    def data_directory(self) -> str: ...

    @property
    def config(self) -> BrokerConfig: ...

    def nodes(self) -> Sequence[NodeAddress]: ...

    def partition(self, topic: str | UUID, index: int) -> PartitionPort: ...

    def partitions(self) -> Iterable[PartitionPort]: ...

    def fetch(self, request: Fetch, room: Room | None = None) -> list[Fetched] | Awaitable[list[Fetched]]: ...

    def readable_bytes(self, request: Fetch) -> int: ...

    def positions(self, request: Fetch) -> list[Fetched]: ...

    def is_complete(self, topic: Topic) -> bool: ...

    async def ensure_topic(self, name: str) -> Topic: ...

    async def create_topic(
        self,
        name: str,
        *,
        partition_count: int = -1,
        replication_factor: int = -1,
        overrides: Mapping[str, str] = ...,
        validate_only: bool = False,
    ) -> Topic: ...

    async def delete_topic(self, topic: str | UUID) -> Topic: ...

    async def create_partitions(self, name: str, count: int, *, validate_only: bool = False) -> Topic: ...

    async def alter_config(self, name: str, overrides: Mapping[str, str], *, validate_only: bool = False) -> Topic: ...

    async def allocate_producer_id(self) -> int: ...

    def disk_free_bytes(self) -> int: ...


class TransactionPort(Protocol):
    """The coordinator of transactions. Calls are answered when what they rest on is durable."""

    @property
    def config(self) -> TransactionsConfig: ...

    async def begin_producer(
        self, id: str, *, timeout_ms: int, expected: tuple[int, int] | None = None
    ) -> tuple[int, int]: ...

    async def add(
        self, producer: Producer, *, partitions: Sequence[PartitionId] = (), groups: Sequence[str] = ()
    ) -> None: ...

    def produce(
        self, id: str, topic: str | UUID, index: int, records: memoryview, *, joins: bool = False
    ) -> Promise[Appended]: ...

    async def commit_offsets(
        self, producer: Producer, caller: Caller, offsets: Sequence[OffsetCommit], *, joins: bool = False
    ) -> Outcomes: ...

    async def end(self, producer: Producer, *, is_commit: bool, is_bumped: bool = False) -> tuple[int, int]: ...

    def transactions(self) -> Iterator[Transaction]: ...

    def describe(self, id: str) -> Transaction: ...
