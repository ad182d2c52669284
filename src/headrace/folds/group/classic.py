"""A classic group: its members join, one of them shares the partitions out, and all are told (JoinGroup, SyncGroup).

Theory of operation.

    Empty -> PreparingRebalance -> CompletingRebalance -> Stable
                    ^    \\-> Empty          |              |
                    \\-----------------------+--------------/

PreparingRebalance collects joins: until every member has joined again, or the longest rebalance time-out of any member
is over and those that did not come are dropped. For a group that was empty, until the initial delay has passed without
a newcomer, so that the members of a starting application make one generation and not one each. Then the generation is
raised, a protocol that all know is chosen, and every join is answered, the leader's with the list of all.
CompletingRebalance waits for the leader's assignment; it goes to Stable with that, and back where a member comes or
goes meanwhile. What is in an assignment, and whether members give up their partitions before they join (eager) or after
(cooperative), is the clients' own affair.

The group is stored whenever a generation begins, whenever its assignment is there and when a static member's place is
taken, each before the answers that rest on it: a generation is never handed out twice, and a node that comes back knows
members, generation and assignment, so that nobody has to join again.

A static member (`instance_id`) keeps its place over a restart of its process: the newcomer with its instance id takes
over, without a rebalance where the protocol stays the same, and its predecessor is fenced.
"""

from collections.abc import Iterable
from enum import Enum
from typing import NamedTuple

import msgspec

from headrace.folds.group.kind import GroupKind
from headrace.folds.group.machine import (
    AnswerJoin,
    AnswerSync,
    Instruction,
    Joined,
    MemberDescription,
    Refuse,
    StoreGroup,
    Synced,
)
from headrace.folds.group.member import Member, StoredMember, drop_calls, new_member
from headrace.folds.group.protocol import CONSUMER_PROTOCOL_TYPE
from headrace.folds.group.request import JoinRequest, Leaving, SyncRequest, size_of
from headrace.folds.group.roster import Roster
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

# How long a newcomer may wait for its first generation: its session begins with the answer.
NEW_MEMBER_TIMEOUT_MS = 5 * 60 * 1000


class ClassicState(Enum):
    """By the names that Kafka's tools show."""

    EMPTY = "Empty"
    PREPARING = "PreparingRebalance"
    COMPLETING = "CompletingRebalance"
    STABLE = "Stable"


_SETTLED = (ClassicState.COMPLETING, ClassicState.STABLE)


class ClassicLimits(NamedTuple):
    initial_rebalance_delay_ms: int = 100
    members_max: int = 10_000
    # Of all members together: the group is written in one piece.
    metadata_bytes_max: int = 64 * 1024 * 1024


class _Image(msgspec.Struct, frozen=True, array_like=True):
    state: ClassicState
    generation: int
    protocol_type: str
    protocol_name: str
    leader: str
    members: tuple[StoredMember, ...]


class ClassicGroup:
    kind = GroupKind.CLASSIC

    def __init__(self, group_id: str, limits: ClassicLimits, *, generation: int = 0) -> None:
        self.group_id = group_id
        self.state = ClassicState.EMPTY
        self.generation = generation
        self.protocol_type = ""
        self.protocol_name = ""
        self.roster = Roster()
        self._limits = limits
        self._named: dict[str, int] = {}  # ids that were given out, until their owners join; with their deadlines
        self._unsynced: set[str] = set()  # members of this generation that have not asked for their assignment
        self._phase_deadline_ms: int | None = None  # of the joins, or of the syncs
        # While a group that was empty collects its first members: until when it may at most go on, else None.
        self._initial_until_ms: int | None = None
        self._has_newcomer = False

    @classmethod
    def restore(cls, group_id: str, image: bytes, limits: ClassicLimits, *, now_ms: int) -> "ClassicGroup":
        """The group as it was stored. Every member has a whole session to be heard of again."""
        stored = msgspec.msgpack.decode(image, type=_Image)
        group = cls(group_id, limits)
        group.state, group.generation = stored.state, stored.generation
        group.protocol_type, group.protocol_name = stored.protocol_type, stored.protocol_name
        for member in stored.members:
            group.roster.add(Member(member, deadline_ms=now_ms + member.session_timeout_ms))
        group.roster.leader = stored.leader
        if group.state is ClassicState.COMPLETING:
            group._await_syncs(now_ms)
        elif group.state is ClassicState.PREPARING:
            group._phase_deadline_ms = now_ms + group.roster.rebalance_timeout_ms
        return group

    @classmethod
    def of_members(
        cls, group_id: str, generation: int, members: Iterable[StoredMember], limits: ClassicLimits, *, now_ms: int
    ) -> "ClassicGroup":
        """A group whose members were together before in another way: all of them have to join again."""
        group = cls(group_id, limits, generation=generation)
        group.protocol_type = CONSUMER_PROTOCOL_TYPE
        for member in members:
            group.roster.add(Member(member, deadline_ms=now_ms + member.session_timeout_ms))
        group.protocol_name = group.roster.choose_protocol()
        group.state = ClassicState.STABLE
        group._rebalance(now_ms)
        return group

    def image(self) -> bytes:
        roster = self.roster
        return msgspec.msgpack.encode(
            _Image(self.state, self.generation, self.protocol_type, self.protocol_name, roster.leader, roster.stored())
        )

    # What others ask.

    @property
    def state_name(self) -> str:
        return self.state.value

    @property
    def member_count(self) -> int:
        return len(self.roster)

    @property
    def is_empty(self) -> bool:
        return not self.roster and not self._named

    def describe_members(self) -> list[MemberDescription]:
        return self.roster.describe(self.protocol_name if self.state is ClassicState.STABLE else None)

    def subscribes(self, topic: str) -> bool:
        return self.roster.subscribes(topic, protocol_type=self.protocol_type)

    def check_commit(
        self, member_id: str, generation: int, instance_id: str | None, *, is_transactional: bool, now_ms: int
    ) -> type[GroupError] | None:
        if generation < 0 and not self.roster:
            # An administrator, or a consumer that assigns partitions to itself; some of these carry a member id.
            return None
        if generation < 0 and not member_id and instance_id is None:
            # A transaction of an older client does not say who it is.
            return None if is_transactional else UnknownMemberError
        refused = self._check(member_id, instance_id, generation)
        if refused is not None:
            return refused
        if self.state is ClassicState.COMPLETING and not is_transactional:
            return RebalanceInProgressError
        self.roster[member_id].heard(now_ms)
        return None

    # Joining.

    def join(self, request: JoinRequest, now_ms: int) -> list[Instruction]:
        if not self._has_room(request):
            self._named.pop(request.member_id, None)
            return [Refuse(request.call, GroupFullError)]
        if not self._supports(request):
            return [Refuse(request.call, InconsistentProtocolError, request.member_id)]
        if not request.member_id:
            return self._join_unknown(request, now_ms)
        if request.member_id in self._named:
            if request.instance_id is not None:
                return [Refuse(request.call, UnknownMemberError, request.member_id)]
            return self._take_in(request, request.member_id, now_ms)
        refused = self.roster.check(request.member_id, request.instance_id)
        if refused is not None:
            return [Refuse(request.call, refused, request.member_id)]
        return self._join_again(request, now_ms)

    def _has_room(self, request: JoinRequest) -> bool:
        if self.roster.has(request.member_id) or (not request.member_id and self.roster.holder(request.instance_id)):
            return True  # it is a member, or takes the place of one
        size_bytes = self.roster.size_bytes + size_of(request.protocols)
        return len(self.roster) < self._limits.members_max and size_bytes <= self._limits.metadata_bytes_max

    def _supports(self, request: JoinRequest) -> bool:
        if not self.roster:
            return bool(request.protocol_type and request.protocols)
        return request.protocol_type == self.protocol_type and self.roster.supports(request)

    def _join_unknown(self, request: JoinRequest, now_ms: int) -> list[Instruction]:
        holder = self.roster.holder(request.instance_id)
        if holder is not None:
            return self._replace(request, holder, now_ms)
        if request.instance_id is None and request.is_id_required:
            self._named[request.new_member_id] = now_ms + request.session_timeout_ms
            return [Refuse(request.call, MemberIdRequiredError, request.new_member_id)]
        return self._take_in(request, request.new_member_id, now_ms)

    def _take_in(self, request: JoinRequest, member_id: str, now_ms: int) -> list[Instruction]:
        self._named.pop(member_id, None)
        member = new_member(request, member_id, deadline_ms=now_ms + NEW_MEMBER_TIMEOUT_MS)
        member.is_new = True
        member.join_call = request.call
        if not self.roster:
            self.protocol_type = request.protocol_type
        self.roster.add(member)
        self._has_newcomer = True
        return self._rebalance(now_ms)

    def _join_again(self, request: JoinRequest, now_ms: int) -> list[Instruction]:
        member = self.roster[request.member_id]
        member.heard(now_ms)
        is_answered = self.state is ClassicState.COMPLETING or (
            self.state is ClassicState.STABLE and member.member_id != self.roster.leader
        )
        if is_answered and request.protocols == member.protocols:
            # It did not hear the answer; or a follower joins for no reason that would concern the others.
            return [AnswerJoin(request.call, self._joined(member))]
        out = drop_calls(member, RebalanceInProgressError)
        self.roster.update(member, request)
        member.join_call = request.call
        return [*out, *self._rebalance(now_ms)]

    def _replace(self, request: JoinRequest, old: Member, now_ms: int) -> list[Instruction]:
        """A static member has come back under a new id."""
        out = drop_calls(old, FencedInstanceError)
        old_leader = self.roster.leader
        member = self.roster.replace(old, request, now_ms=now_ms)
        if old.member_id in self._unsynced:
            self._unsynced.remove(old.member_id)
            self._unsynced.add(member.member_id)
        if self.state is not ClassicState.STABLE or self.roster.choose_protocol() != self.protocol_name:
            member.join_call = request.call
            return [*out, *self._rebalance(now_ms)]
        joined = self._joined(member)
        if self.roster.leader == member.member_id:
            # What stands is not to be shared out anew. Older clients are told that another member leads.
            skipping = joined._replace(skip_assignment=True)
            joined = skipping if request.can_skip_assignment else joined._replace(leader=old_leader, members=())
        return [*out, StoreGroup(), AnswerJoin(request.call, joined)]

    def _joined(self, member: Member) -> Joined:
        leader = self.roster.leader
        members = self.roster.joined(self.protocol_name) if member.member_id == leader else ()
        return Joined(member.member_id, self.generation, self.protocol_type, self.protocol_name, leader, members)

    # A rebalance.

    def _rebalance(self, now_ms: int) -> list[Instruction]:
        """Begin one, or see whether the one that has begun is complete."""
        if self.state is ClassicState.PREPARING:
            return self._try_complete(now_ms)
        out: list[Instruction] = []
        for member in self.roster:
            if member.sync_call is not None:
                out.append(Refuse(member.sync_call, RebalanceInProgressError))
                member.sync_call = None
                member.heard(now_ms)
        self._unsynced.clear()
        delay_ms = self._limits.initial_rebalance_delay_ms
        is_initial = self.state is ClassicState.EMPTY and delay_ms > 0
        self.state = ClassicState.PREPARING
        if is_initial:
            self._has_newcomer = False
            self._initial_until_ms = now_ms + max(self.roster.rebalance_timeout_ms, delay_ms)
            self._phase_deadline_ms = now_ms + delay_ms
            return out
        self._phase_deadline_ms = now_ms + self.roster.rebalance_timeout_ms
        return out + self._try_complete(now_ms)

    def _try_complete(self, now_ms: int) -> list[Instruction]:
        if self._initial_until_ms is not None or self._named:
            return []
        if any(member.join_call is None for member in self.roster):
            return []
        return self._complete(now_ms)

    def _complete(self, now_ms: int) -> list[Instruction]:
        """End the collecting of joins: the next generation is whoever has come."""
        out: list[Instruction] = []
        for member in self.roster:
            if member.join_call is None and member.instance_id is None:
                out += self._remove(member)
        joined = [member for member in self.roster if member.join_call is not None]
        if self.roster and not joined:
            # Only static members, and none is back yet: their places are kept until their sessions end.
            self._phase_deadline_ms = now_ms + self.roster.rebalance_timeout_ms
            return out
        self.generation += 1
        self._initial_until_ms = None
        out.append(StoreGroup())
        if not joined:
            self.state = ClassicState.EMPTY
            self.protocol_name = ""
            self._phase_deadline_ms = None
            return out
        if self.roster[self.roster.leader].join_call is None:
            self.roster.leader = joined[0].member_id
        self.state = ClassicState.COMPLETING
        self.protocol_name = self.roster.choose_protocol()
        for member in self.roster:
            member.assignment = b""
            member.generation = None
        for member in joined:
            assert member.join_call is not None
            out.append(AnswerJoin(member.join_call, self._joined(member)))
            member.join_call = None
            member.is_new = False
            member.heard(now_ms)
        self._await_syncs(now_ms)
        return out

    def _await_syncs(self, now_ms: int) -> None:
        self._unsynced = {member.member_id for member in self.roster}
        self._phase_deadline_ms = now_ms + self.roster.rebalance_timeout_ms

    def sync(self, request: SyncRequest, now_ms: int) -> list[Instruction]:
        refused = self._check(request.member_id, request.instance_id, request.generation)
        if refused is None and (
            request.protocol_type not in (None, self.protocol_type)
            or request.protocol_name not in (None, self.protocol_name)
        ):
            refused = InconsistentProtocolError
        if refused is None and self.state is ClassicState.PREPARING:
            refused = RebalanceInProgressError
        if refused is not None:
            return [Refuse(request.call, refused)]
        member = self.roster[request.member_id]
        member.heard(now_ms)
        self._unsynced.discard(member.member_id)
        if not self._unsynced:
            self._phase_deadline_ms = None
        if self.state is ClassicState.STABLE:
            return [self._answer_sync(request.call, member)]
        out: list[Instruction] = [*drop_calls(member, RebalanceInProgressError)]
        member.sync_call = request.call
        if member.member_id != self.roster.leader:
            return out
        given = dict(request.assignments)
        for one in self.roster:
            one.assignment = given.get(one.member_id, b"")
        self.state = ClassicState.STABLE
        out.append(StoreGroup())
        for one in self.roster:
            if one.sync_call is not None:
                out.append(self._answer_sync(one.sync_call, one))
                one.sync_call = None
                one.heard(now_ms)
        return out

    def _answer_sync(self, call: int, member: Member) -> AnswerSync:
        return AnswerSync(call, Synced(self.protocol_type, self.protocol_name, member.assignment))

    # Staying and leaving.

    def _check(self, member_id: str, instance_id: str | None, generation: int) -> type[GroupError] | None:
        """Whether this is a member, of this generation."""
        refused = self.roster.check(member_id, instance_id)
        if refused is None and generation not in (self.generation, self.roster[member_id].generation):
            return IllegalGenerationError
        return refused

    def heartbeat(
        self, member_id: str, generation: int, instance_id: str | None, now_ms: int
    ) -> type[GroupError] | None:
        refused = self._check(member_id, instance_id, generation)
        if refused is not None:
            return refused
        self.roster[member_id].heard(now_ms)
        return RebalanceInProgressError if self.state is ClassicState.PREPARING else None

    def leave(self, leaving: Iterable[Leaving], now_ms: int) -> tuple[list[type[GroupError] | None], list[Instruction]]:
        """What each of them is told, and what follows for the others."""
        results: list[type[GroupError] | None] = []
        out: list[Instruction] = []
        count = len(self.roster)
        for member_id, instance_id in leaving:
            if instance_id is None and self._named.pop(member_id, None) is not None:
                results.append(None)
                continue
            holder = self.roster.holder(instance_id)
            if holder is not None and not member_id:
                member_id = holder.member_id
            refused = self.roster.check(member_id, instance_id)
            results.append(refused)
            if refused is None:
                out += self._remove(self.roster[member_id])
        if None in results:
            out += self._gone(now_ms, has_member_gone=len(self.roster) < count)
        return results, out

    def _remove(self, member: Member) -> list[Instruction]:
        self._unsynced.discard(member.member_id)
        return [*self.roster.remove(member)]

    def _gone(self, now_ms: int, *, has_member_gone: bool) -> list[Instruction]:
        """Somebody has left, or will not come: those who stay need not wait for him."""
        if self.state is ClassicState.PREPARING:
            return self._try_complete(now_ms)
        return self._rebalance(now_ms) if has_member_gone and self.state in _SETTLED else []

    # Time.

    def next_deadline(self) -> int | None:
        due = [member.expires_ms for member in self.roster if member.expires_ms is not None]
        due += self._named.values()
        if self._phase_deadline_ms is not None:
            due.append(self._phase_deadline_ms)
        return min(due, default=None)

    def tick(self, now_ms: int) -> list[Instruction]:
        """Do what time has brought."""
        out: list[Instruction] = []
        gone = [one for one in self.roster if one.expires_ms is not None and one.expires_ms <= now_ms]
        for member in gone:
            out += self._remove(member)
        late = [member_id for member_id, deadline_ms in self._named.items() if deadline_ms <= now_ms]
        for member_id in late:
            del self._named[member_id]
        if gone or late:
            out += self._gone(now_ms, has_member_gone=bool(gone))
        if self._phase_deadline_ms is not None and self._phase_deadline_ms <= now_ms:
            out += self._phase_over(now_ms)
        return out

    def _phase_over(self, now_ms: int) -> list[Instruction]:
        if self.state is ClassicState.PREPARING:
            if self._has_newcomer and self._initial_until_ms is not None and now_ms < self._initial_until_ms:
                self._has_newcomer = False
                delay_ms = self._limits.initial_rebalance_delay_ms
                self._phase_deadline_ms = min(now_ms + delay_ms, self._initial_until_ms)
                return []
            return self._complete(now_ms)
        # Members that took part in the join and never asked what they are to read.
        out: list[Instruction] = []
        self._phase_deadline_ms = None
        for member_id in sorted(self._unsynced):
            out += self._remove(self.roster[member_id])
        return out + self._gone(now_ms, has_member_gone=True)
