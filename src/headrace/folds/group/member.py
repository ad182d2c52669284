"""One member of a classic group, and its form in the group's image."""

import msgspec

from headrace.folds.group.machine import Refuse
from headrace.folds.group.request import JoinRequest, Protocols
from headrace.model.errors import GroupError


class StoredMember(msgspec.Struct, frozen=True, array_like=True):
    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    session_timeout_ms: int
    rebalance_timeout_ms: int
    protocols: Protocols
    assignment: bytes
    # The generation that it goes on with until it has joined; of a member whose group was a consumer group before.
    generation: int | None = None


class Member:
    """A member in memory: what is stored of it, and what it waits for."""

    __slots__ = (
        "assignment",
        "client_host",
        "client_id",
        "deadline_ms",
        "generation",
        "instance_id",
        "is_new",
        "join_call",
        "member_id",
        "protocols",
        "rebalance_timeout_ms",
        "session_timeout_ms",
        "sync_call",
    )

    def __init__(self, stored: StoredMember, *, deadline_ms: int) -> None:
        self.member_id = stored.member_id
        self.instance_id = stored.instance_id
        self.client_id = stored.client_id
        self.client_host = stored.client_host
        self.session_timeout_ms = stored.session_timeout_ms
        self.rebalance_timeout_ms = stored.rebalance_timeout_ms
        self.protocols = stored.protocols
        self.assignment = stored.assignment
        self.generation = stored.generation
        self.join_call: int | None = None
        self.sync_call: int | None = None
        self.deadline_ms = deadline_ms  # of its session
        self.is_new = False  # has not been through a whole join yet

    def stored(self) -> StoredMember:
        return StoredMember(
            member_id=self.member_id,
            instance_id=self.instance_id,
            client_id=self.client_id,
            client_host=self.client_host,
            session_timeout_ms=self.session_timeout_ms,
            rebalance_timeout_ms=self.rebalance_timeout_ms,
            protocols=self.protocols,
            assignment=self.assignment,
            generation=self.generation,
        )

    def heard(self, now_ms: int) -> None:
        self.deadline_ms = now_ms + self.session_timeout_ms

    @property
    def expires_ms(self) -> int | None:
        """When it is taken for gone. Whoever waits for our answer has nothing to say, once it was in the group."""
        is_waiting = self.join_call is not None or self.sync_call is not None
        return self.deadline_ms if self.is_new or not is_waiting else None

    def metadata(self, protocol: str) -> bytes:
        return next((metadata for name, metadata in self.protocols if name == protocol), b"")

    def update(self, request: JoinRequest) -> None:
        self.protocols = request.protocols
        self.client_id, self.client_host = request.client_id, request.client_host
        self.session_timeout_ms = request.session_timeout_ms
        self.rebalance_timeout_ms = request.rebalance_timeout_ms


def new_member(request: JoinRequest, member_id: str, *, deadline_ms: int) -> Member:
    stored = StoredMember(
        member_id=member_id,
        instance_id=request.instance_id,
        client_id=request.client_id,
        client_host=request.client_host,
        session_timeout_ms=request.session_timeout_ms,
        rebalance_timeout_ms=request.rebalance_timeout_ms,
        protocols=request.protocols,
        assignment=b"",
    )
    return Member(stored, deadline_ms=deadline_ms)


def drop_calls(member: Member, why: type[GroupError]) -> list[Refuse]:
    """Nobody will answer any more what the member waits for."""
    calls = [call for call in (member.join_call, member.sync_call) if call is not None]
    member.join_call = member.sync_call = None
    return [Refuse(call, why) for call in calls]
