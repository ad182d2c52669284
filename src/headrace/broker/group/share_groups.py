"""Share groups of this node (KIP-932): `share_port.SharePort`, over the groups and the queues.

A share group decides who is here and what they work from (`folds/group/share.py`); who gets which message is decided by
the queue, the same for every door (`share_work.py`, `share_ack.py`). So all share groups of a queue, whatever their
ids, and everybody who comes by HTTP or SQS work on one backlog.
"""

import logging
from collections.abc import Sequence

from headrace.broker.group.groups import NodeGroups
from headrace.broker.group.shard import refusal
from headrace.broker.group.share_ack import ShareAcks
from headrace.broker.group.share_offsets import ShareOffsets
from headrace.broker.group.share_port import AckBatch, Acquisition, DescribedMember, Holder, ShareDescription
from headrace.broker.group.share_queues import OpenQueues, SharedQueues, not_a_queue
from headrace.broker.group.share_work import ShareWork
from headrace.broker.promise import Promise
from headrace.cluster.catalog import Catalog
from headrace.folds.group.share import JOIN_EPOCH, LEAVE_EPOCH, Shared, SharedTopic, ShareGroup, ShareHeartbeat
from headrace.host.clock import Clock
from headrace.log.driver import LogStore
from headrace.model.errors import InvalidRequestError, UnknownGroupError, UnknownMemberError
from headrace.model.ids import PartitionId

_logger = logging.getLogger(__name__)

_MEMBER_ID_LENGTH_MAX = 100


class ShareGroups:
    def __init__(
        self, *, groups: NodeGroups, queues: OpenQueues, catalog: Catalog, logs: LogStore, clock: Clock
    ) -> None:
        self._groups = groups
        self._catalog = catalog
        self._clock = clock
        self._shared = SharedQueues(queues, catalog)
        self._work = ShareWork(queues=self._shared, config_of=groups.config_of, logs=logs, clock=clock)
        self._acks = ShareAcks(self._shared, groups.config_of)
        self.offsets = ShareOffsets(groups=groups, queues=self._shared, catalog=catalog)

    # Members.

    async def heartbeat(self, group_id: str, heartbeat: ShareHeartbeat) -> Shared:
        self._check(heartbeat)
        shard = await self._groups.shard(group_id)
        if heartbeat.member_epoch == JOIN_EPOCH:
            group = shard.machine_for(group_id, ShareGroup, lambda: ShareGroup(group_id, shard.rules(group_id).share))
        else:
            machine = shard.find(group_id)
            if not isinstance(machine, ShareGroup):
                raise refusal(UnknownMemberError, group_id)
            group = machine
        answer, instructions = group.heartbeat(heartbeat, self._find, self._clock.monotonic_ms())
        if not isinstance(answer, Shared):
            raise refusal(answer, group_id)
        if instructions:
            shard.carry_out(group, instructions)
        if instructions or answer.assignment is not None:
            await shard.written()
        return answer

    def heartbeat_interval_ms(self, group_id: str) -> int:
        return self._groups.config_of(group_id).share_heartbeat_interval_ms

    def _check(self, heartbeat: ShareHeartbeat) -> None:
        if not 0 < len(heartbeat.member_id) <= _MEMBER_ID_LENGTH_MAX:
            raise InvalidRequestError(f"a member chooses an id of 1 to {_MEMBER_ID_LENGTH_MAX} characters")
        if heartbeat.member_epoch < LEAVE_EPOCH:
            raise InvalidRequestError(f"{heartbeat.member_epoch} is no epoch of a member")
        if heartbeat.member_epoch == JOIN_EPOCH and not heartbeat.topics:
            raise InvalidRequestError("a member that joins says what it subscribes to")
        for name in heartbeat.topics or ():
            # Told once, when it is asked for: a topic that comes later, and is none, is only not worked from.
            if name in self._catalog.topics and name not in self._catalog.queues:
                # Not every client shows its user what we answer.
                _logger.warning("a share group asked for a topic that is no queue", extra={"topic": name})
                raise not_a_queue(name)

    def _find(self, name: str) -> SharedTopic | None:
        topic = self._catalog.topics.get(name)
        if topic is None or name not in self._catalog.queues:
            return None
        return SharedTopic(topic.id, topic.partition_count)

    async def describe(self, group_id: str) -> ShareDescription:
        shard = await self._groups.shard(group_id)
        group = shard.find(group_id)
        if not isinstance(group, ShareGroup):
            raise UnknownGroupError(f"there is no share group {group_id}")
        members = [DescribedMember(member, group.topics_of(member)) for member in group.members.values()]
        return ShareDescription(group.state_name, group.epoch, members)

    # Messages.

    async def acquire(
        self, holder: Holder, places: Sequence[PartitionId], *, records_max: int, bytes_max: int, wait_ms: int
    ) -> Acquisition:
        return await self._work.acquire(holder, places, records_max=records_max, bytes_max=bytes_max, wait_ms=wait_ms)

    def acknowledge(self, holder: Holder, place: PartitionId, batches: Sequence[AckBatch]) -> Promise[None]:
        return self._acks.acknowledge(holder, place, batches)

    def lease_ms(self, group_id: str, places: Sequence[PartitionId]) -> int:
        return self._shared.lease_ms(self._groups.config_of(group_id), places)

    def let_go(self, holder: Holder) -> None:
        self._acks.let_go(holder)
