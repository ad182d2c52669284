"""What the broker is told at its start."""

from collections.abc import Mapping

import msgspec


class BrokerConfig(msgspec.Struct, frozen=True, kw_only=True):
    auto_create_topics: bool = True
    default_partition_count: int = 1
    default_replication_factor: int = 1
    # A producer that has been silent for this long is forgotten.
    producer_expiry_ms: int = 24 * 60 * 60 * 1000
    # Topic settings by their Kafka names, which a new topic gets where its creator says nothing.
    topic_defaults: Mapping[str, str] = {}
