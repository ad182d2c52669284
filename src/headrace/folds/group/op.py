"""The entries that groups write to their partition of the internal topic: what was decided, and when by the wall."""

from uuid import UUID

import msgspec

from headrace.folds.group.kind import GroupKind
from headrace.model.ids import PartitionId


class OffsetEntry(msgspec.Struct, frozen=True, array_like=True):
    """The offset that a group wants next from a partition, by the topic's uuid: a name may be used again."""

    topic_id: UUID
    partition: int
    offset: int
    leader_epoch: int  # of the last message read, -1 where the client did not say
    metadata: str  # the client's own

    @property
    def place(self) -> PartitionId:
        return PartitionId(self.topic_id, self.partition)


class GroupStored(msgspec.Struct, frozen=True, array_like=True):
    """A group's members and generation from here on, in the encoding of its kind."""

    group_id: str
    kind: GroupKind
    image: bytes
    at_ms: int


class OffsetsCommitted(msgspec.Struct, frozen=True, array_like=True):
    group_id: str
    offsets: tuple[OffsetEntry, ...]
    at_ms: int


class OffsetsDeleted(msgspec.Struct, frozen=True, array_like=True):
    """By a user, by age, or with their topic."""

    group_id: str
    partitions: tuple[PartitionId, ...]
    at_ms: int


class GroupDeleted(msgspec.Struct, frozen=True, array_like=True):
    """The group and all of its offsets, those of open transactions too."""

    group_id: str
    at_ms: int


class TxnOffsetsPending(msgspec.Struct, frozen=True, array_like=True):
    """Offsets that count once the producer's transaction commits."""

    group_id: str
    producer_id: int
    producer_epoch: int
    offsets: tuple[OffsetEntry, ...]
    at_ms: int


class TxnEnded(msgspec.Struct, frozen=True, array_like=True):
    """What the producer has pending in this partition, under this epoch or an earlier one, is decided."""

    producer_id: int
    producer_epoch: int
    is_committed: bool
    at_ms: int


class GroupConfigured(msgspec.Struct, frozen=True, array_like=True):
    """All settings of a group from here on. They outlive the group, as in Kafka."""

    group_id: str
    overrides: dict[str, str]
    at_ms: int


GroupOp = (
    GroupStored | OffsetsCommitted | OffsetsDeleted | GroupDeleted | TxnOffsetsPending | TxnEnded | GroupConfigured
)
