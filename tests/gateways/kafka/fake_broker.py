"""A broker in memory with the interface that the gateway calls, small enough to be obviously right.

A partition is a list of batches. Tests can hold appends back (`hold`), and read what was asked of the broker.
"""

import asyncio
from collections.abc import Awaitable, Iterable, Iterator, Mapping, Sequence
from uuid import UUID

from headrace.broker.config import BrokerConfig
from headrace.broker.fetch import Fetch, Fetched, FetchPart, Room
from headrace.broker.pending import Appended
from headrace.broker.promise import Promise
from headrace.cluster.catalog import NodeAddress
from headrace.folds.producer import ProducerState
from headrace.model.batch import CRC_START, HEADER_SIZE, assign, read_header
from headrace.model.errors import (
    CorruptBatchError,
    FencedEpochError,
    HeadraceError,
    InvalidPartitionsError,
    InvalidReplicationError,
    OffsetOutOfRangeError,
    TopicExistsError,
    UnknownEpochError,
    UnknownTopicError,
    UnknownTopicIdError,
)
from headrace.model.ids import NO_EPOCH, Epoch, NodeId, Offset, PartitionId
from headrace.model.queue import Queue
from headrace.model.topic import Topic
from headrace.model.topic_setting import parse_config
from headrace.wire.crc import crc32c

NODE_ID = NodeId(1)
EPOCH = Epoch(3)
PARTITION_COUNT_MAX = 1000
LogEntry = tuple[int, int, int, bytes]  # base offset, last offset, largest timestamp, batch


class FakePartition:
    def __init__(self, broker: "FakeBroker", id: PartitionId) -> None:
        self._broker = broker
        self.id = id
        self.epoch = EPOCH
        self.log: list[LogEntry] = []
        self.start_offset = Offset(0)

    @property
    def end_offset(self) -> Offset:
        return Offset(self.log[-1][1] + 1 if self.log else self.start_offset)

    @property
    def high_watermark(self) -> Offset:
        return self.end_offset

    @property
    def last_stable_offset(self) -> Offset:
        return self.end_offset

    @property
    def size_bytes(self) -> int:
        return sum(len(entry[3]) for entry in self.log)

    def append(self, records: memoryview) -> Promise[Appended]:
        promise: Promise[Appended] = Promise()
        self._broker.appends += 1
        if self._broker.hold:
            self._broker.held.append((self, records, promise))
        else:
            self.store(records, promise)
        return promise

    def store(self, records: memoryview, promise: Promise[Appended]) -> None:
        if self._broker.failure is not None:
            promise.fail(self._broker.failure)
            return
        if len(records) < HEADER_SIZE or read_header(records).size != len(records):
            promise.fail(CorruptBatchError("size"))
            return
        header = read_header(records)
        if header.magic != 2 or crc32c(records[CRC_START:]) != header.crc:
            promise.fail(CorruptBatchError("checksum"))
            return
        base = self.end_offset
        assign(records, 0, base, self.epoch)
        last = Offset(base + header.last_offset_delta)
        self.log.append((base, last, header.max_timestamp_ms, bytes(records)))
        self._broker.wake()
        if not promise.done():
            promise.keep(Appended(base, last, -1, self.start_offset))

    def epoch_end(self, epoch: Epoch) -> tuple[Epoch, Offset]:
        return (EPOCH, self.end_offset) if epoch == EPOCH else (NO_EPOCH, Offset(-1))

    def check_epoch(self, epoch: Epoch) -> None:
        if epoch != NO_EPOCH and epoch < self.epoch:
            raise FencedEpochError("the epoch is over")
        if epoch > self.epoch:
            raise UnknownEpochError("the epoch has not begun")

    async def offset_for_time(self, timestamp_ms: int) -> tuple[Offset, int] | None:
        for base, _, time_ms, _ in self.log:
            if time_ms >= timestamp_ms:
                return Offset(base), time_ms
        return None

    async def max_timestamp(self, *, upto: Offset) -> tuple[Offset, int]:
        best = max(self.log, key=lambda entry: entry[2], default=None)
        return (Offset(best[1]), best[2]) if best else (Offset(-1), -1)

    def producers(self) -> Iterator[tuple[int, ProducerState]]:
        return iter(())

    async def delete_records(self, before: Offset) -> Offset:
        self._broker.making += 1
        if self._broker.gate is not None:
            await self._broker.gate.wait()
        target = self.high_watermark if before == -1 else before
        if target > self.high_watermark:
            raise OffsetOutOfRangeError("above the end", start=self.start_offset, end=self.end_offset)
        self.start_offset = Offset(target)
        return self.start_offset


class FakeCatalog:
    def __init__(self) -> None:
        self.revision = 1
        self.topics: dict[str, Topic] = {}
        self.topics_by_id: dict[UUID, Topic] = {}
        self.queues: dict[str, Queue] = {}

    def put(self, topic: Topic) -> None:
        self.topics[topic.name] = self.topics_by_id[topic.id] = topic
        self.revision += 1

    def drop(self, topic: Topic) -> None:
        del self.topics[topic.name], self.topics_by_id[topic.id]
        self.revision += 1


class FakeBroker:
    def __init__(self, *, auto_create: bool = True) -> None:
        self.node_id = NODE_ID
        self.cluster_id = "fake-cluster"
        self.catalog = FakeCatalog()
        self.data_directory = "/data"
        self.config = BrokerConfig()
        self.auto_create = auto_create
        self.addresses = [NodeAddress(node_id=NODE_ID, host="localhost", port=9092)]
        self.appends = 0
        self.hold = False
        self.held: list[tuple[FakePartition, memoryview, Promise[Appended]]] = []
        self.failure: Exception | None = None
        self.incomplete: set[str] = set()  # topics whose files are not all there
        self.gate: asyncio.Event | None = None  # what makes a topic or deletes records waits for it
        self.making = 0
        self._partitions: dict[PartitionId, FakePartition] = {}
        self._waiting: set[asyncio.Event] = set()
        self._ids = 0

    # What tests do to it.

    def add(self, name: str, partition_count: int = 1) -> Topic:
        self._ids += 1
        topic = Topic(name=name, id=UUID(int=0xABC000 + self._ids), partition_count=partition_count)
        self._store(topic)
        return topic

    def release(self, index: int = 0) -> None:
        partition, records, promise = self.held.pop(index)
        partition.store(records, promise)

    def wake(self) -> None:
        for event in self._waiting:
            event.set()

    @property
    def waiting_count(self) -> int:
        return len(self._waiting)

    def log(self, name: str, index: int = 0) -> list[LogEntry]:
        return self._partitions[PartitionId(self.catalog.topics[name].id, index)].log

    # What the gateway asks of it.

    def nodes(self) -> Sequence[NodeAddress]:
        return self.addresses

    def partition(self, topic: str | UUID, index: int) -> FakePartition:
        if isinstance(topic, UUID):
            found = self.catalog.topics_by_id.get(topic)
            if found is None:
                raise UnknownTopicIdError(f"no topic {topic}")
        else:
            found = self.catalog.topics.get(topic)
        if found is None or not 0 <= index < found.partition_count:
            raise UnknownTopicError(f"no partition {topic}-{index}")
        return self._partitions[PartitionId(found.id, index)]

    def partitions(self) -> Iterable[FakePartition]:
        return self._partitions.values()

    def readable_bytes(self, request: Fetch) -> int:
        return sum(len(buffer) for part in request.parts for buffer in self._read(part).buffers)

    def positions(self, request: Fetch) -> list[Fetched]:
        return [self._read(part)._replace(buffers=[]) for part in request.parts]

    def fetch(self, request: Fetch, room: Room | None = None) -> list[Fetched] | Awaitable[list[Fetched]]:
        fetched = [self._read(part) for part in request.parts]
        if request.wait_ms == 0 or self._enough(fetched, request.bytes_min):
            return fetched
        return self._poll(request)

    async def _poll(self, request: Fetch) -> list[Fetched]:
        event = asyncio.Event()
        self._waiting.add(event)
        try:
            async with asyncio.timeout(request.wait_ms / 1000):
                while not self._enough(fetched := [self._read(part) for part in request.parts], request.bytes_min):
                    event.clear()
                    await event.wait()
        except TimeoutError:
            fetched = [self._read(part) for part in request.parts]
        finally:
            self._waiting.discard(event)
        return fetched

    @staticmethod
    def _enough(fetched: list[Fetched], bytes_min: int) -> bool:
        size = sum(len(buffer) for one in fetched for buffer in one.buffers)
        return size >= bytes_min or any(one.error for one in fetched)

    def _read(self, part: FetchPart) -> Fetched:
        try:
            partition = self.partition(part.topic, part.partition)
            partition.check_epoch(Epoch(part.epoch))
            start, end = partition.start_offset, partition.end_offset
            if not start <= part.offset <= end:
                raise OffsetOutOfRangeError("out of range", start=start, end=end)
        except HeadraceError as error:
            return Fetched(error, -1, -1, -1, [], None)
        buffers = [batch for _, last, _, batch in partition.log if last >= part.offset]
        return Fetched(None, end, end, start, list(buffers), None)

    def is_complete(self, topic: Topic) -> bool:
        return topic.name not in self.incomplete

    async def ensure_topic(self, name: str) -> Topic:
        self.making += 1
        if self.gate is not None:
            await self.gate.wait()
        if name in self.incomplete:
            self.incomplete.remove(name)
            return self.catalog.topics[name]
        if not self.auto_create:
            raise UnknownTopicError(f"no topic is called {name}")
        return self.add(name)

    async def create_topic(
        self,
        name: str,
        *,
        partition_count: int = -1,
        replication_factor: int = -1,
        overrides: Mapping[str, str] = {},
        validate_only: bool = False,
    ) -> Topic:
        if name in self.catalog.topics:
            raise TopicExistsError(f"{name} exists")
        if partition_count > PARTITION_COUNT_MAX:
            raise InvalidPartitionsError("too many")
        if replication_factor > 1:
            raise InvalidReplicationError("one node")
        self._ids += 1
        topic = Topic(
            name=name,
            id=UUID(int=0xABC000 + self._ids),
            partition_count=partition_count if partition_count > 0 else 1,
            overrides=dict(overrides),
            config=parse_config(overrides),
        )
        if not validate_only:
            self._store(topic)
        return topic

    async def delete_topic(self, topic: str | UUID) -> Topic:
        found = self.partition(topic, 0).id.topic_id
        gone = self.catalog.topics_by_id[found]
        self.catalog.drop(gone)
        for index in range(gone.partition_count):
            del self._partitions[PartitionId(gone.id, index)]
        return gone

    async def create_partitions(self, name: str, count: int, *, validate_only: bool = False) -> Topic:
        topic = self.catalog.topics.get(name)
        if topic is None:
            raise UnknownTopicError(f"no topic is called {name}")
        if not topic.partition_count < count <= PARTITION_COUNT_MAX:
            raise InvalidPartitionsError("not more than there are")
        if not validate_only:
            self._store(Topic(name=name, id=topic.id, partition_count=count, overrides=topic.overrides))
        return self.catalog.topics[name]

    async def alter_config(self, name: str, overrides: Mapping[str, str], *, validate_only: bool = False) -> Topic:
        topic = self.catalog.topics[name]
        config = parse_config(overrides)
        if not validate_only:
            self.catalog.put(
                Topic(
                    name=name,
                    id=topic.id,
                    partition_count=topic.partition_count,
                    overrides=dict(overrides),
                    config=config,
                )
            )
        return self.catalog.topics[name]

    async def allocate_producer_id(self) -> int:
        self._ids += 1
        return 4000 + self._ids

    def disk_free_bytes(self) -> int:
        return 123_456_789

    def _store(self, topic: Topic) -> None:
        self.catalog.put(topic)
        for index in range(topic.partition_count):
            id = PartitionId(topic.id, index)
            self._partitions.setdefault(id, FakePartition(self, id))
