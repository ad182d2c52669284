"""Consumer groups of this node: what `folds/group/consumer.py` decides, made durable and told.

A heartbeat is answered once everything that was decided before it is committed. So a partition that its old owner was
seen to give up is given out only with that on the disk before it: what a crash leaves is always a state that was.
"""

from headrace.broker.broker import Broker
from headrace.broker.group.config import GroupsConfig
from headrace.broker.group.consumer_port import ConsumerGroupDescription, ConsumerHeard, ConsumerMemberDescription
from headrace.broker.group.kinds import consumer_limits
from headrace.broker.group.shard import Shard, refusal
from headrace.broker.group.shards import Shards
from headrace.folds.group.classic import ClassicGroup
from headrace.folds.group.consumer import ConsumerGroup
from headrace.folds.group.consumer_member import ConsumerMember, by_topic
from headrace.folds.group.consumer_request import JOIN_EPOCH, ConsumerAnswer, ConsumerHeartbeat, check_heartbeat
from headrace.folds.group.consumer_topics import KnownTopic, TopicView
from headrace.host.clock import Clock
from headrace.host.rand import Rand
from headrace.model.errors import (
    InconsistentProtocolError,
    InvalidRequestError,
    UnknownGroupError,
    UnknownMemberError,
)
from headrace.model.names import INTERNAL_NAMES

# A member that waits for partitions that others still hold asks again sooner, so that they are idle for less long.
_WAITING_INTERVAL_MS = 500


class ConsumerGroups:
    def __init__(self, *, shards: Shards, broker: Broker, clock: Clock, rand: Rand, config: GroupsConfig) -> None:
        self._shards = shards
        self._broker = broker
        self._clock = clock
        self._rand = rand
        self._config = config
        self._view = TopicView(-1, {})

    async def heartbeat(
        self, group_id: str, request: ConsumerHeartbeat, *, is_named_here: bool = False
    ) -> ConsumerHeard:
        if is_named_here and request.member_epoch == JOIN_EPOCH and not request.member_id:
            request = request._replace(member_id=str(self._rand.uuid()))
        check_heartbeat(request)
        self._check_size(request)
        shard = await self._shards.find(group_id)
        group = self._group(shard, group_id, is_join=request.member_epoch == JOIN_EPOCH)
        answer = group.heartbeat(request, self._topics(), self._clock.monotonic_ms())
        if not isinstance(answer, ConsumerAnswer):
            raise refusal(answer, group_id)
        if answer.is_changed:
            shard.store(group)
        shard.arm(group)
        await shard.written()
        interval_ms = self._config.consumer_heartbeat_interval_ms
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
        """The group as a consumer group. One of another kind becomes one if it has no members, and somebody joins."""
        known = shard.find(group_id)
        if isinstance(known, ConsumerGroup):
            return known
        if not is_join and (known is None or known.is_empty):
            # Kafka answers that there is no group, which clients take for the end. Unknown members join again.
            raise refusal(UnknownMemberError, group_id)
        generation = known.generation if isinstance(known, ClassicGroup) else 0
        limits = consumer_limits(self._config)
        try:
            return shard.machine_for(group_id, ConsumerGroup, lambda: ConsumerGroup(group_id, limits, epoch=generation))
        except InconsistentProtocolError as error:
            raise UnknownGroupError(f"{error}; stop them, or use their protocol") from error

    def _topics(self) -> TopicView:
        catalog = self._broker.catalog
        if self._view.revision != catalog.revision:
            topics = {
                name: KnownTopic(topic.id, topic.partition_count)
                for name, topic in catalog.topics.items()
                if name not in INTERNAL_NAMES
            }
            self._view = TopicView(catalog.revision, topics)
        return self._view

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
    )
