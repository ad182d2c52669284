"""A topic and its configuration. How the configuration is written and checked is in `topic_setting.py`."""

from enum import Enum
from uuid import UUID

import msgspec

DAY_MS = 24 * 60 * 60 * 1000
INT32_MAX = 2**31 - 1
INT64_MAX = 2**63 - 1
UNLIMITED = -1

DELETE = "delete"
COMPACT = "compact"
COMPACT_AND_DELETE = "compact,delete"

PRODUCER = "producer"  # the compression type that leaves batches as they come


class Durability(Enum):
    """When a send is acknowledged."""

    FSYNC = "fsync"  # synced on the leader, and on every in-sync replica for acks=all
    REPLICATED = "replicated"  # in memory of every in-sync replica; synced behind
    MEMORY = "memory"  # in the leader's page cache


class TimestampType(Enum):
    CREATE_TIME = "CreateTime"
    LOG_APPEND_TIME = "LogAppendTime"


class TopicConfig(msgspec.Struct, frozen=True, kw_only=True):
    """What a topic asks of every node that holds a part of it."""

    durability: Durability = Durability.FSYNC
    retention_ms: int = 7 * DAY_MS
    retention_bytes: int = UNLIMITED
    segment_bytes_max: int = 256 * 1024 * 1024
    segment_ms_max: int = DAY_MS
    message_bytes_max: int = 1024 * 1024 + 12  # a whole batch, as Kafka counts it
    timestamp_type: TimestampType = TimestampType.CREATE_TIME
    in_sync_min: int = 1
    cleanup_policy: str = DELETE
    dirty_ratio_min: float = 0.5
    compaction_lag_ms_min: int = 0
    compaction_lag_ms_max: int = INT64_MAX
    delete_retention_ms: int = DAY_MS
    compression_type: str = PRODUCER
    gzip_level: int = -1
    lz4_level: int = 9
    zstd_level: int = 3
    timestamp_before_ms_max: int = INT64_MAX
    timestamp_after_ms_max: int = INT64_MAX
    index_interval_bytes: int = 4096
    # Whether batches are stored without a look at their records. It follows from the settings, and is kept here
    # because every batch asks.
    is_opaque: bool = True

    def __post_init__(self) -> None:
        takes_any_time = self.timestamp_before_ms_max == self.timestamp_after_ms_max == INT64_MAX
        is_opaque = takes_any_time and self.compression_type == PRODUCER and not self.is_compacted
        msgspec.structs.force_setattr(self, "is_opaque", is_opaque)

    @property
    def is_compacted(self) -> bool:
        """Whether only the last message of each key is kept."""
        return COMPACT in self.cleanup_policy

    @property
    def segment_age_ms_max(self) -> int:
        """A file that is written to is never compacted, so it must not be for longer than a message may wait."""
        return min(self.segment_ms_max, self.compaction_lag_ms_max) if self.is_compacted else self.segment_ms_max

    @property
    def is_deleting(self) -> bool:
        """Whether messages go by age and size."""
        return DELETE in self.cleanup_policy


class Topic(msgspec.Struct, frozen=True, kw_only=True):
    """A named set of partitions with one configuration."""

    name: str
    id: UUID
    partition_count: int
    replication_factor: int = 1
    # Only what was set explicitly; everything else follows the defaults, also when those change.
    overrides: dict[str, str] = {}
    config: TopicConfig = TopicConfig()
