"""Consumer groups of this node: what `folds/group/consumer.py` decides, made durable and told.

A heartbeat is answered once everything that was decided before it is committed. So a partition that its old owner was
seen to give up is given out only with that on the disk before it: what a crash leaves is always a state that was.
"""

from headrace.broker.broker import Broker
from headrace.broker.group.config import GroupsConfig
from headrace.broker.group.consumer_port import ConsumerGroupDescription, ConsumerHeard, ConsumerMemberDescription
from headrace.broker.group.shard import Shard, refusal
from headrace.broker.group.shards import Shards
from headrace.folds.group.classic import ClassicGroup, ClassicState
from headrace.folds.group.consumer import ConsumerGroup
from headrace.folds.group.consumer_member import ConsumerMember, by_topic
from headrace.folds.group.consumer_request import JOIN_EPOCH, ConsumerAnswer, ConsumerHeartbeat, check_heartbeat
from headrace.folds.group.migration import to_consumer
from headrace.folds.group.protocol import CONSUMER_PROTOCOL_TYPE
from headrace.host.clock import Clock
from headrace.host.rand import Rand
from headrace.model.errors import (
    GroupUnsettledError,
    InvalidRequestError,
    UnknownGroupError,
    UnknownMemberError,
)

# A member that waits for partitions that others still hold asks again sooner, so that they are idle for less long.
_WAITING_INTERVAL_MS = 500


class ConsumerGroups:
    def __init__(self, *, shards: Shards, broker: Broker, clock: Clock, rand: Rand, config: GroupsConfig) -> None:
        self._shards = shards
        self._broker = broker
        self._clock = clock
        self._rand = rand
        self._config = config

    async def heartbeat(
        self, group_id: str, request: ConsumerHeartbeat, *, is_named_here: bool = False
    ) -> ConsumerHeard:
        if is_named_here and request.member_epoch == JOIN_EPOCH and not request.member_id:
            request = request._replace(member_id=str(self._rand.uuid()))
        check_heartbeat(request)
        self._check_size(request)
        shard = await self._shards.find(group_id)
        group = self._group(shard, group_id, is_join=request.member_epoch == JOIN_EPOCH)
        answer = group.heartbeat(request, self._shards.topics(), self._clock.monotonic_ms())
        if not isinstance(answer, ConsumerAnswer):
            raise refusal(answer, group_id)
        shard.adopt(group)
        if answer.is_changed:
            shard.store(group)
        shard.arm(group)
        shard.change_back(group)
        await shard.written()
        interval_ms = shard.rules(group_id).config.consumer_heartbeat_interval_ms
        return ConsumerHeard(
            answer.member_id,
            answer.member_epoch,
            min(interval_ms, _WAITING_INTERVAL_MS) if answer.is_waiting else interval_ms,
            None if answer.assignment is None else by_topic(answer.assignment),
        )

    def _check_size(self, request: ConsumerHeartbeat) -> None:
        texts = (request.member_id, request.instance_id or "", request.rack_id or "", *(request.topic_names or ()))
        size_max = self._config.member_bytes_max
        if sum(len(text) for text in texts) > size_max:
            raise InvalidRequestError(f"what a member says of itself may have {size_max} bytes")

    def _group(self, shard: Shard, group_id: str, *, is_join: bool) -> ConsumerGroup:
        """The group as a consumer group. One of another kind becomes one when a member joins, if it can."""
        known = shard.find(group_id)
        if isinstance(known, ConsumerGroup):
            return known
        if not is_join:
            # Kafka answers that there is no group, which clients take for the end. Unknown members join again.
            raise refusal(UnknownMemberError, group_id)
        limits = shard.rules(group_id).consumer
        if not isinstance(known, ClassicGroup):
            if known is not None and not known.is_empty:
                raise UnknownGroupError(f"group {group_id} has members and is of kind {known.kind.value}; stop them")
            return ConsumerGroup(group_id, limits)
        if known.roster and known.state is not ClassicState.STABLE and known.protocol_type == CONSUMER_PROTOCOL_TYPE:
            raise refusal(GroupUnsettledError, group_id)
        now_ms = self._clock.monotonic_ms()
        group = to_consumer(known, limits, self._shards.topics(), now_ms=now_ms)
        if group is None:
            raise UnknownGroupError(
                f"group {group_id} has members with an assignor of their own, or no consumers; stop them, or use the "
                "classic protocol"
            )
        return group

    async def describe(self, group_id: str) -> ConsumerGroupDescription:
        shard = self._shards.peek(group_id)
        group = None if shard is None else shard.find(group_id)
        if shard is None or not isinstance(group, ConsumerGroup):
            raise UnknownGroupError(f"there is no consumer group {group_id}")
        described = ConsumerGroupDescription(
            group_id,
            group.state_name,
            group.epoch,
            group.assignment_epoch,
            group.assignor,
            tuple(_described(member) for member in group.members.values()),
        )
        await shard.written()
        return described


def _described(member: ConsumerMember) -> ConsumerMemberDescription:
    return ConsumerMemberDescription(
        member.member_id,
        member.instance_id,
        member.rack_id,
        member.epoch,
        member.client_id,
        member.client_host,
        member.topic_names,
        member.topic_regex,
        by_topic(member.assigned),
        by_topic(member.target),
        member.is_classic,
    )
