"""What the Kafka gateway asks of share groups: membership, and messages of queues under leases (KIP-932).

A share consumer holds messages by place, not by receipt: `Holder` is what one of them holds, and whoever speaks for it
passes it along. Nothing of it outlives the node, as a receipt's owner would: leases that nobody remembers end by time.
"""

from collections.abc import Sequence
from enum import IntEnum
from typing import NamedTuple, Protocol
from uuid import UUID

from headrace.broker.promise import Promise
from headrace.folds.group.share import Shared, SharedTopic, ShareHeartbeat, ShareMember
from headrace.model.batch import Buffer
from headrace.model.errors import HeadraceError
from headrace.model.ids import PartitionId


class AckType(IntEnum):
    """By the numbers of the protocol."""

    GAP = 0  # there was no message at this offset
    ACCEPT = 1
    RELEASE = 2
    REJECT = 3
    RENEW = 4


class AckBatch(NamedTuple):
    """Offsets from first to last: one type for all of them, or one for each."""

    first: int
    last: int
    types: Sequence[int]


class Holder:
    """What one share consumer holds: for each partition the offsets, each with the number of its attempt."""

    __slots__ = ("group_id", "held", "kept_counts", "turn")

    def __init__(self, group_id: str = "") -> None:
        self.group_id = group_id  # whose settings count
        self.held: dict[PartitionId, dict[int, int]] = {}
        self.kept_counts: dict[PartitionId, int] = {}  # when those that are over were last taken out
        self.turn = 0  # which of its queues is looked at first


class Acquired(NamedTuple):
    """Neighbouring offsets that were handed out, for the same time each."""

    first: int
    last: int
    attempt: int


class SharedPart(NamedTuple):
    """One partition's answer: stored batches, and which of their messages the consumer holds now."""

    place: PartitionId
    error: HeadraceError | None = None
    buffers: Sequence[Buffer] = ()
    acquired: Sequence[Acquired] = ()


class Acquisition(NamedTuple):
    lease_ms: int
    parts: Sequence[SharedPart]  # those that have something to say


class DescribedMember(NamedTuple):
    member: ShareMember
    topics: Sequence[tuple[str, SharedTopic]]


class ShareDescription(NamedTuple):
    state: str
    epoch: int
    members: Sequence[DescribedMember]


class PartitionStart(NamedTuple):
    """Where a share group stands in one partition: everything below the offset is done."""

    partition: int
    offset: int = -1  # -1: the group has not worked from this queue
    epoch: int = 0
    lag: int = -1  # messages that are not done
    error: HeadraceError | None = None


class TopicStarts(NamedTuple):
    topic: str
    topic_id: UUID | None  # None: there is no such topic
    partitions: Sequence[PartitionStart]


class TopicOutcome(NamedTuple):
    topic: str
    topic_id: UUID | None
    error: HeadraceError | None


class ShareOffsetsPort(Protocol):
    """Where share groups stand, as Kafka's tools ask for it (APIs 90 to 92)."""

    async def describe(
        self, group_id: str, topics: Sequence[tuple[str, Sequence[int]]] | None
    ) -> Sequence[TopicStarts]:
        """The starts of these partitions, or of all queues that the group has worked from."""

    async def alter(
        self, group_id: str, topics: Sequence[tuple[str, Sequence[tuple[int, int]]]]
    ) -> Sequence[TopicStarts]:
        """Drop what lies below these offsets, for everybody who works from the queues. The group has no members."""

    async def delete(self, group_id: str, topics: Sequence[str]) -> Sequence[TopicOutcome]:
        """Forget that the group worked from these queues. No message is touched."""


class SharePort(Protocol):
    @property
    def offsets(self) -> ShareOffsetsPort: ...

    def heartbeat_interval_ms(self, group_id: str) -> int: ...

    async def heartbeat(self, group_id: str, heartbeat: ShareHeartbeat) -> Shared: ...

    async def describe(self, group_id: str) -> ShareDescription: ...

    async def acquire(
        self, holder: Holder, places: Sequence[PartitionId], *, records_max: int, bytes_max: int, wait_ms: int
    ) -> Acquisition:
        """Lease messages of these partitions, waiting up to so long for the first."""

    def acknowledge(self, holder: Holder, place: PartitionId, batches: Sequence[AckBatch]) -> Promise[None]:
        """All of it or, with an error, nothing. Kept when it is durable."""

    def lease_ms(self, group_id: str, places: Sequence[PartitionId]) -> int:
        """For how long a group's members hold messages of these partitions; the shortest of several."""

    def let_go(self, holder: Holder) -> None:
        """Its consumer is gone: whatever it holds is for others now."""
