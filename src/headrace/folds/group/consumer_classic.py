"""Members of the classic protocol in a consumer group, while an application changes from one to the other (KIP-848).

Theory of operation. To such a member the group looks like a classic one whose leader is another member. Its generation
is its member epoch:

    join        says what it wants and what it still reads, and brings it a step towards its target (`consumer.py`)
    sync        tells it what it was given by that join
    heartbeat   tells it to join again while there is a step to take

A member that stops reading before it joins (eager) has given everything up with its join: what it is not to have is
free at once. One that goes on reading (cooperative) is told with its sync what it is left with, gives up the rest, and
joins again to say so; until then the rest stays its own. So the group's invariant, one reader for each partition, is
kept in one place for all its members (`ConsumerGroup`).

A member that was told to join again has its rebalance time-out for it, as in a classic group.
"""

from collections.abc import Iterable, Sequence

from headrace.folds.group.consumer import ConsumerGroup
from headrace.folds.group.consumer_member import ConsumerMember
from headrace.folds.group.consumer_request import JOIN_EPOCH, Partitions
from headrace.folds.group.consumer_topics import TopicView
from headrace.folds.group.machine import AnswerJoin, AnswerSync, Instruction, Joined, Refuse, StoreGroup, Synced
from headrace.folds.group.protocol import (
    CONSUMER_PROTOCOL_TYPE,
    NamedPartition,
    Subscription,
    read_subscription,
    write_assignment,
)
from headrace.folds.group.request import JoinRequest, Leaving, SyncRequest
from headrace.model.errors import (
    FencedInstanceError,
    GroupError,
    GroupFullError,
    IllegalGenerationError,
    InconsistentProtocolError,
    MemberIdRequiredError,
    RebalanceInProgressError,
    UnknownMemberError,
)
from headrace.model.ids import PartitionId


class ClassicMembers:
    """The classic side of a consumer group, with the calls that a classic group has."""

    def __init__(self, group: ConsumerGroup, view: TopicView) -> None:
        self._group = group
        self._view = view

    # Joining.

    def join(self, request: JoinRequest, now_ms: int) -> list[Instruction]:
        subscription = self._subscription(request)
        if subscription is None:
            return [Refuse(request.call, InconsistentProtocolError, request.member_id)]
        member = self._joining(request, now_ms)
        if not isinstance(member, ConsumerMember):
            return [Refuse(request.call, member, request.new_member_id if not request.member_id else request.member_id)]
        is_new = _subscribe(member, request, subscription) or member.epoch == JOIN_EPOCH
        if not member.revoking:
            member.revoke_until_ms = None  # it has come
        owned = partitions_of(subscription.owned, self._view)
        self._group.advance(member, self._view, owned, now_ms, is_new=is_new)
        joined = Joined(
            member.member_id, member.epoch, CONSUMER_PROTOCOL_TYPE, request.protocols[0][0], leader="", members=()
        )
        return [StoreGroup(), AnswerJoin(request.call, joined)]

    def _subscription(self, request: JoinRequest) -> Subscription | None:
        """What the member wants; None where it cannot be with the others, in this group or in a classic one later."""
        if request.protocol_type != CONSUMER_PROTOCOL_TYPE or not request.protocols:
            return None
        common = {name for name, _ in request.protocols}
        for member in self._group.members.values():
            if member.is_classic and member.member_id != request.member_id:
                common.intersection_update(name for name, _ in member.protocols)
        return read_subscription(request.protocols[0][1]) if common else None

    def _joining(self, request: JoinRequest, now_ms: int) -> ConsumerMember | type[GroupError]:
        """The member that joins: one that is known, a new one, or the next process of a static member."""
        group, member_id = self._group, request.member_id
        holder = group.holder(request.instance_id)
        if not member_id:
            if holder is not None:
                return group.replace(holder, request.new_member_id)
            if group.is_full:
                return GroupFullError
            if request.instance_id is None and request.is_id_required:
                self._name(request, now_ms)
                return MemberIdRequiredError
            return group.admit(request.new_member_id, request.instance_id)
        if request.instance_id is None and group.named.pop(member_id, None) is not None:
            return GroupFullError if group.is_full else group.admit(member_id, None)
        return self._check(member_id, request.instance_id) or group.members[member_id]

    def _name(self, request: JoinRequest, now_ms: int) -> None:
        named = self._group.named
        for member_id in [member_id for member_id, deadline_ms in named.items() if deadline_ms <= now_ms]:
            del named[member_id]
        named[request.new_member_id] = now_ms + request.session_timeout_ms

    # Being told.

    def sync(self, request: SyncRequest, now_ms: int) -> list[Instruction]:
        refused = self._check(request.member_id, request.instance_id, request.generation)
        if refused is not None:
            return [Refuse(request.call, refused)]
        member = self._group.members[request.member_id]
        names = [name for name, _ in member.protocols]
        if request.protocol_type not in (None, CONSUMER_PROTOCOL_TYPE) or request.protocol_name not in (None, *names):
            return [Refuse(request.call, InconsistentProtocolError)]
        self._heard(member, now_ms)
        if self._group.epoch > member.epoch and not member.revoking:
            self._call_in(member, now_ms)
            return [Refuse(request.call, RebalanceInProgressError)]
        assignment = write_assignment(named_partitions(member.assigned, self._view))
        return [AnswerSync(request.call, Synced(CONSUMER_PROTOCOL_TYPE, names[0], assignment))]

    def heartbeat(
        self, member_id: str, generation: int, instance_id: str | None, now_ms: int
    ) -> type[GroupError] | None:
        refused = self._check(member_id, instance_id, generation)
        if refused is not None:
            return refused
        group, member = self._group, self._group.members[member_id]
        self._heard(member, now_ms)
        if member.epoch < group.epoch or member.revoking or group.is_free(member.target - member.assigned):
            self._call_in(member, now_ms)
            return RebalanceInProgressError
        return None

    def _heard(self, member: ConsumerMember, now_ms: int) -> None:
        member.heard(now_ms, session_timeout_ms=self._group.limits.session_timeout_ms)

    def _call_in(self, member: ConsumerMember, now_ms: int) -> None:
        """It has to join again, and its time for that runs from the first telling."""
        if member.revoke_until_ms is None:
            member.revoke_until_ms = now_ms + member.rebalance_timeout_ms
            self._group.expect(member)

    # Leaving.

    def leave(
        self, leaving: Iterable[Leaving], now_ms: int
    ) -> tuple[list[type[GroupError] | None], Sequence[Instruction]]:
        """What each of them is told, and what follows. An operator may remove members of either protocol."""
        results = [self._leave(one) for one in leaving]
        return results, [StoreGroup()] if None in results else []

    def _leave(self, one: Leaving) -> type[GroupError] | None:
        group = self._group
        if one.instance_id is None and group.named.pop(one.member_id, None) is not None:
            return None
        holder = group.holder(one.instance_id)
        member = holder if holder is not None and not one.member_id else group.members.get(one.member_id)
        if one.instance_id is not None and holder is not member:
            return UnknownMemberError if holder is None else FencedInstanceError
        if member is None:
            return UnknownMemberError
        group.drop(member)
        return None

    def _check(self, member_id: str, instance_id: str | None, generation: int | None = None) -> type[GroupError] | None:
        """Whether this is a member of the classic protocol, and of this generation where one is said."""
        if instance_id is not None:
            holder = self._group.holder(instance_id)
            if holder is None:
                return UnknownMemberError
            if holder.member_id != member_id:
                return FencedInstanceError
        member = self._group.members.get(member_id)
        if member is None or not member.is_classic:
            return UnknownMemberError
        return None if generation in (None, member.epoch) else IllegalGenerationError


def _subscribe(member: ConsumerMember, request: JoinRequest, subscription: Subscription) -> bool:
    """Take over what a join says. Returns whether the subscription is new."""
    before = (member.topic_names, member.topic_regex, member.assignor)
    member.client_id, member.client_host = request.client_id, request.client_host
    member.rebalance_timeout_ms = request.rebalance_timeout_ms
    member.session_timeout_ms, member.protocols = request.session_timeout_ms, request.protocols
    member.rack_id = subscription.rack_id
    member.topic_names = tuple(sorted(set(subscription.topics)))
    member.topic_regex, member.assignor = "", None  # it has matched its expression itself
    return before != (member.topic_names, member.topic_regex, member.assignor)


def partitions_of(named: Iterable[NamedPartition], view: TopicView) -> Partitions:
    """Partitions that exist, by their topics' ids."""
    topics = view.topics
    return frozenset(PartitionId(topics[name].topic_id, index) for name, index in named if name in topics)


def named_partitions(partitions: Partitions, view: TopicView) -> list[NamedPartition]:
    """Partitions by their topics' names, without those of topics that are gone."""
    wanted = {one.topic_id for one in partitions}
    names = {topic.topic_id: name for name, topic in view.topics.items() if topic.topic_id in wanted}
    return [(names[topic_id], index) for topic_id, index in partitions if topic_id in names]
