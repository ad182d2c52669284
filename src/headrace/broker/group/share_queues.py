"""From a partition's place to the queue that is at work there."""

from collections.abc import Sequence
from contextlib import suppress
from typing import Protocol

from headrace.broker.queue.live_queue import LiveQueue
from headrace.broker.queue.partition_queue import PartitionQueue
from headrace.cluster.catalog import Catalog
from headrace.model.errors import (
    HeadraceError,
    InvalidRequestError,
    StaleReceiptError,
    UnknownTopicError,
    UnknownTopicIdError,
)
from headrace.model.group_setting import GroupConfig
from headrace.model.ids import PartitionId
from headrace.model.queue import Queue, QueueConfig

_LEASE_MS_DEFAULT = QueueConfig().lease_ms


class OpenQueues(Protocol):
    async def live(self, name: str) -> LiveQueue: ...


class SharedQueues:
    def __init__(self, queues: OpenQueues, catalog: Catalog) -> None:
        self._queues = queues
        self._catalog = catalog
        self._opened: dict[str, LiveQueue] = {}  # those of which something was handed out

    def find(self, place: PartitionId) -> Queue:
        """The queue of a partition, or why there is none."""
        topic = self._catalog.topics_by_id.get(place.topic_id)
        if topic is None:
            raise UnknownTopicIdError(f"no topic has the id {place.topic_id}")
        queue = self._catalog.queues.get(topic.name)
        if queue is None:
            raise not_a_queue(topic.name)
        if not 0 <= place.partition < topic.partition_count:
            raise UnknownTopicError(f"queue {topic.name} has no partition {place.partition}")
        return queue

    async def open(self, place: PartitionId) -> LiveQueue:
        queue = self.find(place)
        live = self._at_work(queue)
        if live is None:
            live = self._opened[queue.name] = await self._queues.live(queue.name)
        return live

    def held(self, place: PartitionId) -> tuple[LiveQueue, PartitionQueue]:
        """The same for somebody who was handed something out of it."""
        queue = self.find(place)
        live = self._at_work(queue)
        if live is None or place.partition >= live.partitions.count:
            raise StaleReceiptError(f"nothing of partition {place.partition} of {queue.name} is held here")
        return live, live.partitions.at(place.partition)

    def lease_ms(self, config: GroupConfig, places: Sequence[PartitionId]) -> int:
        """The group's own time, or the shortest of the queues': what a consumer of all of them has to keep to."""
        if config.share_lock_ms is not None:
            return config.share_lock_ms
        lengths = []
        for place in places:
            with suppress(HeadraceError):
                lengths.append(self.find(place).config.lease_ms)
        return min(lengths, default=_LEASE_MS_DEFAULT)

    def _at_work(self, queue: Queue) -> LiveQueue | None:
        live = self._opened.get(queue.name)
        if live is not None and (live.is_closed or live.queue.id != queue.id):
            del self._opened[queue.name]
            return None
        return live


def not_a_queue(topic: str) -> InvalidRequestError:
    return InvalidRequestError(
        f"{topic} is a topic and not a queue, and share groups work from queues; `headrace queue create {topic}` makes "
        "it one, after which a message is deleted once it is acknowledged, or read it with a consumer group"
    )
