"""What this node knows of the cluster: topics, partitions, queues, nodes. Reads never leave the node.

Theory of operation. The catalog is the state of the metadata store up to one revision. It begins with a full list and
moves on by the events of one watch (`driver.py` feeds it); an event at or below its revision was seen before and is
passed over (failure row 13). A batch of events is applied as a whole before any listener is told, so a listener that is
told of a topic finds its partitions here. Whoever writes to the store waits for `reached` before it answers, and so
sees its own change.
"""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from uuid import UUID

from headrace.cluster.record import (
    Keys,
    NodeAddress,
    PartitionRecord,
    SubscriptionRecord,
    TopicRecord,
    decode,
    queue_of,
    topic_of,
)
from headrace.cluster.store import START, Event, Listing, Revision
from headrace.model.errors import ShuttingDownError
from headrace.model.ids import NodeId, PartitionId
from headrace.model.queue import Queue
from headrace.model.topic import Topic

__all__ = [
    "Catalog",
    "CatalogChange",
    "NodeAddress",
    "QueueChanged",
    "QueueDeleted",
    "TopicChanged",
    "TopicCreated",
    "TopicDeleted",
]


@dataclass(frozen=True, slots=True)
class TopicCreated:
    topic: Topic


@dataclass(frozen=True, slots=True)
class TopicChanged:
    """Its settings or its partition count are others now."""

    topic: Topic
    before: Topic


@dataclass(frozen=True, slots=True)
class TopicDeleted:
    topic: Topic


@dataclass(frozen=True, slots=True)
class QueueChanged:
    """It was made, or its configuration is another now."""

    queue: Queue


@dataclass(frozen=True, slots=True)
class QueueDeleted:
    queue: Queue


CatalogChange = TopicCreated | TopicChanged | TopicDeleted | QueueChanged | QueueDeleted


class Catalog:
    """The cached view. The mappings are live and read-only: take what is needed before an await."""

    def __init__(self, *, cluster: str) -> None:
        self._keys = Keys(cluster)
        self._revision = START
        self._topics: dict[str, Topic] = {}
        self._topics_by_id: dict[UUID, Topic] = {}
        self._partitions: dict[PartitionId, PartitionRecord] = {}
        self._nodes: dict[NodeId, NodeAddress] = {}
        self._queues: dict[str, Queue] = {}
        self._listeners: list[Callable[[CatalogChange], None]] = []
        self._waiting: list[tuple[Revision, asyncio.Future[None]]] = []
        self._closed = False
        self.topics: Mapping[str, Topic] = MappingProxyType(self._topics)
        self.topics_by_id: Mapping[UUID, Topic] = MappingProxyType(self._topics_by_id)
        self.partitions: Mapping[PartitionId, PartitionRecord] = MappingProxyType(self._partitions)
        self.nodes: Mapping[NodeId, NodeAddress] = MappingProxyType(self._nodes)
        self.queues: Mapping[str, Queue] = MappingProxyType(self._queues)

    @property
    def keys(self) -> Keys:
        return self._keys

    @property
    def revision(self) -> Revision:
        return self._revision

    def on_change(self, listener: Callable[[CatalogChange], None]) -> None:
        """Call for every topic created, changed or deleted from now on, those of the first list among them.

        Called on the loop after the catalog shows the change; must not block.
        """
        self._listeners.append(listener)

    async def reached(self, revision: Revision) -> None:
        """Return once everything up to a revision shows here. The caller's deadline bounds the wait."""
        if self._revision >= revision:
            return
        if self._closed:
            raise ShuttingDownError("the catalog is no longer fed; retry on another node")
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        entry = (revision, future)
        self._waiting.append(entry)
        try:
            await future
        finally:
            if entry in self._waiting:
                self._waiting.remove(entry)

    # For the driver.

    def reset(self, listing: Listing) -> None:
        """Take over the full state at a revision. An older one than is known is passed over."""
        if listing.revision < self._revision:
            return
        before = dict(self._topics), dict(self._queues)
        self._topics.clear()
        self._partitions.clear()
        self._nodes.clear()
        self._queues.clear()
        for item in listing.items:
            self._put(item.key, item.value)
        self._move_to(listing.revision, before)

    def apply(self, events: Sequence[Event]) -> None:
        """Take over the events of one transaction."""
        if not events or events[0].mod_revision <= self._revision:
            return
        watched = (self._keys.topics, self._keys.subscriptions)
        is_watched = any(event.key.startswith(watched) for event in events)
        before = (dict(self._topics), dict(self._queues)) if is_watched else None
        for event in events:
            if event.value is None:
                self._delete(event.key)
            else:
                self._put(event.key, event.value)
        self._move_to(events[0].mod_revision, before)

    def close(self) -> None:
        """Nothing feeds it any longer: whoever waits for a revision is told."""
        self._closed = True
        for _, future in self._waiting:
            if not future.done():
                future.set_exception(ShuttingDownError("the catalog is no longer fed; retry on another node"))
        self._waiting.clear()

    def _put(self, key: str, value: bytes) -> None:
        keys = self._keys
        if key.startswith(keys.topics):
            name = key.removeprefix(keys.topics)
            self._topics[name] = topic_of(key, name, decode(key, value, TopicRecord))
        elif key.startswith(keys.partitions):
            self._partitions[keys.parse_partition(key)] = decode(key, value, PartitionRecord)
        elif key.startswith(keys.nodes):
            node = decode(key, value, NodeAddress)
            self._nodes[node.node_id] = node
        elif key.startswith(keys.subscriptions):
            name = key.removeprefix(keys.subscriptions)
            self._queues[name] = queue_of(key, name, decode(key, value, SubscriptionRecord))

    def _delete(self, key: str) -> None:
        keys = self._keys
        if key.startswith(keys.topics):
            self._topics.pop(key.removeprefix(keys.topics), None)
        elif key.startswith(keys.partitions):
            self._partitions.pop(keys.parse_partition(key), None)
        elif key.startswith(keys.nodes):
            self._nodes.pop(NodeId(int(key.removeprefix(keys.nodes))), None)
        elif key.startswith(keys.subscriptions):
            self._queues.pop(key.removeprefix(keys.subscriptions), None)

    def _move_to(self, revision: Revision, before: tuple[Mapping[str, Topic], Mapping[str, Queue]] | None) -> None:
        changes: list[CatalogChange] = []
        if before is not None:
            topics = _changes(before[0], self._topics)
            for moved in topics:
                if isinstance(moved, TopicDeleted):
                    del self._topics_by_id[moved.topic.id]
                else:
                    self._topics_by_id[moved.topic.id] = moved.topic
            changes = [*topics, *_queue_changes(before[1], self._queues)]
        self._revision = revision
        for change in changes:
            for listener in self._listeners:
                listener(change)
        due = [future for wanted, future in self._waiting if wanted <= revision]
        self._waiting = [(wanted, future) for wanted, future in self._waiting if wanted > revision]
        for future in due:
            if not future.done():
                future.set_result(None)


def _changes(
    before: Mapping[str, Topic], after: Mapping[str, Topic]
) -> list[TopicCreated | TopicChanged | TopicDeleted]:
    """What differs, deletions first: a name that was used again is another topic."""
    deleted: list[TopicCreated | TopicChanged | TopicDeleted] = []
    others: list[TopicCreated | TopicChanged | TopicDeleted] = []
    for name, old in before.items():
        new = after.get(name)
        if new is None or new.id != old.id:
            deleted.append(TopicDeleted(old))
    for name, new in after.items():
        known = before.get(name)
        if known is None or known.id != new.id:
            others.append(TopicCreated(new))
        elif known != new:
            others.append(TopicChanged(new, known))
    return deleted + others


def _queue_changes(before: Mapping[str, Queue], after: Mapping[str, Queue]) -> list[QueueChanged | QueueDeleted]:
    changes: list[QueueChanged | QueueDeleted] = [
        QueueDeleted(old) for name, old in before.items() if name not in after or after[name].id != old.id
    ]
    changes += [QueueChanged(new) for name, new in after.items() if before.get(name) != new]
    return changes
