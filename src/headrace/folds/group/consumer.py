"""A consumer group (KIP-848): the coordinator shares the partitions out, and members come there at their own pace.

Theory of operation. Three epochs that only grow (a static member's but for its absence):

    group epoch         rises whenever a member comes, goes or subscribes anew, and when a subscribed topic appears,
                        grows or goes.
    assignment epoch    that for which the target assignment, what each member is to have in the end, was computed.
    member epoch        that up to which a member has been brought.

Every heartbeat brings its member one step further towards its target:

    member has what it is not to have  ->  it keeps its epoch, is told what it is left with, and has its rebalance
                                           time-out to say that the rest is given up (`revoking`)
    nothing to give up (any more)      ->  it moves to the assignment epoch with those of its target's partitions that
                                           nobody holds; for the others it waits, and gets them with later heartbeats

The invariant: a partition is held by one member at most. It is held from the heartbeat that gives it out until the
member has said that it is given up, has left, or was dropped; `_owners` is the record of that and refuses a second
owner. So nobody has to stop reading what it keeps, and no two read the same.

A heartbeat with another epoch than the member's is fenced, but for the one before, if what the client owns is within
what it was given: it did not hear the last answer. A member that joins though it is known has lost everything: what it
held is free, and its new epoch is higher than all it had.

Members of the classic protocol may be among the others while an application changes its protocol
(`consumer_classic.py`). They are brought to the same target with joins and syncs in place of heartbeats.

A static member may leave for a while (epoch -2). What it has stays its own until its session is over, and the next
member with its instance id takes its place.

The group is stored whenever any of this has changed, before the answer that tells it. After a restart every member has
a whole session to be heard of again and goes on where it was.
"""

from collections import Counter
from collections.abc import Mapping
from typing import NamedTuple
from uuid import UUID

import msgspec

from headrace.folds.group.assignor import Assignor, Subscriber, share_by_range
from headrace.folds.group.assignor_uniform import share_uniformly
from headrace.folds.group.consumer_member import NOTHING, ConsumerMember, StoredConsumerMember, restored
from headrace.folds.group.consumer_request import (
    JOIN_EPOCH,
    LEAVE_EPOCH,
    STATIC_LEAVE_EPOCH,
    ConsumerAnswer,
    ConsumerHeartbeat,
    Partitions,
)
from headrace.folds.group.consumer_topics import KnownTopic, Subscriptions, TopicView
from headrace.folds.group.kind import GroupKind
from headrace.folds.group.machine import Instruction, MemberDescription, StoreGroup
from headrace.model.errors import (
    FencedInstanceError,
    FencedMemberEpochError,
    GroupError,
    GroupFullError,
    IllegalGenerationError,
    StaleMemberEpochError,
    UnknownMemberError,
    UnreleasedInstanceError,
    UnsupportedAssignorError,
)
from headrace.model.ids import PartitionId

ASSIGNORS: Mapping[str, Assignor] = {"uniform": share_uniformly, "range": share_by_range}
DEFAULT_ASSIGNOR = "uniform"
_ENCODER = msgspec.msgpack.Encoder(uuid_format="bytes")


class ConsumerLimits(NamedTuple):
    session_timeout_ms: int = 45_000
    members_max: int = 10_000


class _Image(msgspec.Struct, frozen=True, array_like=True):
    epoch: int
    assignment_epoch: int
    assignor: str
    topics: tuple[tuple[str, UUID, int], ...]
    members: tuple[msgspec.Raw, ...]  # each a StoredConsumerMember


class ConsumerGroup:
    kind = GroupKind.CONSUMER
    protocol_type = "consumer"

    def __init__(self, group_id: str, limits: ConsumerLimits, *, epoch: int = 0) -> None:
        self.group_id = group_id
        self.epoch = epoch
        self.assignment_epoch = epoch
        self.assignor = DEFAULT_ASSIGNOR
        self.topics: dict[str, KnownTopic] = {}  # all that is subscribed to and exists, as the target knows it
        self.members: dict[str, ConsumerMember] = {}
        self._instances: dict[str, ConsumerMember] = {}
        self._owners: dict[PartitionId, ConsumerMember] = {}
        self.limits = limits
        # Ids that were given to members of the classic protocol, until these join with them; with their deadlines.
        self.named: dict[str, int] = {}
        self._subscriptions = Subscriptions()
        self._due_ms: int | None = None  # no member's time is over before

    @classmethod
    def restore(cls, group_id: str, image: bytes, limits: ConsumerLimits, *, now_ms: int) -> "ConsumerGroup":
        stored = msgspec.msgpack.decode(image, type=_Image)
        group = cls(group_id, limits, epoch=stored.epoch)
        group.assignment_epoch, group.assignor = stored.assignment_epoch, stored.assignor
        group.topics = {name: KnownTopic(topic_id, count) for name, topic_id, count in stored.topics}
        for one in stored.members:
            found = msgspec.msgpack.decode(one, type=StoredConsumerMember)
            member = restored(found, session_timeout_ms=limits.session_timeout_ms, now_ms=now_ms)
            group.resume(member)
        return group

    def resume(self, member: ConsumerMember) -> None:
        """Take in a member with all that it holds."""
        self._add(member)
        for partition in member.held:
            self._own(partition, member)
        self.expect(member)

    def image(self) -> bytes:
        topics = tuple((name, *topic) for name, topic in sorted(self.topics.items()))
        members = tuple(member.image() for member in self.members.values())
        return _ENCODER.encode(_Image(self.epoch, self.assignment_epoch, self.assignor, topics, members))

    # What others ask.

    @property
    def state_name(self) -> str:
        if not self.members:
            return "Empty"
        if self.epoch > self.assignment_epoch:
            return "Assigning"
        here = [member for member in self.members.values() if not member.has_left]
        return "Stable" if all(one.is_settled(self.assignment_epoch) for one in here) else "Reconciling"

    @property
    def protocol_name(self) -> str:
        return self.assignor

    @property
    def member_count(self) -> int:
        return len(self.members)

    @property
    def is_empty(self) -> bool:
        return not self.members

    @property
    def is_all_classic(self) -> bool:
        """Whether no member speaks this group's own protocol any more, so that it becomes a classic group."""
        return bool(self.members) and all(one.is_classic for one in self.members.values())

    def subscribes(self, topic: str) -> bool:
        for one in self.members.values():
            found = self.topics if one.topics is None else one.topics
            if topic in found or topic in one.topic_names:
                return True
        return False

    def describe_members(self) -> list[MemberDescription]:
        """As a classic group's are: what each reads is in ConsumerGroupDescribe's own form."""
        return [
            MemberDescription(one.member_id, one.instance_id, one.client_id, one.client_host, b"", b"")
            for one in self.members.values()
        ]

    def check_commit(
        self, member_id: str, generation: int, instance_id: str | None, *, is_transactional: bool, now_ms: int
    ) -> type[GroupError] | None:
        if generation < 0 and (not self.members or (is_transactional and not member_id)):
            return None
        member = self.members.get(member_id)
        if member is None or member.has_left:
            return UnknownMemberError
        if generation == member.epoch:
            return None
        return IllegalGenerationError if member.is_classic else StaleMemberEpochError

    # Heartbeats.

    def heartbeat(self, request: ConsumerHeartbeat, view: TopicView, now_ms: int) -> ConsumerAnswer | type[GroupError]:
        """Bring a member a step further. A refusal changes nothing; an expression may be refused by raising."""
        if request.assignor is not None and request.assignor not in ASSIGNORS:
            return UnsupportedAssignorError
        if request.member_epoch in (LEAVE_EPOCH, STATIC_LEAVE_EPOCH):
            return self._leave(request, now_ms)
        refused = self._check_join(request) if request.member_epoch == JOIN_EPOCH else self._check_member(request)
        if refused is not None:
            return refused
        self._subscriptions.check(request.topic_regex or "", view)
        is_join = request.member_epoch == JOIN_EPOCH
        member = self._join(request) if is_join else self.members[request.member_id]
        before = NOTHING if is_join else member.assigned
        is_changed = member.update(request) | is_join
        is_changed |= self.advance(member, view, request.owned, now_ms, is_new=member.subscribe(request))
        is_told = request.is_full or member.assigned != before
        is_waiting = not member.revoking and member.assigned != member.target
        return ConsumerAnswer(
            member.member_id, member.epoch, member.assigned if is_told else None, is_waiting, is_changed
        )

    def advance(
        self, member: ConsumerMember, view: TopicView, owned: Partitions | None, now_ms: int, *, is_new: bool
    ) -> bool:
        """Bring a member that was heard of a step further. Returns whether anything has changed.

        `is_new`: its subscription is. `owned`: what it still reads, if it says so.
        """
        member.heard(now_ms, session_timeout_ms=self.limits.session_timeout_ms)
        is_changed = self._look_at_topics(member, view, is_new=is_new)
        if self.epoch > self.assignment_epoch:
            self._assign()
            is_changed = True
        is_changed |= self._reconcile(member, owned, now_ms)
        self.expect(member)
        return is_changed

    def _check_join(self, request: ConsumerHeartbeat) -> type[GroupError] | None:
        holder = self.holder(request.instance_id)
        if holder is not None and holder.member_id != request.member_id:
            if not holder.has_left and not holder.is_classic:  # a classic one never says that it leaves for a while
                return UnreleasedInstanceError
            return None if request.member_id not in self.members else FencedInstanceError
        known = self.members.get(request.member_id)
        if known is None:
            return GroupFullError if self.is_full else None
        return None if known.instance_id == request.instance_id else FencedInstanceError

    def _check_member(self, request: ConsumerHeartbeat) -> type[GroupError] | None:
        if request.instance_id is not None:
            holder = self._instances.get(request.instance_id)
            if holder is None:
                return UnknownMemberError
            if holder.member_id != request.member_id:
                return FencedInstanceError
        member = self.members.get(request.member_id)
        if member is None or member.is_classic:
            return UnknownMemberError
        if request.member_epoch == member.epoch:
            return None
        was_not_heard = request.member_epoch == member.previous_epoch and request.owned is not None
        if was_not_heard and request.owned is not None and request.owned <= member.assigned:
            return None
        return FencedMemberEpochError

    def _join(self, request: ConsumerHeartbeat) -> ConsumerMember:
        """The member that joins: a new one, one that begins again, or the next in a static member's place."""
        holder = self.holder(request.instance_id)
        if holder is not None and (holder.has_left or holder.member_id != request.member_id):
            return self.replace(holder, request.member_id)
        member = self.members.get(request.member_id)
        if member is not None:
            self.drop(member)
        return self.admit(request.member_id, request.instance_id)

    def admit(self, member_id: str, instance_id: str | None) -> ConsumerMember:
        """A new member."""
        member = ConsumerMember(member_id, instance_id)
        self._add(member)
        self._raise_epoch()
        return member

    def replace(self, holder: ConsumerMember, member_id: str) -> ConsumerMember:
        """The next process of a static member, in the place of the last one and with its partitions."""
        del self.members[holder.member_id]
        holder.member_id = member_id
        self.members[member_id] = holder
        self._release(holder.revoking, holder)
        holder.start_anew()
        return holder

    def _raise_epoch(self) -> None:
        """What the target rests on has changed. Once is enough until there is a target for it."""
        self.epoch = self.assignment_epoch + 1

    def _look_at_topics(self, member: ConsumerMember, view: TopicView, *, is_new: bool) -> bool:
        """See what subscriptions stand for now. Returns whether the group's epoch has risen."""
        is_other = is_new
        if not self._subscriptions.is_current(view):
            for one in self.members.values():
                names = self._subscriptions.resolve(one, view)
                is_other |= one.topics not in (None, names)
                one.topics = names
            self._subscriptions.seen(view, self.members)
        elif is_new or member.topics is None:
            member.topics = self._subscriptions.resolve(member, view)
        else:
            return False
        names = frozenset[str]().union(*(one.topics or () for one in self.members.values()))
        topics = {name: view.topics[name] for name in names}
        if not is_other and topics == self.topics:
            return False
        self.topics = topics
        self._raise_epoch()
        return True

    def _assign(self) -> None:
        """Compute the target assignment of the group's epoch."""
        wanted = frozenset[str]().union(*(one.topics or () for one in self.members.values()))
        self.topics = {name: topic for name, topic in self.topics.items() if name in wanted}
        votes = Counter(one.assignor for one in self.members.values() if one.assignor is not None)
        self.assignor = votes.most_common(1)[0][0] if votes else DEFAULT_ASSIGNOR
        subscribers = [
            Subscriber(
                one.member_id,
                one.instance_id,
                frozenset(self.topics[name].topic_id for name in one.topics or () if name in self.topics),
                one.target,
            )
            for one in self.members.values()
        ]
        shares = ASSIGNORS[self.assignor](subscribers, dict(self.topics.values()))
        for member_id, member in self.members.items():
            member.target = frozenset(shares[member_id])
        self.assignment_epoch = self.epoch

    def _reconcile(self, member: ConsumerMember, owned: Partitions | None, now_ms: int) -> bool:
        """One step of a member towards its target. Returns whether anything has changed."""
        before = (member.epoch, member.assigned, member.revoking)
        if member.revoking:
            if owned is None or owned & member.revoking:
                return False
            self._release(member.revoking, member)
            member.revoking, member.revoke_until_ms = NOTHING, None
        surplus = member.assigned - member.target
        if member.epoch == JOIN_EPOCH:
            # Kept for a static member that was away: its new process has none of it yet, so there is none to give up.
            self._release(surplus, member)
            member.assigned, surplus = member.assigned - surplus, NOTHING
        elif member.is_classic and owned is not None:
            # It waits for the answer to its join, so it cannot take up what it has not got.
            self._release(surplus - owned, member)
            member.assigned, surplus = member.assigned - (surplus - owned), surplus & owned
        if surplus:
            member.assigned -= surplus
            member.revoking = surplus
            member.revoke_until_ms = now_ms + member.rebalance_timeout_ms
        else:
            free = frozenset(one for one in member.target - member.assigned if one not in self._owners)
            for partition in free:
                self._own(partition, member)
            member.assigned |= free
            member.move_to(self.assignment_epoch)
        return before != (member.epoch, member.assigned, member.revoking)

    # Members and what they hold.

    @property
    def is_full(self) -> bool:
        return len(self.members) >= self.limits.members_max

    def holder(self, instance_id: str | None) -> ConsumerMember | None:
        """The member that has an instance id."""
        return None if instance_id is None else self._instances.get(instance_id)

    def is_free(self, partitions: Partitions) -> bool:
        """Whether at least one of these is held by no consumer."""
        return any(one not in self._owners for one in partitions)

    def _add(self, member: ConsumerMember) -> None:
        self.members[member.member_id] = member
        if member.instance_id is not None:
            self._instances[member.instance_id] = member

    def drop(self, member: ConsumerMember) -> None:
        del self.members[member.member_id]
        if member.instance_id is not None:
            del self._instances[member.instance_id]
        self._release(member.held, member)
        self._raise_epoch()
        if not self.members:
            self.topics = {}
            self.assignment_epoch = self.epoch

    def _own(self, partition: PartitionId, member: ConsumerMember) -> None:
        assert partition not in self._owners, f"{partition} of group {self.group_id} would have two owners"
        self._owners[partition] = member

    def _release(self, partitions: Partitions, member: ConsumerMember) -> None:
        for partition in partitions:
            assert self._owners[partition] is member
            del self._owners[partition]

    def _leave(self, request: ConsumerHeartbeat, now_ms: int) -> ConsumerAnswer | type[GroupError]:
        member = self.members.get(request.member_id)
        holder = self.holder(request.instance_id)
        if request.instance_id is not None and holder is not member:
            return UnknownMemberError if holder is None else FencedInstanceError
        if member is None or member.is_classic:
            return UnknownMemberError
        if request.member_epoch == LEAVE_EPOCH:
            self.drop(member)
        else:
            self._release(member.revoking, member)
            member.revoking, member.revoke_until_ms = NOTHING, None
            member.epoch, member.previous_epoch = STATIC_LEAVE_EPOCH, -1
            member.heard(now_ms, session_timeout_ms=self.limits.session_timeout_ms)
        return ConsumerAnswer(request.member_id, request.member_epoch, None, is_waiting=False, is_changed=True)

    # Time.

    def obey(self, limits: ConsumerLimits, now_ms: int) -> None:
        """Take over other limits. Every member has a whole session from now."""
        self.limits = limits
        for member in self.members.values():
            member.heard(now_ms, session_timeout_ms=limits.session_timeout_ms)
            self.expect(member)

    def expect(self, member: ConsumerMember) -> None:
        self._due_ms = member.until_ms if self._due_ms is None else min(self._due_ms, member.until_ms)

    def next_deadline(self) -> int | None:
        """A lower bound, which costs nothing: times move on with every heartbeat, and `tick` finds that out."""
        return self._due_ms

    def tick(self, now_ms: int) -> list[Instruction]:
        """Drop whoever was silent for too long, or has not given up what it was asked to."""
        gone = [member for member in self.members.values() if member.until_ms <= now_ms]
        for member in gone:
            self.drop(member)
        self._due_ms = min((member.until_ms for member in self.members.values()), default=None)
        return [StoreGroup()] if gone else []
