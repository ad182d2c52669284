"""A classic group driven by hand: calls are numbered, members are named by letters, time is what the test says."""

from headrace.folds.group.classic import ClassicGroup, ClassicLimits
from headrace.folds.group.machine import AnswerJoin, AnswerSync, Instruction, Joined, Refuse
from headrace.folds.group.request import JoinRequest, SyncRequest
from headrace.model.errors import GroupError

SESSION_MS = 10_000
REBALANCE_MS = 30_000
NO_DELAY = ClassicLimits(initial_rebalance_delay_ms=0)
RANGE = (("range", b"topics"),)


class Script:
    """Members join under the ids that they will have: `a` becomes member `a`."""

    def __init__(self, limits: ClassicLimits = NO_DELAY) -> None:
        self.limits = limits
        self.group = ClassicGroup("g", limits)
        self.now_ms = 1000
        self.calls = 0

    def join(
        self,
        member_id: str,
        *,
        is_new: bool = False,
        instance_id: str | None = None,
        protocols: tuple[tuple[str, bytes], ...] = RANGE,
        protocol_type: str = "consumer",
        is_id_required: bool = False,
        can_skip_assignment: bool = False,
        session_ms: int = SESSION_MS,
        rebalance_ms: int = REBALANCE_MS,
    ) -> list[Instruction]:
        self.calls += 1
        return self.group.join(
            JoinRequest(
                call=self.calls,
                member_id="" if is_new else member_id,
                instance_id=instance_id,
                client_id="client",
                client_host="host",
                session_timeout_ms=session_ms,
                rebalance_timeout_ms=rebalance_ms,
                protocol_type=protocol_type,
                protocols=protocols,
                new_member_id=member_id,
                is_id_required=is_id_required,
                can_skip_assignment=can_skip_assignment,
            ),
            self.now_ms,
        )

    def enter(self, member_id: str, *, instance_id: str | None = None) -> list[Instruction]:
        return self.join(member_id, is_new=True, instance_id=instance_id)

    def sync(
        self,
        member_id: str,
        assignments: dict[str, bytes] | None = None,
        *,
        generation: int | None = None,
        instance_id: str | None = None,
        protocol_name: str | None = None,
    ) -> list[Instruction]:
        self.calls += 1
        return self.group.sync(
            SyncRequest(
                call=self.calls,
                member_id=member_id,
                generation=self.group.generation if generation is None else generation,
                instance_id=instance_id,
                protocol_type=None,
                protocol_name=protocol_name,
                assignments=tuple((assignments or {}).items()),
            ),
            self.now_ms,
        )

    def heartbeat(
        self, member_id: str, *, generation: int | None = None, instance_id: str | None = None
    ) -> type[GroupError] | None:
        at = self.group.generation if generation is None else generation
        return self.group.heartbeat(member_id, at, instance_id, self.now_ms)

    def commit(
        self, member_id: str = "", generation: int = -1, instance_id: str | None = None, *, in_txn: bool = False
    ) -> type[GroupError] | None:
        return self.group.check_commit(member_id, generation, instance_id, is_transactional=in_txn, now_ms=self.now_ms)

    def elapse(self, ms: int) -> list[Instruction]:
        """Let time pass, calling the group at each of its deadlines."""
        out: list[Instruction] = []
        end_ms = self.now_ms + ms
        while (due_ms := self.group.next_deadline()) is not None and due_ms <= end_ms:
            self.now_ms = max(self.now_ms, due_ms)
            out += self.group.tick(self.now_ms)
        self.now_ms = end_ms
        return out

    def form(self, *members: str) -> None:
        """A stable generation of these, which all have joined anew; each assigned its own name."""
        for member in members:
            if self.group.roster.has(member):
                self.join(member)
            else:
                self.enter(member)
            for other in members:
                if self.heartbeat(other) is not None and self.group.roster.has(other):
                    self.join(other)
        leader = self.group.roster.leader
        self.sync(leader, {member: member.encode() for member in members})
        for member in members:
            if member != leader:
                self.sync(member)
        assert self.group.state_name == "Stable"

    def restart(self) -> None:
        """Go on from what was stored."""
        self.group = ClassicGroup.restore("g", self.group.image(), self.limits, now_ms=self.now_ms)


def refused(out: list[Instruction]) -> list[type[GroupError]]:
    return [one.why for one in out if isinstance(one, Refuse)]


def joined(out: list[Instruction]) -> list[Joined]:
    return [one.joined for one in out if isinstance(one, AnswerJoin)]


def assigned(out: list[Instruction]) -> list[bytes]:
    return [one.synced.assignment for one in out if isinstance(one, AnswerSync)]
