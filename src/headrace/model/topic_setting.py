"""Topic settings: their names, what each takes, and the check of all of them together.

The names are Kafka's, because Kafka's tools set them; headrace's own begin with `headrace.`. Values travel and are
stored as text. Every setting that Kafka 4 knows is here, and each is one of three things:

- it is obeyed: it has a field in `TopicConfig`;
- it is stored and shown, because neither value changes what a client can rely on: it has no field;
- a value of it would promise what this node does not do: that value is rejected with the reason.
"""

import re
from collections.abc import Callable, Mapping
from typing import Any

from headrace.model.batch import HEADER_SIZE
from headrace.model.errors import InvalidConfigError
from headrace.model.setting import (
    ConfigKey,
    Grammar,
    Keys,
    boolean,
    choice,
    fraction,
    integer,
    only,
    parse_fields,
    text_of,
)
from headrace.model.topic import (
    COMPACT,
    COMPACT_AND_DELETE,
    DELETE,
    INT32_MAX,
    INT64_MAX,
    PRODUCER,
    UNLIMITED,
    Durability,
    TimestampType,
    TopicConfig,
)

_SAME_AS_RETENTION = -2
_REPLICAS = re.compile(r"\*|[0-9]+:[0-9]+(?:,[0-9]+:[0-9]+)*|")
_COMPRESSION_TYPES = ("uncompressed", "zstd", "lz4", "snappy", "gzip", PRODUCER)


def _policy(text: str) -> str:
    """A list in any order, in the one form that is compared and shown."""
    parts = {part.strip() for part in text.split(",")} if text.strip() else set()
    if not parts <= {COMPACT, DELETE}:
        raise ValueError
    return COMPACT_AND_DELETE if len(parts) > 1 else "".join(parts)


def _replicas(text: str) -> str:
    if not _REPLICAS.fullmatch(text.replace(" ", "")):
        raise ValueError
    return text.replace(" ", "")


_REPLICA_LIST: Grammar = ("a list of partition:node, *, or nothing", _replicas)
_AT_LEAST_0 = integer(0, INT64_MAX)
_NO_LIMIT = integer(0, INT64_MAX, or_else=UNLIMITED, meaning="no limit")
_LOCAL = integer(UNLIMITED, INT64_MAX, or_else=_SAME_AS_RETENTION, meaning="what retention says")

_OBEYED: tuple[tuple[str, str, str, str, Callable[[str], Any], str], ...] = (
    ("headrace.durability", "durability", "string", *choice(Durability),
     "When a send is acknowledged: synced, in memory of all in-sync replicas, or in page cache."),
    ("retention.ms", "retention_ms", "long", *_NO_LIMIT, "How long a message is kept."),
    ("retention.bytes", "retention_bytes", "long", *_NO_LIMIT, "How many bytes of a partition are kept."),
    ("segment.bytes", "segment_bytes_max", "int", *integer(4096, 1024**3),
     "Size at which a partition begins a new file."),
    ("segment.ms", "segment_ms_max", "long", *integer(1, INT64_MAX),
     "Age at which a partition begins a new file, so that retention can drop the old one."),
    ("max.message.bytes", "message_bytes_max", "int", *integer(HEADER_SIZE, INT32_MAX // 2),
     "Largest batch that is accepted."),
    ("message.timestamp.type", "timestamp_type", "string", *choice(TimestampType),
     "Whether a message carries the time of its creation or of its arrival."),
    ("message.timestamp.before.max.ms", "timestamp_before_ms_max", "long", *_AT_LEAST_0,
     "How far a message's time of creation may lie before its arrival."),
    ("message.timestamp.after.max.ms", "timestamp_after_ms_max", "long", *_AT_LEAST_0,
     "How far a message's time of creation may lie after its arrival."),
    ("min.insync.replicas", "in_sync_min", "int", *integer(1, 32),
     "In-sync replicas without which acks=all is refused."),
    ("cleanup.policy", "cleanup_policy", "list", "delete, compact, both with a comma, or nothing", _policy,
     "Whether messages go by age and size, or when a later one has their key, or both, or never."),
    ("min.cleanable.dirty.ratio", "dirty_ratio_min", "double", "a number from 0 to 1", fraction,
     "Compaction begins when more than this part of the closed files was never compacted."),
    ("min.compaction.lag.ms", "compaction_lag_ms_min", "long", *_AT_LEAST_0,
     "How long a message stays uncompacted at least."),
    ("max.compaction.lag.ms", "compaction_lag_ms_max", "long", *integer(1, INT64_MAX),
     "How long a message stays uncompacted at most, whatever the dirty ratio."),
    ("delete.retention.ms", "delete_retention_ms", "long", *_AT_LEAST_0,
     "How long a message without a value is kept after it was first compacted."),
    ("compression.type", "compression_type", "string", *only(*_COMPRESSION_TYPES),
     "The codec that batches are stored with: as the producer compressed them, or compressed again on arrival."),
    ("compression.gzip.level", "gzip_level", "int", *integer(1, 9, or_else=-1, meaning="gzip's own default"),
     "How hard compression.type=gzip tries."),
    ("compression.lz4.level", "lz4_level", "int", *integer(1, 17), "How hard compression.type=lz4 tries."),
    ("compression.zstd.level", "zstd_level", "int", *integer(-131072, 22), "How hard compression.type=zstd tries."),
    ("index.interval.bytes", "index_interval_bytes", "int", *integer(512, 1024**3),
     "Bytes of log between two entries of the sparse index."),
)  # fmt: skip

_STORED: tuple[tuple[str, str, str, Callable[[str], Any], str, str], ...] = (
    ("flush.messages", "long", *integer(1, INT64_MAX),
     "A topic with durability fsync is synced before each answer, whatever this says.", str(INT64_MAX)),
    ("flush.ms", "long", *_AT_LEAST_0,
     "A topic with durability fsync is synced before each answer, whatever this says.", str(INT64_MAX)),
    ("unclean.leader.election.enable", "boolean", *boolean(),
     "Has no effect: the one replica of a partition leads it.", "false"),
    ("leader.replication.throttled.replicas", "list", *_REPLICA_LIST, "Has no effect: nothing is replicated.", ""),
    ("follower.replication.throttled.replicas", "list", *_REPLICA_LIST, "Has no effect: nothing is replicated.", ""),
    ("preallocate", "boolean", *boolean(), "Has no effect: files are not filled ahead.", "false"),
    ("segment.jitter.ms", "long", *_AT_LEAST_0, "Has no effect: segments close when segment.ms says.", "0"),
    ("segment.index.bytes", "int", *integer(4, INT32_MAX), "Has no effect: an index grows with its segment.",
     str(10 * 1024 * 1024)),
    ("file.delete.delay.ms", "long", *_AT_LEAST_0,
     "Has no effect: a deleted file goes once nothing reads it.", "60000"),
    ("remote.storage.enable", "boolean",
     *boolean(true_is_unsupported="this node has no remote storage, so nothing would be moved there"),
     "Whether closed segments move to remote storage, which this node does not have.", "false"),
    ("remote.log.copy.disable", "boolean", *boolean(), "Has no effect without remote storage.", "false"),
    ("remote.log.delete.on.disable", "boolean", *boolean(), "Has no effect without remote storage.", "false"),
    ("local.retention.ms", "long", *_LOCAL, "Has no effect without remote storage.", str(_SAME_AS_RETENTION)),
    ("local.retention.bytes", "long", *_LOCAL, "Has no effect without remote storage.", str(_SAME_AS_RETENTION)),
)  # fmt: skip


CONFIG_KEYS: Keys = {
    key.name: key
    for key in (
        *(ConfigKey(*obeyed, text_of(getattr(TopicConfig(), obeyed[1]))) for obeyed in _OBEYED),
        *(ConfigKey(stored[0], None, *stored[1:]) for stored in _STORED),
    )
}


def parse_config(overrides: Mapping[str, str]) -> TopicConfig:
    """Check a topic's settings as a whole."""
    fields = parse_fields(CONFIG_KEYS, overrides)
    config = TopicConfig(**fields)
    _check_lags(config)
    if config.durability is not Durability.FSYNC:
        _check_flush(overrides, config.durability)
    return config


def _check_lags(config: TopicConfig) -> None:
    if config.compaction_lag_ms_min > config.compaction_lag_ms_max:
        raise InvalidConfigError(
            f"min.compaction.lag.ms={config.compaction_lag_ms_min} is more than "
            f"max.compaction.lag.ms={config.compaction_lag_ms_max}; a message cannot wait longer than it may"
        )


def _check_flush(overrides: Mapping[str, str], durability: Durability) -> None:
    """Reject a promise to sync that another setting breaks."""
    for name in ("flush.messages", "flush.ms"):
        if name in overrides and int(overrides[name]) != INT64_MAX:
            raise InvalidConfigError(
                f"{name}={overrides[name]} is not supported with headrace.durability={durability.value}, which syncs "
                f"in the background; set headrace.durability=fsync, or leave {name} at {INT64_MAX}"
            )
