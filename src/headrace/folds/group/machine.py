"""What every kind of group's machine has in common: what it is asked, and what it tells its driver to do.

A machine is pure. It is given the time and the caller's number (`call`), and returns instructions in the order in which
they are to be carried out; nothing that stands behind a `StoreGroup` may be seen before the group is durable.
"""

from collections.abc import Sequence
from typing import NamedTuple, Protocol

from headrace.folds.group.kind import GroupKind
from headrace.model.errors import GroupError


class StoreGroup(NamedTuple):
    """Write the group's image: what follows rests on it."""


class JoinedMember(NamedTuple):
    """One member, as the leader of its group is shown it."""

    member_id: str
    instance_id: str | None
    metadata: bytes


class Joined(NamedTuple):
    """The answer to a join: the generation, and for its leader the members whose partitions it shares out."""

    member_id: str
    generation: int
    protocol_type: str
    protocol_name: str
    leader: str
    members: tuple[JoinedMember, ...]
    skip_assignment: bool = False  # the leader of a group whose assignment stands as it is (KIP-814)


class Synced(NamedTuple):
    """The answer to a sync: what the leader gave this member, in the clients' own encoding."""

    protocol_type: str
    protocol_name: str
    assignment: bytes


class AnswerJoin(NamedTuple):
    call: int
    joined: Joined


class AnswerSync(NamedTuple):
    call: int
    synced: Synced


class Refuse(NamedTuple):
    call: int
    why: type[GroupError]
    member_id: str = ""


Instruction = StoreGroup | AnswerJoin | AnswerSync | Refuse


class MemberDescription(NamedTuple):
    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    metadata: bytes
    assignment: bytes


class GroupMachine(Protocol):
    """One group's membership, of whatever kind."""

    @property
    def group_id(self) -> str: ...

    @property
    def kind(self) -> GroupKind: ...

    @property
    def state_name(self) -> str:
        """The state in the words of Kafka's tools."""

    @property
    def protocol_type(self) -> str: ...

    @property
    def protocol_name(self) -> str: ...

    @property
    def member_count(self) -> int: ...

    @property
    def is_empty(self) -> bool:
        """No members, and nobody on the way in."""

    def check_commit(
        self, member_id: str, generation: int, instance_id: str | None, *, is_transactional: bool, now_ms: int
    ) -> type[GroupError] | None:
        """Whether this caller may commit offsets now, and what is wrong if not (failure row 31)."""

    def subscribes(self, topic: str) -> bool:
        """Whether a member reads a topic, as far as that is known."""

    def describe_members(self) -> Sequence[MemberDescription]: ...

    def image(self) -> bytes:
        """What is to be known of the group after a restart."""

    def next_deadline(self) -> int | None:
        """When `tick` has something to do, in monotonic time."""

    def tick(self, now_ms: int) -> Sequence[Instruction]: ...
