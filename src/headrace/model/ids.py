"""Identifiers. An offset is a place in a log, a position a byte in a file, a count how many: never one for another."""

from typing import NamedTuple, NewType
from uuid import UUID

Offset = NewType("Offset", int)
Epoch = NewType("Epoch", int)
NodeId = NewType("NodeId", int)
TopicId = UUID

NO_EPOCH = Epoch(-1)
NO_PRODUCER_ID = -1


class PartitionId(NamedTuple):
    """One partition, by its topic's uuid: a name may be used again, a uuid never is."""

    topic_id: UUID
    partition: int

    @property
    def directory(self) -> str:
        """Name of the partition's folder, free of anything that a user wrote."""
        return f"{self.topic_id}-{self.partition}"
