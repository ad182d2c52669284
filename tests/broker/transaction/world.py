"""A simulated node with everything that takes part in transactions."""

from tests.broker.node import LOG_CONFIG, Node, next_offset

from headrace.broker.fetch import Fetch, FetchPart
from headrace.broker.group.config import GroupsConfig
from headrace.broker.group.groups import NodeGroups
from headrace.broker.transaction.config import TransactionsConfig
from headrace.broker.transaction.coordinator import Coordinator
from headrace.broker.transaction.held import QueueLeases
from headrace.broker.transaction.sessions import NodeTransactions
from headrace.folds.transaction.fold import Producer
from headrace.log.config import LogConfig
from headrace.model.batch import read_header
from headrace.model.message import Message, Received
from headrace.testing.disk import SimulatedDisk
from headrace.wire.kafka.marker import is_marker
from headrace.wire.kafka.records import Record, decode_batch, encode_batch

KEY = b"k" * 32
CONFIG = TransactionsConfig(partitions=2)
TIME_MS = 1_700_000_000_000


class World(Node):
    def __init__(
        self,
        *,
        disk: SimulatedDisk | None = None,
        config: TransactionsConfig = CONFIG,
        log_config: LogConfig = LOG_CONFIG,
        seed: int = 1,
    ) -> None:
        super().__init__(disk=disk, log_config=log_config, seed=seed)
        self.transactions_config = config

    async def start(self) -> "World":
        await super().start()
        self.groups = NodeGroups(
            broker=self.broker,
            logs=self.logs,
            clock=self.clock,
            rand=self.rand,
            threads=self.sync_threads,
            config=GroupsConfig(partitions=1),
        )
        await self.groups.start()
        self.coordinator = Coordinator(
            broker=self.broker,
            logs=self.logs,
            clock=self.clock,
            threads=self.sync_threads,
            config=self.transactions_config,
            groups=self.groups,
            queues=QueueLeases(queues=self.queues, catalog=self.catalog),
        )
        self.transactions = NodeTransactions(
            coordinator=self.coordinator, broker=self.broker, queues=self.queues, clock=self.clock
        )
        await self.coordinator.start()
        await self.transactions.start(KEY)
        return self

    async def restart(self) -> None:
        await self.coordinator.stop()
        await super().restart()

    def abandon(self) -> None:
        if hasattr(self, "coordinator"):
            self.coordinator.abandon()
        super().abandon()

    # A transactional producer.

    async def begin(self, id: str = "tx", *, timeout_ms: int = 60_000) -> Producer:
        return Producer(id, *await self.coordinator.begin_producer(id, timeout_ms=timeout_ms))

    async def send(
        self,
        producer: Producer,
        *values: bytes,
        sequence: int,
        topic: str = "t",
        partition: int = 0,
        joins: bool = True,
    ) -> int:
        """Where it went."""
        records = batch(producer, *values, sequence=sequence)
        appended = await self.coordinator.produce(producer.transactional_id, topic, partition, records, joins=joins)
        return appended.base_offset

    async def committed(self, topic: str = "t", partition: int = 0) -> list[bytes | None]:
        """What a reader of committed messages gets, as clients do it."""
        found: list[bytes | None] = []
        at = 0
        while True:
            part = FetchPart(topic, partition, at, 1 << 20)
            (result,) = await self.fetched(Fetch([part], 1, 1 << 20, 0, read_committed=True))
            if result.error is not None:
                raise result.error
            if not any(result.buffers):
                return found
            found += visible(result.buffers[0], list(result.aborted))
            at = next_offset(result)

    async def bodies(self, queue: str = "q", *, count: int = 10) -> list[bytes]:
        return [message.body for message in await self.receive(queue, count=count)]

    async def receive(self, queue: str = "q", *, count: int = 10) -> list[Received]:
        return await self.queues.receive(queue, count_max=count).promise


def visible(data: bytes | bytearray | memoryview, aborted: list[tuple[int, int]]) -> list[bytes | None]:
    """The values of committed messages: a client's own bookkeeping of aborted transactions."""
    left = sorted(aborted, key=lambda one: one[1])
    within: set[int] = set()
    found: list[bytes | None] = []
    position = 0
    while position < len(data):
        header = read_header(data, position)
        while left and left[0][1] <= header.last_offset:
            within.add(left.pop(0)[0])
        whole = memoryview(data)[position : position + header.size]
        if is_marker(header):
            within.discard(header.producer_id)
        elif not header.is_control and not (header.is_transactional and header.producer_id in within):
            found += [record.value for record in decode_batch(whole)]
        position += header.size
    return found


def batch(producer: Producer, *values: bytes, sequence: int) -> memoryview:
    return memoryview(
        encode_batch(
            [Record(TIME_MS, None, value) for value in values],
            producer_id=producer.producer_id,
            producer_epoch=producer.epoch,
            base_sequence=sequence,
            is_transactional=True,
        )
    )


def messages(*bodies: bytes) -> list[Message]:
    return [Message(body) for body in bodies]
