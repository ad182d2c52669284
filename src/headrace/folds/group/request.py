"""What the members of a classic group ask of it. `call` is the number under which the caller waits for his answer."""

from collections.abc import Sequence
from typing import NamedTuple

Protocols = tuple[tuple[str, bytes], ...]  # name and the client's own metadata, in order of preference


def size_of(protocols: Protocols) -> int:
    return sum(len(name) + len(metadata) for name, metadata in protocols)


class JoinRequest(NamedTuple):
    """What a member asks for when it joins."""

    call: int
    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    session_timeout_ms: int
    rebalance_timeout_ms: int
    protocol_type: str
    protocols: Protocols
    new_member_id: str  # what to call the member if it is a new one
    is_id_required: bool = True  # a new member is first told its id, and joins with it (KIP-394)
    can_skip_assignment: bool = False  # KIP-814


class SyncRequest(NamedTuple):
    call: int
    member_id: str
    generation: int
    instance_id: str | None
    protocol_type: str | None  # None: the client did not say
    protocol_name: str | None
    assignments: Sequence[tuple[str, bytes]]


class Leaving(NamedTuple):
    """One who leaves: by its id, or by its instance id alone where an operator removes it."""

    member_id: str
    instance_id: str | None = None
