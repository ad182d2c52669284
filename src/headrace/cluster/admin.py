"""Writes to the cluster's metadata, each decided from what was read and carried out only if that still holds.

Theory of operation. Every write reads, decides, and sends one transaction that compares the revisions it read. On a
conflict it reads and decides again, a bounded number of times. On an unclear answer it does the same and first looks
for its own write (failure row 12): a topic that carries the uuid that we drew is ours, whoever answered what. Before a
call returns, this node's catalog shows its effect (START is always reached: it stands for nothing to wait for).

A topic's own key is its commit point: it is written together with or after its partitions' keys and deleted before
them. Partition keys that no topic points to are left from a crash between the two, and mean nothing.
"""

import base64
import sys
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager
from itertools import islice
from typing import NamedTuple, TypeVar

import msgspec

from headrace.cluster.catalog import Catalog
from headrace.cluster.record import (
    FIRST_EPOCH,
    ClusterIdRecord,
    NodeAddress,
    PartitionRecord,
    ProducerIdRecord,
    TopicRecord,
    decode,
    encode,
    record_of,
    topic_of,
)
from headrace.cluster.retry import retried
from headrace.cluster.store import ABSENT, START, Item, LeaseId, Revision, Store
from headrace.host.clock import Clock
from headrace.host.rand import Rand
from headrace.model.errors import (
    InvalidConfigError,
    InvalidPartitionsError,
    InvalidReplicationError,
    TopicExistsError,
    UnknownTopicError,
)
from headrace.model.ids import Epoch, NodeId, PartitionId
from headrace.model.names import check_topic_name
from headrace.model.topic import Topic
from headrace.model.topic_setting import parse_config

PARTITION_COUNT_MAX = 10_000

T = TypeVar("T")


class PartitionLimits(NamedTuple):
    """How many partitions may be made. Each costs files, memory, and time at the start."""

    topic_max: int = PARTITION_COUNT_MAX
    # Those of headrace's own topics count, and are made also above it.
    node_max: int = sys.maxsize


UNLIMITED = PartitionLimits()


class StoredTopic(NamedTuple):
    """A topic, where it is stored, and the revision to compare."""

    key: str
    revision: Revision
    topic: Topic


class Admin:
    """Changes the metadata on behalf of one node."""

    def __init__(
        self,
        *,
        store: Store,
        catalog: Catalog,
        node_id: NodeId,
        clock: Clock,
        rand: Rand,
        limits: PartitionLimits = UNLIMITED,
    ) -> None:
        self._store = store
        self._catalog = catalog
        self._keys = catalog.keys
        self._node_id = node_id
        self._clock = clock
        self._rand = rand
        self._limits = limits
        self._being_made = 0  # partitions that the catalog does not show yet

    # Topics.

    async def create_topic(
        self,
        name: str,
        *,
        partition_count: int,
        replication_factor: int = 1,
        overrides: Mapping[str, str] | None = None,
        validate_only: bool = False,
        beside: Callable[[Topic], Mapping[str, bytes]] | None = None,
        is_internal: bool = False,
    ) -> Topic:
        """Create a topic that this node leads. With `validate_only`, say whether it could be and change nothing.

        `beside` gives keys that come into being with the topic or not at all. What is internal is headrace's own, and
        is made whatever the limits say.
        """
        check_topic_name(name)
        self._check_partition_count(name, partition_count, added=partition_count, is_internal=is_internal)
        if replication_factor != 1:
            raise InvalidReplicationError(f"{replication_factor} replicas need as many nodes; this cluster has 1")
        settings = dict(overrides or {})
        topic = Topic(
            name=name,
            id=self._rand.uuid(),
            partition_count=partition_count,
            replication_factor=replication_factor,
            overrides=settings,
            config=parse_config(settings),
        )
        _check_in_sync(topic)

        async def attempt() -> Revision:
            item = await self._store.get(self._keys.topic(name))
            if item is not None:
                if self._topic(item).id == topic.id:
                    return item.mod_revision  # an earlier attempt was carried out after all
                raise TopicExistsError(f"topic {name} exists; choose another name or delete it first")
            if validate_only:
                return START
            return await self._write_topic(topic, ABSENT, first_partition=0, beside=beside(topic) if beside else {})

        with self._making(partition_count):
            await self._catalog.reached(await self._retried(attempt))
        return topic

    async def delete_topic(self, name: str) -> Topic:
        """Delete a topic's metadata and return what it was. Its files are the log's to remove."""
        found: list[Topic] = []

        async def attempt() -> Revision:
            item = await self._store.get(self._keys.topic(name))
            if item is None and not found:
                raise UnknownTopicError(f"there is no topic {name}")
            if item is None or (found and self._topic(item).id != found[0].id):
                # An earlier attempt was carried out after all. At which revision is not known, so look at everything.
                listing = await self._store.list(self._keys.root)
                self._catalog.reset(listing)
                return START
            found[:] = [self._topic(item)]
            # Its queue goes with it: there is nothing left that it could hand out.
            deletes = [item.key, self._keys.subscription(name), self._keys.redrives_of(name)]
            return await self._store.transact(compares={item.key: item.mod_revision}, deletes=deletes)

        await self._catalog.reached(await self._retried(attempt))
        await self._delete_partitions(found[0])
        return found[0]

    async def set_partition_count(self, name: str, count: int, *, validate_only: bool = False) -> Topic:
        """Add partitions. Their number only grows, since what is in a partition cannot be moved to another."""
        known = self._catalog.topics.get(name)
        added = max(count - (0 if known is None else known.partition_count), 0)
        self._check_partition_count(name, count, added=added)
        goal: list[Topic] = []

        async def attempt() -> Revision:
            item, topic = await self._read(name)
            if goal and topic == goal[0]:
                return item.mod_revision  # an earlier attempt was carried out after all
            if count <= topic.partition_count:
                raise InvalidPartitionsError(
                    f"topic {name} has {topic.partition_count} partitions already; {count} would not add any"
                )
            goal[:] = [_with(topic, partition_count=count)]
            if validate_only:
                return START
            return await self._write_topic(goal[0], item.mod_revision, first_partition=topic.partition_count)

        with self._making(added):
            await self._catalog.reached(await self._retried(attempt))
        return goal[0]

    async def set_config(self, name: str, overrides: Mapping[str, str], *, validate_only: bool = False) -> Topic:
        """Replace all settings; what is not named goes back to its default."""
        return await self._change_config(name, lambda _: dict(overrides), validate_only=validate_only)

    async def change_config(
        self, name: str, changes: Mapping[str, str | None], *, validate_only: bool = False
    ) -> Topic:
        """Change some settings and leave the others. None sets one back to its default."""

        def change(before: Mapping[str, str]) -> dict[str, str]:
            merged = {**before, **changes}
            return {key: value for key, value in merged.items() if value is not None}

        return await self._change_config(name, change, validate_only=validate_only)

    async def read_topic(self, name: str) -> "StoredTopic":
        """A topic as the metadata has it now, for who decides by it."""
        item, topic = await self._read(name)
        return StoredTopic(item.key, item.mod_revision, topic)

    # The node and the cluster.

    async def raise_epochs(self) -> int:
        """Begin a new leader epoch in every partition that this node leads, and return how many those are.

        Called once when the node starts: what an earlier run of this node wrote is told from what this one writes.
        """

        async def attempt() -> tuple[Revision, int]:
            listing = await self._store.list(self._keys.partitions)
            led: dict[str, bytes] = {}
            compares: dict[str, Revision] = {}
            for item in listing.items:
                record = decode(item.key, item.value, PartitionRecord)
                if record.leader == self._node_id:
                    led[item.key] = encode(_raised(record))
                    compares[item.key] = item.mod_revision
            revision = START
            keys = iter(led)
            while chunk := list(islice(keys, self._store.operations_max)):
                revision = await self._store.transact(
                    compares={key: compares[key] for key in chunk}, puts={key: led[key] for key in chunk}
                )
            return revision, len(led)

        revision, count = await self._retried(attempt)
        await self._catalog.reached(revision)
        return count

    async def allocate_producer_ids(self, count: int) -> range:
        """Take a block of producer ids that nobody ever had. An unclear answer costs ids, never gives one twice."""
        key = self._keys.producer_ids

        async def attempt() -> range:
            item = await self._store.get(key)
            start = decode(key, item.value, ProducerIdRecord).next if item is not None else 0
            await self._store.transact(
                compares={key: _revision_of(item)}, puts={key: encode(ProducerIdRecord(next=start + count))}
            )
            return range(start, start + count)

        return await self._retried(attempt)

    async def cluster_id(self) -> str:
        """The cluster's id; drawn by whoever asks first, the same for ever after."""
        key = self._keys.cluster_id

        async def attempt() -> str:
            item = await self._store.get(key)
            if item is not None:
                return decode(key, item.value, ClusterIdRecord).id
            drawn = _cluster_id(self._rand)
            await self._store.transact(compares={key: ABSENT}, puts={key: encode(ClusterIdRecord(id=drawn))})
            return drawn

        return await self._retried(attempt)

    async def register_node(self, address: NodeAddress, *, lease: LeaseId | None = None) -> None:
        """Tell the cluster where this node is reached, for as long as the lease lives."""
        puts = {self._keys.node(address.node_id): encode(address)}
        revision = await self._retried(lambda: self._store.transact(puts=puts, lease=lease))
        await self._catalog.reached(revision)

    # How it is done.

    def _check_partition_count(self, name: str, count: int, *, added: int, is_internal: bool = False) -> None:
        topic_max, node_max = self._limits
        if not 1 <= count <= PARTITION_COUNT_MAX:
            raise InvalidPartitionsError(f"a topic has 1 to {PARTITION_COUNT_MAX} partitions, not {count}")
        if is_internal:
            return
        if count > topic_max:
            raise InvalidPartitionsError(
                f"a topic may have {topic_max} partitions on this node (topics.partitions_max), and {name} would have "
                f"{count}; ask for fewer, or raise the setting"
            )
        there = sum(topic.partition_count for topic in self._catalog.topics.values()) + self._being_made
        if there + added > node_max:
            raise InvalidPartitionsError(
                f"this node has {there} partitions and may have {node_max} (topics.node_partitions_max), so {name} "
                f"cannot add {added}; delete topics that are not needed, or raise the setting"
            )

    @contextmanager
    def _making(self, count: int) -> Iterator[None]:
        """Count partitions while they are made: others that are asked for meanwhile have to fit beside them."""
        self._being_made += count
        try:
            yield
        finally:
            self._being_made -= count

    async def _change_config(
        self, name: str, change: Callable[[Mapping[str, str]], dict[str, str]], *, validate_only: bool
    ) -> Topic:
        async def attempt() -> tuple[Revision, Topic]:
            item, topic = await self._read(name)
            overrides = change(topic.overrides)
            changed = _with(topic, overrides=overrides, config=parse_config(overrides))
            if changed == topic:
                return item.mod_revision, topic
            _check_in_sync(changed)
            compares = {item.key: item.mod_revision}
            if changed.config.is_compacted:
                await self._check_no_queue(name)
                compares[self._keys.subscription(name)] = ABSENT
            if validate_only:
                return START, changed
            puts = {item.key: encode(record_of(changed))}
            return await self._store.transact(compares=compares, puts=puts), changed

        revision, topic = await self._retried(attempt)
        await self._catalog.reached(revision)
        return topic

    async def _check_no_queue(self, name: str) -> None:
        if await self._store.get(self._keys.subscription(name)) is not None:
            raise InvalidConfigError(
                f"{name} is a queue, and a queue hands out each message, not the last one of each key; "
                "cleanup.policy stays delete"
            )

    async def _write_topic(
        self, topic: Topic, expected: Revision, *, first_partition: int, beside: Mapping[str, bytes] = {}
    ) -> Revision:
        """Write a topic and its partitions from a number on, in one transaction if the store takes so many keys."""
        record = encode(self._new_partition())
        keys = [self._keys.partition(PartitionId(topic.id, n)) for n in range(first_partition, topic.partition_count)]
        room = self._store.operations_max - 1 - len(beside)
        while len(keys) > room:
            await self._store.transact(puts=dict.fromkeys(keys[:room], record))
            del keys[:room]
        key = self._keys.topic(topic.name)
        puts = {**dict.fromkeys(keys, record), **beside, key: encode(record_of(topic))}
        return await self._store.transact(compares={key: expected}, puts=puts)

    async def _delete_partitions(self, topic: Topic) -> None:
        keys = [self._keys.partition(PartitionId(topic.id, n)) for n in range(topic.partition_count)]
        size = self._store.operations_max
        for start in range(0, len(keys), size):
            await self._delete(keys[start : start + size])

    async def _delete(self, keys: list[str]) -> None:
        await self._retried(lambda: self._store.transact(deletes=keys))

    def _new_partition(self) -> PartitionRecord:
        nodes = (int(self._node_id),)
        return PartitionRecord(replicas=nodes, leader=self._node_id, epoch=FIRST_EPOCH, in_sync=nodes)

    async def _read(self, name: str) -> tuple[Item, Topic]:
        item = await self._store.get(self._keys.topic(name))
        if item is None:
            raise UnknownTopicError(f"there is no topic {name}; create it first")
        return item, self._topic(item)

    def _topic(self, item: Item) -> Topic:
        name = item.key.removeprefix(self._keys.topics)
        return topic_of(item.key, name, decode(item.key, item.value, TopicRecord))

    async def _retried(self, attempt: Callable[[], Awaitable[T]]) -> T:
        return await retried(attempt, clock=self._clock, rand=self._rand)


def _check_in_sync(topic: Topic) -> None:
    """A minimum that the replicas cannot reach is refused here: whoever relies on it must not be told that it holds."""
    if topic.config.in_sync_min > topic.replication_factor:
        raise InvalidConfigError(
            f"min.insync.replicas={topic.config.in_sync_min} can never be reached with a replication factor of "
            f"{topic.replication_factor}; give {topic.replication_factor} at most"
        )


def _with(topic: Topic, **changes: object) -> Topic:
    return msgspec.structs.replace(topic, **changes)


def _raised(record: PartitionRecord) -> PartitionRecord:
    return PartitionRecord(
        replicas=record.replicas, leader=record.leader, epoch=Epoch(record.epoch + 1), in_sync=record.in_sync
    )


def _revision_of(item: Item | None) -> Revision:
    return item.mod_revision if item is not None else ABSENT


def _cluster_id(rand: Rand) -> str:
    """22 characters, the form that Kafka's tools expect. One that begins with '-' would look like an option."""
    while True:
        text = base64.urlsafe_b64encode(rand.uuid().bytes).rstrip(b"=").decode()
        if not text.startswith("-"):
            return text
