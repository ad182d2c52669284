"""Who is in a classic group: the members in the order in which they came, and their instance ids."""

from collections import Counter
from collections.abc import Iterator

from headrace.folds.group.machine import JoinedMember, MemberDescription, Refuse
from headrace.folds.group.member import Member, StoredMember, drop_calls
from headrace.folds.group.protocol import CONSUMER_PROTOCOL_TYPE, subscribed_topics
from headrace.folds.group.request import JoinRequest, size_of
from headrace.model.errors import FencedInstanceError, GroupError, UnknownMemberError


class Roster:
    def __init__(self) -> None:
        self.leader = ""  # the member that shares the partitions out; empty in an empty group
        self._members: dict[str, Member] = {}
        self._instances: dict[str, str] = {}  # instance id -> member id
        # Kept up to date, because a group of thousands joins one by one.
        self._protocols: Counter[str] = Counter()  # how many members know each protocol
        self.size_bytes = 0  # of the members' metadata

    def __len__(self) -> int:
        return len(self._members)

    def __iter__(self) -> Iterator[Member]:
        return iter(list(self._members.values()))

    def __getitem__(self, member_id: str) -> Member:
        return self._members[member_id]

    def has(self, member_id: str) -> bool:
        return member_id in self._members

    def holder(self, instance_id: str | None) -> Member | None:
        """The member that has an instance id."""
        member_id = None if instance_id is None else self._instances.get(instance_id)
        return None if member_id is None else self._members[member_id]

    def check(self, member_id: str, instance_id: str | None) -> type[GroupError] | None:
        """Whether this is a member, and the one that its instance id belongs to."""
        if instance_id is not None:
            holder = self._instances.get(instance_id)
            if holder is None:
                return UnknownMemberError
            if holder != member_id:
                return FencedInstanceError
        return None if member_id in self._members else UnknownMemberError

    def add(self, member: Member) -> None:
        self._count(member, 1)
        self._members[member.member_id] = member
        if member.instance_id is not None:
            self._instances[member.instance_id] = member.member_id
        self.leader = self.leader or member.member_id

    def _count(self, member: Member, change: int) -> None:
        for name in {name for name, _ in member.protocols}:
            self._protocols[name] += change
        self.size_bytes += change * size_of(member.protocols)

    def update(self, member: Member, request: JoinRequest) -> None:
        """A member has joined again, maybe with other protocols."""
        self._count(member, -1)
        member.update(request)
        self._count(member, 1)

    def remove(self, member: Member) -> list[Refuse]:
        self._count(member, -1)
        del self._members[member.member_id]
        if member.instance_id is not None:
            del self._instances[member.instance_id]
        if self.leader == member.member_id:
            self.leader = next(iter(self._members), "")
        return drop_calls(member, UnknownMemberError)

    def replace(self, old: Member, request: JoinRequest, *, now_ms: int) -> Member:
        """A static member under its new id, in its old place: whatever goes by the order of members stays."""
        member = Member(old.stored(), deadline_ms=now_ms + request.session_timeout_ms)
        member.member_id = request.new_member_id
        self.update(member, request)
        assert member.instance_id is not None
        self._instances[member.instance_id] = member.member_id
        members = [member if one is old else one for one in self._members.values()]
        self._members = {one.member_id: one for one in members}
        if self.leader == old.member_id:
            self.leader = member.member_id
        return member

    @property
    def rebalance_timeout_ms(self) -> int:
        return max((member.rebalance_timeout_ms for member in self._members.values()), default=0)

    # Protocols.

    def supports(self, request: JoinRequest) -> bool:
        """Whether the members and this one can agree on a protocol."""
        return any(self._protocols[name] == len(self._members) for name, _ in request.protocols)

    def choose_protocol(self) -> str:
        """Each member votes for the first of its own that all know. A tie goes to the one that was voted for first."""
        count = len(self._members)
        votes = Counter(
            next(name for name, _ in member.protocols if self._protocols[name] == count)
            for member in self._members.values()
        )
        return votes.most_common(1)[0][0]

    def subscribes(self, topic: str, *, protocol_type: str) -> bool:
        if protocol_type != CONSUMER_PROTOCOL_TYPE:
            return bool(self._members)
        found = (subscribed_topics(member.protocols[0][1]) for member in self)
        return any(topics is None or topic in topics for topics in found)

    # What others are shown.

    def joined(self, protocol: str) -> tuple[JoinedMember, ...]:
        return tuple(JoinedMember(one.member_id, one.instance_id, one.metadata(protocol)) for one in self)

    def stored(self) -> tuple[StoredMember, ...]:
        return tuple(member.stored() for member in self)

    def describe(self, protocol: str | None) -> list[MemberDescription]:
        """The members, with metadata and assignment where the group has agreed on a protocol."""
        return [
            MemberDescription(
                member.member_id,
                member.instance_id,
                member.client_id,
                member.client_host,
                b"" if protocol is None else member.metadata(protocol),
                b"" if protocol is None else member.assignment,
            )
            for member in self
        ]
