"""What the Kafka gateway asks of consumer groups beside what all groups are asked (KIP-848)."""

from typing import NamedTuple, Protocol

from headrace.folds.group.consumer_member import Shares
from headrace.folds.group.consumer_request import ConsumerHeartbeat


class ConsumerHeard(NamedTuple):
    """The answer to a heartbeat."""

    member_id: str
    member_epoch: int
    heartbeat_interval_ms: int
    assignment: Shares | None  # None: as before


class ConsumerMemberDescription(NamedTuple):
    member_id: str
    instance_id: str | None
    rack_id: str | None
    member_epoch: int
    client_id: str
    client_host: str
    topic_names: tuple[str, ...]
    topic_regex: str
    assignment: Shares
    target: Shares
    is_classic: bool  # it speaks the classic protocol, in a group that changes from one to the other


class ConsumerGroupDescription(NamedTuple):
    group_id: str
    state: str
    group_epoch: int
    assignment_epoch: int
    assignor: str
    members: tuple[ConsumerMemberDescription, ...]


class ConsumerGroupPort(Protocol):
    async def heartbeat(
        self, group_id: str, request: ConsumerHeartbeat, *, is_named_here: bool = False
    ) -> ConsumerHeard:
        """Join, stay, give up and take over partitions, leave. Told when it is durable.

        A member chooses its own id, but for those of the first clients, which are named here.
        """

    async def describe(self, group_id: str) -> ConsumerGroupDescription: ...
