"""What the Kafka gateway asks of share groups: membership, and messages of queues under leases (KIP-932).

A share consumer holds messages by place, not by receipt: `Holder` is what one of them holds, and whoever speaks for it
passes it along. Nothing of it outlives the node, as a receipt's owner would: leases that nobody remembers end by time.
"""

from collections.abc import Sequence
from enum import IntEnum
from typing import NamedTuple, Protocol

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

    __slots__ = ("held", "kept_counts", "turn")

    def __init__(self) -> None:
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


class SharePort(Protocol):
    @property
    def heartbeat_interval_ms(self) -> int: ...

    async def heartbeat(self, group_id: str, heartbeat: ShareHeartbeat) -> Shared: ...

    async def describe(self, group_id: str) -> ShareDescription: ...

    async def acquire(
        self, holder: Holder, places: Sequence[PartitionId], *, records_max: int, bytes_max: int, wait_ms: int
    ) -> Acquisition:
        """Lease messages of these partitions, waiting up to so long for the first."""

    def acknowledge(self, holder: Holder, place: PartitionId, batches: Sequence[AckBatch]) -> Promise[None]:
        """All of it or, with an error, nothing. Kept when it is durable."""

    def lease_ms(self, places: Sequence[PartitionId]) -> int:
        """For how long the queues of these partitions hand out; the shortest of several."""

    def let_go(self, holder: Holder) -> None:
        """Its consumer is gone: whatever it holds is for others now."""
