"""Offsets of groups, whatever their kind: committed, pending in transactions, read and deleted.

Clients name topics; what is stored names their uuids, so that a topic that was deleted and made again begins anew.
"""

from collections.abc import Sequence

from headrace.broker.broker import Broker
from headrace.broker.group.config import GroupsConfig
from headrace.broker.group.port import Caller, Committed, OffsetCommit, Outcomes, PartitionLag, TopicPartition
from headrace.broker.group.shard import Shard, refusal
from headrace.folds.group.consumer import ConsumerGroup
from headrace.folds.group.op import OffsetEntry, OffsetsCommitted, OffsetsDeleted, TxnEnded, TxnOffsetsPending
from headrace.host.clock import Clock, stamp_ms
from headrace.model.errors import (
    GroupNotEmptyError,
    GroupSubscribedError,
    HeadraceError,
    IllegalGenerationError,
    OffsetMetadataTooLargeError,
    UnknownGroupError,
    UnknownTopicError,
    UnknownTopicIdError,
    UnstableOffsetError,
)
from headrace.model.ids import PartitionId

CONSUMER = "consumer"


class Offsets:
    def __init__(self, *, broker: Broker, clock: Clock, config: GroupsConfig) -> None:
        self._broker = broker
        self._clock = clock
        self._config = config

    # Committing.

    async def commit(self, shard: Shard, caller: Caller, offsets: Sequence[OffsetCommit]) -> Outcomes:
        self._check(shard, caller, is_transactional=False)
        outcomes, entries = self._entries(offsets)
        if entries:
            shard.decide(OffsetsCommitted(caller.group_id, entries, stamp_ms(self._clock)))
            await shard.written()
        return outcomes

    async def commit_transactional(
        self, shard: Shard, caller: Caller, offsets: Sequence[OffsetCommit], *, producer_id: int, producer_epoch: int
    ) -> Outcomes:
        self._check(shard, caller, is_transactional=True)
        shard.fold.check_producer(producer_id, producer_epoch)
        outcomes, entries = self._entries(offsets)
        if entries:
            at_ms = stamp_ms(self._clock)
            shard.decide(TxnOffsetsPending(caller.group_id, producer_id, producer_epoch, entries, at_ms))
            await shard.written()
        return outcomes

    def _check(self, shard: Shard, caller: Caller, *, is_transactional: bool) -> None:
        """Refuse whoever is not of the group's present generation."""
        machine = shard.find(caller.group_id)
        if machine is None:
            if caller.generation >= 0:
                raise refusal(IllegalGenerationError, caller.group_id)
            machine = shard.classic(caller.group_id)
        why = machine.check_commit(
            caller.member_id,
            caller.generation,
            caller.instance_id,
            is_transactional=is_transactional,
            now_ms=self._clock.monotonic_ms(),
        )
        if why is not None:
            raise refusal(why, caller.group_id)

    def _entries(self, offsets: Sequence[OffsetCommit]) -> tuple[Outcomes, tuple[OffsetEntry, ...]]:
        """What is to be written, and for each offset what is wrong with it."""
        outcomes: Outcomes = []
        entries = []
        for commit in offsets:
            try:
                entries.append(self._entry(commit))
                outcomes.append(None)
            except HeadraceError as error:
                outcomes.append(error)
        return outcomes, tuple(entries)

    def _entry(self, commit: OffsetCommit) -> OffsetEntry:
        place = self._place((commit.topic, commit.partition))
        size_max = self._config.offset_metadata_bytes_max
        if len(commit.metadata.encode(errors="replace")) > size_max:
            raise OffsetMetadataTooLargeError(f"metadata of an offset has at most {size_max} bytes here")
        return OffsetEntry(place.topic_id, place.partition, commit.offset, commit.leader_epoch, commit.metadata)

    def _place(self, asked: TopicPartition) -> PartitionId:
        topic = self._broker.topic(asked[0])
        if not 0 <= asked[1] < topic.partition_count:
            raise UnknownTopicError(
                f"topic {topic.name} has partitions 0 to {topic.partition_count - 1}, not {asked[1]}"
            )
        return PartitionId(topic.id, asked[1])

    async def end_transaction(
        self, shards: Sequence[Shard], producer_id: int, producer_epoch: int, *, commit: bool
    ) -> None:
        at_ms = stamp_ms(self._clock)
        touched = [shard for shard in shards if producer_id in shard.fold.pending]
        for shard in touched:
            shard.check_open()
        for shard in touched:
            shard.decide(TxnEnded(producer_id, producer_epoch, commit, at_ms))
        # An end that is repeated waits for the first one: either is told only what is durable.
        for shard in shards:
            if producer_id in shard.fold.fences:
                await shard.written()

    # Reading.

    async def committed(
        self, shard: Shard, caller: Caller, partitions: Sequence[TopicPartition] | None, *, require_stable: bool
    ) -> list[Committed]:
        self._check_reader(shard, caller)
        asked = self._everything(shard, caller.group_id) if partitions is None else partitions
        found = [self._committed(shard, caller.group_id, one, require_stable=require_stable) for one in asked]
        # Nobody reads what a crash could take back.
        await shard.written()
        return found

    def _check_reader(self, shard: Shard, caller: Caller) -> None:
        """A member of a consumer group says its epoch (KIP-848); nobody else who reads offsets is asked who he is."""
        if caller.member_id and isinstance(shard.machines.get(caller.group_id), ConsumerGroup):
            self._check(shard, caller, is_transactional=False)

    def _everything(self, shard: Shard, group_id: str) -> list[TopicPartition]:
        topics = self._broker.catalog.topics_by_id
        places = shard.fold.offsets.get(group_id, {})
        return sorted((topics[id].name, index) for id, index in places if id in topics)

    def _committed(self, shard: Shard, group_id: str, asked: TopicPartition, *, require_stable: bool) -> Committed:
        try:
            place = self._place(asked)
        except UnknownTopicIdError as error:
            return Committed(*asked, error=error)
        except HeadraceError:
            return Committed(*asked)  # nothing was ever committed for what does not exist
        if require_stable and shard.fold.has_pending(group_id, place):
            return Committed(*asked, error=refusal(UnstableOffsetError, group_id))
        known = shard.fold.offsets.get(group_id, {}).get(place)
        if known is None:
            return Committed(*asked)
        return Committed(*asked, known.offset, known.leader_epoch, known.metadata)

    def lag(self, shard: Shard, group_id: str) -> list[PartitionLag]:
        """How far a group is behind, for each partition that it has an offset for."""
        found = []
        offsets = shard.fold.offsets.get(group_id, {})
        for name, index in self._everything(shard, group_id):
            try:
                partition = self._broker.partition(name, index)
            except HeadraceError:
                continue  # not open here: its own state says why
            committed = offsets[partition.id].offset
            end = partition.high_watermark
            # What retention has dropped is not waiting for anybody any more.
            lag = max(end - max(committed, partition.start_offset), 0)
            found.append(PartitionLag(str(name), index, committed, end, lag))
        return found

    # Deleting.

    async def delete(self, shard: Shard, group_id: str, partitions: Sequence[TopicPartition]) -> Outcomes:
        machine = shard.find(group_id)
        if machine is None:
            raise UnknownGroupError(f"there is no group {group_id}")
        if not machine.is_empty and machine.protocol_type != CONSUMER:
            raise refusal(GroupNotEmptyError, group_id)
        outcomes: Outcomes = []
        gone = []
        for asked in partitions:
            try:
                place = self._place(asked)
                if machine.subscribes(self._broker.topic(asked[0]).name):
                    raise refusal(GroupSubscribedError, group_id)
                gone.append(place)
                outcomes.append(None)
            except HeadraceError as error:
                outcomes.append(error)
        if gone:
            shard.decide(OffsetsDeleted(group_id, tuple(gone), stamp_ms(self._clock)))
            await shard.written()
        return outcomes
