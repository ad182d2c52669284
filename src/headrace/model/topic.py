"""A topic and its configuration.

Configuration keys are Kafka's where Kafka has one, because Kafka's tools set them; headrace's own begin with
`headrace.`. Values travel and are stored as strings, and are parsed and checked as a whole: a value that would not be
obeyed is refused.
"""

import difflib
import re
from collections.abc import Callable, Mapping
from enum import Enum
from typing import Any, NamedTuple
from uuid import UUID

import msgspec

from headrace.model.batch import HEADER_SIZE
from headrace.model.errors import InvalidConfigError

DAY_MS = 24 * 60 * 60 * 1000
INT32_MAX = 2**31 - 1
INT64_MAX = 2**63 - 1
UNLIMITED = -1

DELETE = "delete"
COMPACT = "compact"
COMPACT_AND_DELETE = "compact,delete"


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
    compression_type: str = "producer"
    index_interval_bytes: int = 4096

    @property
    def is_compacted(self) -> bool:
        """Whether of each key only the last message stays."""
        return self.cleanup_policy != DELETE

    @property
    def segment_age_ms_max(self) -> int:
        """A file that is written to is never compacted, so it must not be for longer than a message may wait."""
        return min(self.segment_ms_max, self.compaction_lag_ms_max) if self.is_compacted else self.segment_ms_max

    @property
    def is_deleting(self) -> bool:
        """Whether messages go by age and size."""
        return self.cleanup_policy != COMPACT


class Topic(msgspec.Struct, frozen=True, kw_only=True):
    """A named set of partitions with one configuration."""

    name: str
    id: UUID
    partition_count: int
    replication_factor: int = 1
    # Only what was set explicitly; everything else follows the defaults, also when those change.
    overrides: dict[str, str] = {}
    config: TopicConfig = TopicConfig()


class ConfigKey(NamedTuple):
    """One key that users may set: its field, its grammar in words, its parser, what it is for."""

    name: str
    field: str
    kind: str  # "int", "long", "double", "string" or "list": what Kafka's admin tools call the type
    grammar: str
    parse: Callable[[str], Any]
    documentation: str


# Python itself would also read 1_000 and the digits of other scripts, which nobody else who sees the text does.
_WHOLE = re.compile(r"-?[0-9]+")
_DECIMAL = re.compile(r"(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][-+]?[0-9]+)?")


def _integer(low: int, high: int, *, unlimited: bool = False) -> tuple[str, Callable[[str], int]]:
    grammar = f"a whole number from {low} to {high}" + (", or -1 for no limit" if unlimited else "")

    def parse(text: str) -> int:
        if not _WHOLE.fullmatch(text.strip()):
            raise ValueError
        value = int(text)
        if unlimited and value == UNLIMITED:
            return value
        if not low <= value <= high:
            raise ValueError
        return value

    return grammar, parse


def _fraction(text: str) -> float:
    if not _DECIMAL.fullmatch(text.strip()):
        raise ValueError
    value = float(text)
    if not 0 <= value <= 1:
        raise ValueError
    return value


def _policy(text: str) -> str:
    """A list in any order, in the one form that is compared and shown."""
    parts = [part.strip() for part in text.split(",")]
    if not set(parts) <= {COMPACT, DELETE} or len(set(parts)) != len(parts):
        raise ValueError
    return COMPACT_AND_DELETE if len(parts) > 1 else parts[0]


def _choice(kind: type[Enum]) -> tuple[str, Callable[[str], Enum]]:
    return "one of " + ", ".join(member.value for member in kind), kind


def _only(*values: str) -> tuple[str, Callable[[str], str]]:
    def parse(text: str) -> str:
        if text not in values:
            raise ValueError
        return text

    return "one of " + ", ".join(values), parse


CONFIG_KEYS: Mapping[str, ConfigKey] = {
    key.name: key
    for key in (
        ConfigKey("headrace.durability", "durability", "string", *_choice(Durability),
                  "When a send is acknowledged: synced, in memory of all in-sync replicas, or in page cache."),
        ConfigKey("retention.ms", "retention_ms", "long", *_integer(0, INT64_MAX, unlimited=True),
                  "How long a message is kept."),
        ConfigKey("retention.bytes", "retention_bytes", "long", *_integer(0, INT64_MAX, unlimited=True),
                  "How many bytes of a partition are kept."),
        ConfigKey("segment.bytes", "segment_bytes_max", "int", *_integer(4096, 1024**3),
                  "Size at which a partition begins a new file."),
        ConfigKey("segment.ms", "segment_ms_max", "long", *_integer(1, INT64_MAX),
                  "Age at which a partition begins a new file, so that retention can drop the old one."),
        ConfigKey("max.message.bytes", "message_bytes_max", "int", *_integer(HEADER_SIZE, INT32_MAX // 2),
                  "Largest batch that is accepted."),
        ConfigKey("message.timestamp.type", "timestamp_type", "string", *_choice(TimestampType),
                  "Whether a message carries the time of its creation or of its arrival."),
        ConfigKey("min.insync.replicas", "in_sync_min", "int", *_integer(1, 32),
                  "In-sync replicas without which acks=all is refused."),
        ConfigKey("cleanup.policy", "cleanup_policy", "list", "delete, compact, or both with a comma", _policy,
                  "Whether messages go by age and size, or when a later one has their key, or both."),
        ConfigKey("min.cleanable.dirty.ratio", "dirty_ratio_min", "double", "a number from 0 to 1", _fraction,
                  "Compaction begins when more than this part of the closed files was never compacted."),
        ConfigKey("min.compaction.lag.ms", "compaction_lag_ms_min", "long", *_integer(0, INT64_MAX),
                  "How long a message stays uncompacted at least."),
        ConfigKey("max.compaction.lag.ms", "compaction_lag_ms_max", "long", *_integer(1, INT64_MAX),
                  "How long a message stays uncompacted at most, whatever the dirty ratio."),
        ConfigKey("delete.retention.ms", "delete_retention_ms", "long", *_integer(0, INT64_MAX),
                  "How long a message without a value is kept after it was first compacted."),
        ConfigKey("compression.type", "compression_type", "string", *_only("producer"),
                  "Batches are stored as the producer compressed them."),
        ConfigKey("index.interval.bytes", "index_interval_bytes", "int", *_integer(512, 1024**3),
                  "Bytes of log between two entries of the sparse index."),
    )
}  # fmt: skip


def find_key(name: str) -> ConfigKey:
    """A setting by its name. An unknown one names the nearest valid one."""
    key = CONFIG_KEYS.get(name)
    if key is None:
        near = difflib.get_close_matches(name, CONFIG_KEYS, n=1, cutoff=0.5)
        hint = f"did you mean {near[0]}?" if near else "valid keys are " + ", ".join(CONFIG_KEYS)
        raise InvalidConfigError(f"{name} is not a topic setting; {hint}")
    return key


def parse_config(overrides: Mapping[str, str]) -> TopicConfig:
    """Check a topic's settings as a whole."""
    fields: dict[str, Any] = {}
    for name, text in overrides.items():
        key = find_key(name)
        try:
            fields[key.field] = key.parse(text)
        except ValueError:
            raise InvalidConfigError(f"{name}={text!r} is not valid; it takes {key.grammar}") from None
    config = TopicConfig(**fields)
    if config.compaction_lag_ms_min > config.compaction_lag_ms_max:
        raise InvalidConfigError(
            f"min.compaction.lag.ms={config.compaction_lag_ms_min} is more than "
            f"max.compaction.lag.ms={config.compaction_lag_ms_max}; a message cannot wait longer than it may"
        )
    return config


def show_value(config: TopicConfig, key: ConfigKey) -> str:
    """A setting's value in the form that it is set with."""
    value = getattr(config, key.field)
    return str(value.value) if isinstance(value, Enum) else str(value)
