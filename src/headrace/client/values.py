"""What the client gives and takes."""

from collections.abc import Sequence
from typing import NamedTuple
from uuid import UUID

from headrace.model.address import Address

Headers = Sequence[tuple[str, bytes | None]]


class TopicPartition(NamedTuple):
    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


class Outgoing(NamedTuple):
    """A message to send."""

    value: bytes | None
    key: bytes | None = None
    headers: Headers = ()
    timestamp_ms: int | None = None  # None: now
    partition: int | None = None  # None: chosen by the key, or any


class Message(NamedTuple):
    """A message as it was read."""

    topic: str
    partition: int
    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: Headers


class Produced(NamedTuple):
    """Where a batch was stored."""

    at: TopicPartition
    base_offset: int  # -1 where acks=0 asked for no answer
    message_count: int


class Fetched(NamedTuple):
    """What one partition had at a position."""

    at: TopicPartition
    messages: list[Message]
    next_offset: int  # where to go on, also where control batches were skipped
    high_watermark: int
    start_offset: int


class PartitionInfo(NamedTuple):
    partition: int
    leader: int  # -1: none now
    leader_epoch: int
    replicas: tuple[int, ...]
    in_sync: tuple[int, ...]


class TopicInfo(NamedTuple):
    name: str
    id: UUID
    is_internal: bool
    partitions: tuple[PartitionInfo, ...]  # by number


class BrokerInfo(NamedTuple):
    node_id: int
    address: Address


class ClusterInfo(NamedTuple):
    cluster_id: str | None
    controller: int
    brokers: tuple[BrokerInfo, ...]


class ConfigEntry(NamedTuple):
    name: str
    value: str | None
    is_default: bool
    documentation: str | None


class Located(NamedTuple):
    """An offset, and the timestamp of the message there (-1 where the question was not about time)."""

    offset: int
    timestamp_ms: int
