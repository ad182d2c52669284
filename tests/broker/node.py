"""A broker with everything below it simulated, that can be stopped, killed and brought back."""

import asyncio
from collections.abc import Coroutine, Sequence
from typing import Any, Protocol

from headrace.broker.broker import Broker
from headrace.broker.config import BrokerConfig
from headrace.broker.fetch import Fetch, Fetched, FetchPart
from headrace.broker.partition import Partition
from headrace.broker.pending import Appended
from headrace.broker.queue.config import QueuesConfig
from headrace.broker.queue.queues import NodeQueues
from headrace.cluster.admin import Admin
from headrace.cluster.catalog import Catalog
from headrace.cluster.driver import CatalogDriver
from headrace.cluster.queue_admin import QueueAdmin
from headrace.host.threads import Threads
from headrace.log.config import LogConfig
from headrace.log.driver import LogStore
from headrace.model.batch import read_header
from headrace.model.ids import NodeId, PartitionId
from headrace.testing.clock import SimulatedClock, settle
from headrace.testing.disk import SimulatedDisk
from headrace.testing.rand import SeededRand
from headrace.testing.store import MemoryStore
from headrace.testing.threads import InlineThreads
from headrace.wire.kafka.records import Record, decode_batch, encode_batch

DIRECTORY = "/data"
LOG_CONFIG = LogConfig(
    journal_bytes=32 * 1024,
    journal_append_bytes_max=2000,
    checkpoint_bytes=64 * 1024,
    disk_reserve_bytes=10_000,
    open_files_max=16,
)


QUEUES_CONFIG = QueuesConfig()


class Node:
    """One node. Metadata and disk outlive the broker that works on them."""

    def __init__(
        self,
        *,
        disk: SimulatedDisk | None = None,
        config: BrokerConfig | None = None,
        log_config: LogConfig = LOG_CONFIG,
        queues_config: QueuesConfig = QUEUES_CONFIG,
        sync_threads: Threads | None = None,
        read_threads: Threads | None = None,
        seed: int = 1,
    ) -> None:
        self.disk = disk or SimulatedDisk()
        self.clock = SimulatedClock()
        self.store = MemoryStore(self.clock)
        self.config = config or BrokerConfig()
        self.log_config = log_config
        self.queues_config = queues_config
        self.rand = SeededRand(seed)
        self.sync_threads = InlineThreads() if sync_threads is None else sync_threads
        self.read_threads = InlineThreads() if read_threads is None else read_threads

    async def start(self) -> "Node":
        self.catalog = Catalog(cluster="c")
        driver = CatalogDriver(store=self.store, catalog=self.catalog, clock=self.clock, rand=self.rand)
        await driver.load()
        self._follow = asyncio.create_task(driver.run())
        admin = Admin(store=self.store, catalog=self.catalog, node_id=NodeId(1), clock=self.clock, rand=self.rand)
        await admin.raise_epochs()
        self.logs = LogStore(
            disk=self.disk,
            clock=self.clock,
            rand=self.rand,
            sync_threads=self.sync_threads,
            read_threads=self.read_threads,
            directory=DIRECTORY,
            config=self.log_config,
        )
        await self.logs.start(
            {
                PartitionId(topic.id, index): topic.config
                for topic in self.catalog.topics.values()
                for index in range(topic.partition_count)
            }
        )
        self.broker = Broker(
            node_id=NodeId(1),
            cluster_id="cluster",
            catalog=self.catalog,
            admin=admin,
            logs=self.logs,
            clock=self.clock,
            disk=self.disk,
            threads=self.sync_threads,
            data_directory=DIRECTORY,
            config=self.config,
        )
        await self.broker.start()
        self.queues = NodeQueues(
            broker=self.broker,
            admin=QueueAdmin(admin=admin, store=self.store, catalog=self.catalog, clock=self.clock, rand=self.rand),
            catalog=self.catalog,
            logs=self.logs,
            clock=self.clock,
            rand=self.rand,
            threads=self.sync_threads,
            config=self.queues_config,
        )
        await self.queues.start()
        return self

    async def restart(self) -> None:
        """Stop cleanly and come back."""
        await self.queues.stop()
        await self.logs.stop()
        self._follow.cancel()
        await self.start()

    async def kill(self) -> None:
        """Die without a word, and come back on what the disk shows."""
        self.abandon()
        await self.start()

    def abandon(self) -> None:
        self._follow.cancel()
        self.queues.abandon()
        for task in list(self.logs._tasks):
            task.cancel()

    async def make(self, name: str = "t", partitions: int = 1, **overrides: str) -> Partition:
        """A topic; returns its first partition."""
        settings = {key.replace("_", "."): value for key, value in overrides.items()}
        await self.broker.create_topic(name, partition_count=partitions, overrides=settings)
        return self.broker.partition(name, 0)

    async def fetched(self, request: Fetch) -> list[Fetched]:
        result = self.broker.fetch(request)
        return result if isinstance(result, list) else await result

    async def values(self, name: str = "t", partition: int = 0, offset: int | None = None) -> list[bytes | None]:
        """Everything committed from an offset on, read as a consumer does."""
        found: list[bytes | None] = []
        at = self.broker.partition(name, partition).start_offset if offset is None else offset
        while True:
            (result,) = await self.fetched(fetch(at, topic=name, partition=partition))
            if result.error is not None:
                raise result.error
            if not any(result.buffers):
                return found
            found += [record.value for record in records_of(result) if record.offset >= at]
            at = next_offset(result)


def fetch(
    offset: int,
    *,
    topic: str = "t",
    partition: int = 0,
    bytes_max: int = 1 << 20,
    bytes_min: int = 1,
    wait_ms: int = 0,
) -> Fetch:
    return Fetch([FetchPart(topic, partition, offset, bytes_max)], bytes_min, bytes_max, wait_ms)


def records_of(result: Fetched) -> list[Record]:
    records: list[Record] = []
    for buffer in result.buffers:
        position = 0
        while position < len(buffer):
            header = read_header(buffer, position)
            if not header.is_control:
                records += decode_batch(memoryview(buffer)[position : position + header.size])
            position += header.size
    return records


def next_offset(result: Fetched) -> int:
    at = 0
    for buffer in result.buffers:
        position = 0
        while position < len(buffer):
            header = read_header(buffer, position)
            position += header.size
            at = header.next_offset
    return at


def batch(*values: bytes, timestamp_ms: int = 1_700_000_000_000, codec: int = 0) -> memoryview:
    return memoryview(encode_batch([Record(timestamp_ms, None, value) for value in values], codec=codec))


def produced(
    *values: bytes, producer_id: int = 7, epoch: int = 0, sequence: int, timestamp_ms: int = 1_700_000_000_000
) -> memoryview:
    """A batch of an idempotent producer."""
    records = [Record(timestamp_ms, None, value) for value in values]
    return memoryview(encode_batch(records, producer_id=producer_id, producer_epoch=epoch, base_sequence=sequence))


class Sent(Protocol):
    """The answer to a send, when it comes."""

    def done(self) -> bool: ...

    def exception(self) -> BaseException | None: ...

    def result(self) -> Appended: ...


async def gathered(sends: Sequence[Sent]) -> list[Appended | BaseException]:
    """Every answer, all of which are there once the loop has turned."""
    await settle()
    assert all(sent.done() for sent in sends)
    return [sent.exception() or sent.result() for sent in sends]


def run(main: Coroutine[Any, Any, None]) -> None:
    async def bounded() -> None:
        await asyncio.wait_for(main, 30)

    asyncio.run(bounded())
