"""The node's use cases, free of any protocol: produce and fetch through partitions, and administration.

Metadata is changed first and files follow: a topic whose folders a crash has not let come into being gets them at the
next start, one whose folders are lost is offline (`log/made.py`), and a folder that no metadata speaks of is left
alone. A change goes on to its end, whether or not whoever asked for it still waits.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from uuid import UUID

from headrace.broker.config import BrokerConfig
from headrace.broker.fetch import Fetch, Fetched, Fetcher, Room
from headrace.broker.partition import Partition
from headrace.broker.under_way import UnderWay
from headrace.cluster.admin import Admin
from headrace.cluster.catalog import Catalog, CatalogChange, NodeAddress, TopicChanged, TopicDeleted
from headrace.host.clock import Clock
from headrace.host.disk import Disk
from headrace.host.threads import Threads
from headrace.log.disk_error import reading
from headrace.log.driver import LogStore
from headrace.model.errors import (
    CorruptLogError,
    InvalidPartitionsError,
    InvalidRequestError,
    PartitionOfflineError,
    TopicExistsError,
    UnknownTopicError,
    UnknownTopicIdError,
)
from headrace.model.ids import Epoch, NodeId, PartitionId
from headrace.model.names import INTERNAL_NAMES, check_topic_name
from headrace.model.topic import Topic

# Producer ids taken from the metadata store at a time.
_PRODUCER_ID_BLOCK = 1000


class Broker:
    def __init__(
        self,
        *,
        node_id: NodeId,
        cluster_id: str,
        catalog: Catalog,
        admin: Admin,
        logs: LogStore,
        clock: Clock,
        disk: Disk,
        threads: Threads,
        data_directory: str,
        config: BrokerConfig,
    ) -> None:
        self.node_id = node_id
        self.cluster_id = cluster_id
        self.catalog = catalog
        self.config = config
        self.data_directory = data_directory
        self._admin = admin
        self._logs = logs
        self._clock = clock
        self._disk = disk
        self._threads = threads
        self._partitions: dict[PartitionId, Partition] = {}
        # The same by topic name and by topic id, for every produce and fetch.
        self._by_place: dict[tuple[str | UUID, int], Partition] = {}
        # Topics whose files are being made or removed, and the end of that.
        self._busy: dict[str, asyncio.Future[None]] = {}
        self.under_way = UnderWay()
        self._producer_ids: Iterable[int] = iter(())
        self._producer_id_lock = asyncio.Lock()
        self._fetcher = Fetcher(find=self.partition, store=logs, clock=clock)
        catalog.on_change(self._topic_changed)

    async def start(self) -> None:
        """Take over the logs that were opened, and bring their folds up to their ends."""
        for id, partition_log in list(self._logs.logs.items()):
            try:
                with reading(partition_log.directory):
                    await self._take_over(id)
            except (CorruptLogError, PartitionOfflineError) as error:
                # Only the replay of the folds can find such damage. The other partitions are served.
                partition_log.fail(error)
                self._logs.refused[id] = error

    async def stop(self) -> None:
        """Let the changes that were begun end; the logs go on until then."""
        await self.under_way.finished()

    async def _take_over(self, id: PartitionId) -> None:
        partition = Partition(
            log=self._logs.logs[id],
            store=self._logs,
            clock=self._clock,
            epoch=Epoch(self.catalog.partitions[id].epoch),
        )
        if partition.end_offset:
            await self._threads.run(partition.restore_folds)
        self._partitions[id] = partition
        topic = self.catalog.topics_by_id.get(id.topic_id)
        if topic is not None:
            self._by_place[topic.name, id.partition] = self._by_place[topic.id, id.partition] = partition

    # Where things are.

    def nodes(self) -> Sequence[NodeAddress]:
        return list(self.catalog.nodes.values())

    def topic(self, topic: str | UUID) -> Topic:
        found = self.catalog.topics.get(topic) if isinstance(topic, str) else self.catalog.topics_by_id.get(topic)
        if found is not None:
            return found
        if isinstance(topic, str):
            raise UnknownTopicError(f"topic {topic} does not exist; create it, or check the name")
        raise UnknownTopicIdError(f"no topic has the id {topic}; it was deleted, refresh metadata")

    def partition(self, topic: str | UUID, index: int) -> Partition:
        partition = self._by_place.get((topic, index))
        if partition is not None:
            if partition.log.broken is not None:
                partition.log.check_usable()
            return partition
        found = self.topic(topic)
        id = PartitionId(found.id, index)
        if refused := self._logs.refused.get(id):
            raise PartitionOfflineError(f"{found.name}-{index} could not be opened: {refused}") from refused
        raise UnknownTopicError(f"topic {found.name} has partitions 0 to {found.partition_count - 1}, not {index}")

    def partitions(self) -> Iterable[Partition]:
        return self._partitions.values()

    def disk_free_bytes(self) -> int:
        return self._disk.free_bytes(self.data_directory)

    # Read.

    def fetch(self, request: Fetch, room: Room | None = None) -> list[Fetched] | Awaitable[list[Fetched]]:
        """Stored bytes by offset: at once where that can be, else when there is enough or the time is over."""
        return self._fetcher.fetch(request, room)

    def readable_bytes(self, request: Fetch) -> int:
        """About how many bytes a fetch could answer now."""
        return self._fetcher.readable_bytes(request)

    def positions(self, request: Fetch) -> list[Fetched]:
        """The answer to a fetch without its bytes."""
        return self._fetcher.positions(request)

    # Administration.

    async def ensure_topic(self, name: str) -> Topic:
        """The topic of this name, made now if the configuration allows that."""
        await self.settled(name)
        topic = self.catalog.topics.get(name)
        if topic is None:
            check_topic_name(name)
            if name in INTERNAL_NAMES:
                raise UnknownTopicError(f"{name} does not exist yet; headrace makes it when it first needs it")
            if not self.config.auto_create_topics:
                raise UnknownTopicError(f"topic {name} does not exist, and topics are not created on first use here")
            try:
                return await self.create_topic(name)
            except TopicExistsError:
                return self.topic(name)
        await self.complete_topic(topic)
        return topic

    async def complete_topic(self, topic: Topic) -> None:
        """Make what is missing of a topic's files: an earlier attempt may have written the metadata and no more."""
        if self.is_complete(topic):
            return
        await self.under_way.carry_out(self._complete_topic(topic))

    async def _complete_topic(self, topic: Topic) -> None:
        await self.settled(topic.name)
        if not self.is_complete(topic):
            with self._changing(topic.name):
                await self._open_new(topic)

    def is_complete(self, topic: Topic) -> bool:
        return not self._missing(topic)

    async def create_topic(
        self,
        name: str,
        *,
        partition_count: int = -1,
        replication_factor: int = -1,
        overrides: Mapping[str, str] = {},
        validate_only: bool = False,
        beside: Callable[[Topic], Mapping[str, bytes]] | None = None,
        is_internal: bool = False,
    ) -> Topic:
        """Make a topic and its files. `beside` gives metadata that comes into being with it or not at all.

        A topic of headrace's own is made only by who says so, since its partitions and settings stay for ever.
        """
        if name in INTERNAL_NAMES and not is_internal:
            raise InvalidRequestError(f"{name} is headrace's own, which makes it when it first needs it")
        config = self.config

        async def create() -> Topic:
            if name in self._busy:
                raise TopicExistsError(f"topic {name} is being created or deleted")
            with self._changing(name):
                topic = await self._admin.create_topic(
                    name,
                    partition_count=config.default_partition_count if partition_count == -1 else partition_count,
                    replication_factor=(
                        config.default_replication_factor if replication_factor == -1 else replication_factor
                    ),
                    overrides={**config.topic_defaults, **overrides},
                    validate_only=validate_only,
                    beside=beside,
                    is_internal=is_internal,
                )
                if not validate_only:
                    await self._open_new(topic)
                return topic

        return await self.under_way.carry_out(create())

    async def delete_topic(self, topic: str | UUID) -> Topic:
        return await self.under_way.carry_out(self._delete_topic(topic))

    async def _delete_topic(self, topic: str | UUID) -> Topic:
        name = self.topic(topic).name
        if name in INTERNAL_NAMES:
            raise InvalidRequestError(f"{name} is headrace's own and cannot be deleted; delete what it holds instead")
        await self.settled(name)
        with self._changing(name):
            deleted = await self._admin.delete_topic(self.topic(topic).name)
            for index in range(deleted.partition_count):
                id = PartitionId(deleted.id, index)
                self._partitions.pop(id, None)
                await self._logs.delete(id)
        return deleted

    async def create_partitions(self, name: str, count: int, *, validate_only: bool = False) -> Topic:
        return await self.under_way.carry_out(self._create_partitions(name, count, validate_only=validate_only))

    async def _create_partitions(self, name: str, count: int, *, validate_only: bool) -> Topic:
        if name in INTERNAL_NAMES:
            # Whatever lives there was put where the hash of its name, and the count, said.
            raise InvalidPartitionsError(f"{name} keeps the partitions that it was made with")
        await self.settled(name)
        queue = self.catalog.queues.get(name)
        if queue is not None and queue.config.ordered:
            raise InvalidPartitionsError(
                f"queue {name} is ordered, and a key's next messages could be in another partition than what waits "
                "and pass them; set ordered to false first, and to true again once the queue holds no message"
            )
        with self._changing(name):
            topic = await self._admin.set_partition_count(name, count, validate_only=validate_only)
            if not validate_only:
                await self._open_new(topic)
        return topic

    async def settled(self, name: str) -> None:
        """Wait until nobody makes or removes files of a topic."""
        while (busy := self._busy.get(name)) is not None:
            await asyncio.shield(busy)

    @contextmanager
    def _changing(self, name: str) -> Iterator[None]:
        """Keep others from making or removing files of a topic meanwhile."""
        assert name not in self._busy, f"{name} is being changed"
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._busy[name] = done
        try:
            yield
        finally:
            del self._busy[name]
            done.set_result(None)

    async def alter_config(self, name: str, overrides: Mapping[str, str], *, validate_only: bool = False) -> Topic:
        """Replace a topic's settings; the logs follow before this returns."""
        if name in INTERNAL_NAMES:
            raise InvalidRequestError(f"{name} is headrace's own and keeps its settings: what it holds must not expire")
        return await self.under_way.carry_out(self._admin.set_config(name, overrides, validate_only=validate_only))

    async def allocate_producer_id(self) -> int:
        """An id that no producer ever had."""
        async with self._producer_id_lock:
            for producer_id in self._producer_ids:
                return producer_id
            self._producer_ids = iter(await self._admin.allocate_producer_ids(_PRODUCER_ID_BLOCK))
            return next(iter(self._producer_ids))

    async def _open_new(self, topic: Topic) -> None:
        missing = self._missing(topic)
        await self._logs.create(dict.fromkeys(missing, topic.config))
        for id in missing:
            await self._take_over(id)

    def _missing(self, topic: Topic) -> list[PartitionId]:
        """Partitions of a topic that have no files yet. One that could not be opened has some."""
        ids = [PartitionId(topic.id, index) for index in range(topic.partition_count)]
        return [id for id in ids if id not in self._partitions and id not in self._logs.refused]

    def _topic_changed(self, change: CatalogChange) -> None:
        if isinstance(change, TopicDeleted):
            for index in range(change.topic.partition_count):
                self._by_place.pop((change.topic.name, index), None)
                self._by_place.pop((change.topic.id, index), None)
        if isinstance(change, TopicChanged):
            for index in range(change.topic.partition_count):
                partition = self._partitions.get(PartitionId(change.topic.id, index))
                if partition is not None:
                    partition.reconfigure(change.topic.config)

    def expire_producers(self) -> None:
        for partition in self._partitions.values():
            partition.expire_producers(self.config.producer_expiry_ms)
