"""Acknowledgements that wait for the end of a transaction: how the coordinator reaches them."""

from typing import Protocol

from headrace.broker.promise import Promise
from headrace.broker.queue.live_queue import LiveQueue
from headrace.cluster.catalog import Catalog
from headrace.model.errors import UnknownTopicIdError
from headrace.model.ids import PartitionId
from headrace.model.queue import Queue


class LiveQueues(Protocol):
    """The queues that are at work."""

    async def live(self, name: str) -> LiveQueue: ...

    async def ensure(self, name: str) -> Queue: ...


class QueueLeases:
    """Leases that transactions hold, by partition."""

    def __init__(self, *, queues: LiveQueues, catalog: Catalog) -> None:
        self._queues = queues
        self._catalog = catalog

    async def end_transaction(self, place: PartitionId, producer_id: int, *, is_commit: bool) -> None:
        """End what a transaction holds in a partition; durable when this returns. May be repeated."""
        topic = self._catalog.topics_by_id.get(place.topic_id)
        if topic is None:
            raise UnknownTopicIdError(f"no topic has the id {place.topic_id}; it was deleted with its queue")
        live = await self._queues.live(topic.name)
        partition = live.partitions.at(place.partition)
        promise: Promise[None] = Promise()
        partition.end_acknowledged(
            producer_id,
            is_commit=is_commit,
            told=lambda error: promise.keep(None) if error is None else promise.fail(error),
        )
        await promise
