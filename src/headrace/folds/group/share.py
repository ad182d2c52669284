"""A share group's members (KIP-932): who is here, and which partitions each of them works from.

Theory of operation. Members of a share group do not divide partitions among themselves: every member has all partitions
of every queue that it subscribes to, and the queue decides message by message who gets what. So an assignment follows
from a member's subscription and the queues there are, nothing has to be given up before another may have it, and there
is no rebalance. The group's epoch rises whenever a member comes, goes or subscribes anew, and when a subscribed queue
appears, grows or goes. A member whose epoch is behind is given the new assignment with its next heartbeat.

A heartbeat with an older epoch than the member's is answered with the assignment once more: its client did not hear the
last answer. One from the future is fenced, for only another coordinator can have given it out.

The group is stored whenever its epoch has risen, before the answer that tells it. A node that comes back knows its
members, and each has a whole session to be heard of again.
"""

from collections import Counter
from collections.abc import Callable, Sequence
from typing import NamedTuple
from uuid import UUID

import msgspec

from headrace.folds.group.kind import GroupKind
from headrace.folds.group.machine import Instruction, MemberDescription, StoreGroup
from headrace.model.errors import (
    FencedMemberEpochError,
    GroupError,
    GroupFullError,
    UnknownMemberError,
)

JOIN_EPOCH = 0
LEAVE_EPOCH = -1
ASSIGNOR = "simple"


class SharedTopic(NamedTuple):
    """A queue that members may work from."""

    topic_id: UUID
    partition_count: int


# What a name stands for now; None: no queue has it.
FindTopic = Callable[[str], SharedTopic | None]


class ShareLimits(NamedTuple):
    session_timeout_ms: int = 45_000
    members_max: int = 1_000


class ShareHeartbeat(NamedTuple):
    member_id: str
    member_epoch: int
    topics: tuple[str, ...] | None = None  # None: as before
    rack_id: str | None = None
    client_id: str = ""
    client_host: str = ""


class ShareMember(msgspec.Struct, frozen=True, array_like=True):
    """As it is stored. Its epoch is the group's, or one before it that it has not heard of yet."""

    member_id: str
    epoch: int
    topics: tuple[str, ...]
    rack_id: str | None
    client_id: str
    client_host: str


class Shared(NamedTuple):
    """The answer to a heartbeat. No assignment: the member has the right one."""

    member_epoch: int
    assignment: Sequence[SharedTopic] | None = None


class _Image(msgspec.Struct, frozen=True, array_like=True):
    epoch: int
    members: tuple[ShareMember, ...]
    known: tuple[tuple[str, SharedTopic], ...]
    worked: tuple[UUID, ...] = ()


class ShareGroup:
    kind = GroupKind.SHARE
    protocol_type = "share"
    protocol_name = ""

    def __init__(self, group_id: str, limits: ShareLimits) -> None:
        self.group_id = group_id
        self.epoch = 0
        self.members: dict[str, ShareMember] = {}
        self._limits = limits
        # Of each member's session. Sessions are equally long, so who was heard of last stands last.
        self._deadlines: dict[str, int] = {}
        self._subscribers: Counter[str] = Counter()  # by topic
        self._known: dict[str, SharedTopic] = {}  # the subscribed queues, as of the present epoch
        # The queues that members were ever given, until they are forgotten: what an administrator asks offsets of.
        self.worked: set[UUID] = set()

    @classmethod
    def restore(cls, group_id: str, image: bytes, limits: ShareLimits, *, now_ms: int) -> "ShareGroup":
        stored = msgspec.msgpack.decode(image, type=_Image)
        group = cls(group_id, limits)
        group.epoch = stored.epoch
        # Those that have caught up since were not written down; whoever has not is behind by his own words.
        group.members = {one.member_id: msgspec.structs.replace(one, epoch=stored.epoch) for one in stored.members}
        group._subscribers = Counter(name for one in stored.members for name in one.topics)
        group._known = dict(stored.known)
        group.worked = set(stored.worked)
        group._deadlines = dict.fromkeys(group.members, now_ms + limits.session_timeout_ms)
        return group

    def image(self) -> bytes:
        return msgspec.msgpack.encode(
            _Image(
                self.epoch,
                tuple(self.members.values()),
                tuple(sorted(self._known.items())),
                tuple(sorted(self.worked)),
            )
        )

    # What others ask.

    @property
    def state_name(self) -> str:
        return "Stable" if self.members else "Empty"

    @property
    def member_count(self) -> int:
        return len(self.members)

    @property
    def is_empty(self) -> bool:
        return not self.members

    def subscribes(self, topic: str) -> bool:
        return topic in self._subscribers

    def describe_members(self) -> list[MemberDescription]:
        return [
            MemberDescription(member.member_id, None, member.client_id, member.client_host, b"", b"")
            for member in self.members.values()
        ]

    def check_commit(
        self, member_id: str, generation: int, instance_id: str | None, *, is_transactional: bool, now_ms: int
    ) -> type[GroupError] | None:
        """Members of a share group acknowledge messages and commit no offsets."""
        is_outside = generation < 0 and not member_id and instance_id is None
        return None if is_outside and not self.members else UnknownMemberError

    def assignment(self, member: ShareMember) -> list[SharedTopic]:
        """All partitions of all of its queues."""
        return [self._known[name] for name in member.topics if name in self._known]

    def topics_of(self, member: ShareMember) -> list[tuple[str, SharedTopic]]:
        """The same with names, for people."""
        return [(name, self._known[name]) for name in member.topics if name in self._known]

    # Members.

    def heartbeat(
        self, request: ShareHeartbeat, find: FindTopic, now_ms: int
    ) -> tuple[Shared | type[GroupError], list[Instruction]]:
        if request.member_epoch == LEAVE_EPOCH:
            return self._leave(request.member_id)
        member = self.members.get(request.member_id)
        if request.member_epoch != JOIN_EPOCH:
            if member is None:
                return UnknownMemberError, []
            if request.member_epoch > member.epoch:
                return FencedMemberEpochError, []
        elif member is None and len(self.members) >= self._limits.members_max:
            return GroupFullError, []
        before = self.epoch
        member = self._take_in(request, member)
        self._look(member.topics, find)
        if member.epoch != self.epoch:
            member = self.members[member.member_id] = msgspec.structs.replace(member, epoch=self.epoch)
        self._deadlines.pop(member.member_id, None)
        self._deadlines[member.member_id] = now_ms + self._limits.session_timeout_ms
        is_told = request.member_epoch == member.epoch
        answer = Shared(member.epoch, None if is_told else self.assignment(member))
        return answer, [StoreGroup()] if self.epoch != before else []

    def _take_in(self, request: ShareHeartbeat, member: ShareMember | None) -> ShareMember:
        """The member as the heartbeat describes it."""
        known_topics = () if member is None else member.topics
        topics = known_topics if request.topics is None else tuple(sorted(set(request.topics)))
        if member is None or request.member_epoch == JOIN_EPOCH:
            said = ShareMember(request.member_id, 0, topics, request.rack_id, request.client_id, request.client_host)
            self.epoch += 1
        elif topics != member.topics:
            said = msgspec.structs.replace(member, topics=topics)
            self.epoch += 1
        else:
            return member
        self.members[said.member_id] = said
        self._subscribers.update(topics)
        self._unsubscribe(known_topics)
        return said

    def _look(self, names: Sequence[str], find: FindTopic) -> None:
        """See what queues these stand for now."""
        is_changed = False
        for name in names:
            topic = find(name)
            if topic == self._known.get(name):
                continue
            is_changed = True
            if topic is None:
                del self._known[name]
            else:
                self._known[name] = topic
                self.worked.add(topic.topic_id)
        self.epoch += is_changed

    def _unsubscribe(self, names: Sequence[str]) -> None:
        for name in names:
            self._subscribers[name] -= 1
            if not self._subscribers[name]:
                del self._subscribers[name]
                self._known.pop(name, None)

    def _leave(self, member_id: str) -> tuple[Shared | type[GroupError], list[Instruction]]:
        if member_id not in self.members:
            return UnknownMemberError, []
        self._remove(member_id)
        return Shared(LEAVE_EPOCH), [StoreGroup()]

    def _remove(self, member_id: str) -> None:
        member = self.members.pop(member_id)
        del self._deadlines[member_id]
        self._unsubscribe(member.topics)
        self.epoch += 1

    # Time.

    def obey(self, limits: ShareLimits, now_ms: int) -> None:
        """Take over other limits. Every member has a whole session from now."""
        self._limits = limits
        self._deadlines = dict.fromkeys(self._deadlines, now_ms + limits.session_timeout_ms)

    def next_deadline(self) -> int | None:
        return next(iter(self._deadlines.values()), None)

    def tick(self, now_ms: int) -> list[Instruction]:
        """Drop the members that were silent for too long."""
        silent = [member_id for member_id, due_ms in self._deadlines.items() if due_ms <= now_ms]
        for member_id in silent:
            self._remove(member_id)
        return [StoreGroup()] if silent else []
