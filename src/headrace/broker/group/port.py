"""What gateways, the command line and the coordinator of transactions ask of groups.

Every call is answered after what it rests on is durable. An error that is raised concerns the whole call; those that
concern one partition or member stand in the answer, in the order of what was asked. `CoordinatorUnavailableError` means
*maybe*: the coordinator cannot say what became of it.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple, Protocol
from uuid import UUID

import msgspec

from headrace.broker.group.config import GroupsConfig
from headrace.broker.group.consumer_port import ConsumerGroupPort
from headrace.folds.group.kind import GroupKind
from headrace.folds.group.machine import Joined, MemberDescription, Synced
from headrace.folds.group.request import Leaving
from headrace.model.errors import HeadraceError

TopicPartition = tuple[str | UUID, int]
Outcomes = list[HeadraceError | None]


class Caller(msgspec.Struct, frozen=True, kw_only=True):
    """Who speaks: a member of a generation, or somebody outside (neither member id nor generation)."""

    group_id: str
    member_id: str = ""
    generation: int = -1  # of a consumer group (KIP-848): the member's epoch
    instance_id: str | None = None


class Join(msgspec.Struct, frozen=True, kw_only=True):
    group_id: str
    member_id: str
    instance_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    session_timeout_ms: int
    rebalance_timeout_ms: int
    protocol_type: str
    protocols: tuple[tuple[str, bytes], ...]
    is_id_required: bool = True  # a new member is first told its id, and joins with it (KIP-394)
    can_skip_assignment: bool = False  # KIP-814


class Sync(msgspec.Struct, frozen=True, kw_only=True):
    caller: Caller
    protocol_type: str | None = None  # None: the client did not say
    protocol_name: str | None = None
    assignments: tuple[tuple[str, bytes], ...] = ()


class OffsetCommit(NamedTuple):
    topic: str | UUID
    partition: int
    offset: int
    leader_epoch: int = -1
    metadata: str = ""


class Committed(NamedTuple):
    topic: str | UUID  # as it was asked for; the name where everything was asked for
    partition: int
    offset: int = -1  # -1: none
    leader_epoch: int = -1
    metadata: str = ""
    error: HeadraceError | None = None


class GroupListing(NamedTuple):
    group_id: str
    kind: GroupKind
    protocol_type: str
    state: str
    member_count: int


class GroupDescription(NamedTuple):
    group_id: str
    kind: GroupKind
    state: str
    protocol_type: str
    protocol_name: str
    members: Sequence[MemberDescription]


class PartitionLag(NamedTuple):
    topic: str
    partition: int
    committed: int
    end_offset: int  # of what is committed in the partition
    lag: int


class GroupSettings(NamedTuple):
    overrides: Mapping[str, str]
    defaults: Mapping[str, str]  # of this node, where they are not the settings' own


class GroupPort(Protocol):
    @property
    def config(self) -> GroupsConfig: ...

    @property
    def consumers(self) -> ConsumerGroupPort:
        """What only consumer groups are asked (KIP-848)."""

    async def join(self, request: Join) -> Joined: ...

    async def sync(self, request: Sync) -> Synced: ...

    async def heartbeat(self, caller: Caller) -> None: ...

    async def leave(self, group_id: str, leaving: Sequence[Leaving]) -> Outcomes: ...

    # Offsets.

    async def commit(self, caller: Caller, offsets: Sequence[OffsetCommit]) -> Outcomes: ...

    async def committed(
        self, caller: Caller, partitions: Sequence[TopicPartition] | None, *, require_stable: bool = False
    ) -> list[Committed]:
        """What a group has committed for these partitions, or all that it has. An unknown group has nothing."""

    async def delete_offsets(self, group_id: str, partitions: Sequence[TopicPartition]) -> Outcomes: ...

    # Transactions.

    async def commit_transactional(
        self, caller: Caller, offsets: Sequence[OffsetCommit], *, producer_id: int, producer_epoch: int
    ) -> Outcomes:
        """Offsets that count once the producer's transaction commits."""

    async def end_transaction(self, producer_id: int, producer_epoch: int, *, commit: bool) -> None:
        """Decide what a producer has pending in any group, under this epoch or an earlier one. Repeatable."""

    # Settings.

    def settings(self, group_id: str) -> GroupSettings:
        """What is set for a group, whether or not it exists."""

    async def configure(self, group_id: str, overrides: Mapping[str, str], *, validate_only: bool = False) -> None:
        """Replace all settings of a group. What is not named follows the node."""

    def configured(self) -> list[str]:
        """The groups for which something is set."""

    # Administration.

    async def list_groups(self) -> list[GroupListing]: ...

    async def describe(self, group_id: str) -> GroupDescription: ...

    async def delete(self, group_id: str) -> None: ...

    async def lag(self, group_id: str) -> list[PartitionLag]: ...
