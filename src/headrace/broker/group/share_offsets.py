"""Where share groups stand in their queues, for Kafka's tools (APIs 90 to 92).

Every share group of a queue works from the queue's one backlog, so its start in a partition is the queue's: the first
message that is not done. Moving the start forward drops what lies below it, as a purge does, for everybody who works
from the queue. It cannot move back: a message that is done is not delivered again. To delete a group's offsets is to
forget that it worked from a queue; the messages stay.
"""

from collections.abc import Sequence
from uuid import UUID

from headrace.broker.group.groups import NodeGroups
from headrace.broker.group.shard import Shard, refusal
from headrace.broker.group.share_ack import keeping
from headrace.broker.group.share_port import PartitionStart, TopicOutcome, TopicStarts
from headrace.broker.group.share_queues import SharedQueues, not_a_queue
from headrace.broker.promise import Promise
from headrace.broker.queue.partition_queue import PartitionQueue
from headrace.cluster.catalog import Catalog
from headrace.folds.group.share import ShareGroup
from headrace.model.errors import (
    GroupNotEmptyError,
    HeadraceError,
    InvalidRequestError,
    OffsetOutOfRangeError,
    UnknownGroupError,
    UnknownTopicError,
)
from headrace.model.ids import PartitionId


class ShareOffsets:
    def __init__(self, *, groups: NodeGroups, queues: SharedQueues, catalog: Catalog) -> None:
        self._groups = groups
        self._queues = queues
        self._catalog = catalog

    async def describe(
        self, group_id: str, topics: Sequence[tuple[str, Sequence[int]]] | None
    ) -> Sequence[TopicStarts]:
        _, group = await self._find(group_id)
        if topics is None:
            worked = (self._catalog.topics_by_id.get(topic_id) for topic_id in group.worked)
            known = sorted((topic.name, range(topic.partition_count)) for topic in worked if topic is not None)
            return [await self._starts(group, name, indexes) for name, indexes in known]
        return [await self._starts(group, name, indexes) for name, indexes in topics]

    async def _starts(self, group: ShareGroup, name: str, indexes: Sequence[int]) -> TopicStarts:
        topic_id = self._topic_id(name)
        if topic_id is None or topic_id not in group.worked or name not in self._catalog.queues:
            return TopicStarts(name, topic_id, [PartitionStart(index) for index in indexes])
        return TopicStarts(name, topic_id, [await self._start(PartitionId(topic_id, index)) for index in indexes])

    async def _start(self, place: PartitionId) -> PartitionStart:
        try:
            partition = await self._open(place)
        except HeadraceError as error:
            return PartitionStart(place.partition, error=error)
        fold = partition.fold
        return PartitionStart(place.partition, fold.floor, partition.partition.epoch, len(fold.live))

    async def alter(
        self, group_id: str, topics: Sequence[tuple[str, Sequence[tuple[int, int]]]]
    ) -> Sequence[TopicStarts]:
        shard, group = await self._find(group_id, must_be_empty=True)
        before = set(group.worked)
        changed = []
        for name, wanted in topics:
            topic_id = self._topic_id(name)
            parts = [await self._alter(name, topic_id, index, offset) for index, offset in wanted]
            if topic_id is not None and any(part.error is None for part in parts):
                group.worked.add(topic_id)
            changed.append(TopicStarts(name, topic_id, parts))
        if group.worked != before:
            shard.store(group)
            await shard.written()
        return changed

    async def _alter(self, name: str, topic_id: UUID | None, index: int, offset: int) -> PartitionStart:
        try:
            if topic_id is None:
                raise UnknownTopicError(f"there is no topic {name}")
            if name not in self._catalog.queues:
                raise not_a_queue(name)
            await _move(name, await self._open(PartitionId(topic_id, index)), offset)
        except HeadraceError as error:
            return PartitionStart(index, error=error)
        return PartitionStart(index, offset)

    async def delete(self, group_id: str, topics: Sequence[str]) -> Sequence[TopicOutcome]:
        shard, group = await self._find(group_id, must_be_empty=True)
        before = set(group.worked)
        outcomes = []
        for name in topics:
            topic_id = self._topic_id(name)
            unknown = UnknownTopicError(f"there is no topic {name}") if topic_id is None else None
            outcomes.append(TopicOutcome(name, topic_id, unknown))
            group.worked -= {topic_id}
        if group.worked != before:
            shard.store(group)
            await shard.written()
        return outcomes

    async def _find(self, group_id: str, *, must_be_empty: bool = False) -> tuple[Shard, ShareGroup]:
        shard = await self._groups.shard(group_id)
        group = shard.find(group_id)
        if not isinstance(group, ShareGroup):
            raise UnknownGroupError(f"there is no share group {group_id}")
        if must_be_empty and not group.is_empty:
            raise refusal(GroupNotEmptyError, group_id)
        return shard, group

    def _topic_id(self, name: str) -> UUID | None:
        topic = self._catalog.topics.get(name)
        return None if topic is None else topic.id

    async def _open(self, place: PartitionId) -> PartitionQueue:
        live = await self._queues.open(place)
        return live.partitions.at(place.partition)


async def _move(name: str, partition: PartitionQueue, offset: int) -> None:
    """Make an offset the partition's start; durable when this returns."""
    floor, end = partition.fold.floor, partition.partition.end_offset
    if not 0 <= offset <= end:
        raise OffsetOutOfRangeError(
            f"offset {offset} is outside partition {partition.index} of {name}, which ends at {end}", start=0, end=end
        )
    if offset < floor:
        if partition.fold.counts.sent > len(partition.fold.live):
            raise InvalidRequestError(
                f"the messages of {name} below offset {floor} of partition {partition.index} are done, and a queue "
                f"does not deliver them again; give {floor} or a later offset, or read the topic with a consumer group"
            )
        return
    promise: Promise[None] = Promise()
    partition.purge(keeping(promise), upto=offset)
    await promise
