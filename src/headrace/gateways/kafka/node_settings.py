"""A node's own settings under the names that Kafka's tools look for.

They come from the node's configuration and are read-only.
A setting of Kafka's that has no counterpart here is left out: tools take that for an older or newer broker.
"""

from collections.abc import Iterator

from headrace.gateways.kafka.context import Context
from headrace.gateways.kafka.settings import Kind, Setting, Source, kind_of
from headrace.model.setting import show_value
from headrace.model.topic_setting import CONFIG_KEYS

HOUR_MS = 60 * 60 * 1000
MINUTE_MS = 60 * 1000

# What a new topic gets, by the name that Kafka gives to the node's side of it.
_OF_TOPICS = {
    "compression.type": "compression.type",
    "log.cleaner.delete.retention.ms": "delete.retention.ms",
    "log.cleaner.max.compaction.lag.ms": "max.compaction.lag.ms",
    "log.cleaner.min.cleanable.ratio": "min.cleanable.dirty.ratio",
    "log.cleaner.min.compaction.lag.ms": "min.compaction.lag.ms",
    "log.cleanup.policy": "cleanup.policy",
    "log.index.interval.bytes": "index.interval.bytes",
    "log.message.timestamp.after.max.ms": "message.timestamp.after.max.ms",
    "log.message.timestamp.before.max.ms": "message.timestamp.before.max.ms",
    "log.message.timestamp.type": "message.timestamp.type",
    "log.retention.bytes": "retention.bytes",
    "log.retention.ms": "retention.ms",
    "log.roll.ms": "segment.ms",
    "log.segment.bytes": "segment.bytes",
    "message.max.bytes": "max.message.bytes",
    "min.insync.replicas": "min.insync.replicas",
    "unclean.leader.election.enable": "unclean.leader.election.enable",
}

Told = tuple[str, str | int | bool, str]  # name, value, what it says


def node_settings(context: Context) -> Iterator[Setting]:
    for name, topic_name in _OF_TOPICS.items():
        key = CONFIG_KEYS[topic_name]
        value = show_value(key, context.broker.config.topic_defaults)
        words = f"What a new topic gets as {topic_name}."
        yield Setting(name, value, Source.STATIC_BROKER, kind_of(key), value, words)
    told = (*_about_node(context), *_about_topics(context), *_about_groups(context), *_about_transactions(context))
    for name, given, words in told:
        text = str(given).lower() if isinstance(given, bool) else str(given)
        yield Setting(name, text, Source.STATIC_BROKER, _kind(name, given), text, words)


def _kind(name: str, value: str | int | bool) -> Kind:
    if isinstance(value, bool):
        return Kind.BOOLEAN
    if isinstance(value, int):
        return Kind.LONG if name.endswith(".ms") else Kind.INT
    return Kind.STRING


def _about_node(context: Context) -> Iterator[Told]:
    broker, limits = context.broker, context.limits
    here = context.this_node()
    listener = f"PLAINTEXT://{here.host}:{here.port}"
    yield "advertised.listeners", listener, "Where clients reach this node."
    yield "authorizer.class.name", "", "There is no authorizer: every client may do everything."
    yield "broker.id", broker.node_id, "This node's id."
    yield "connections.max.idle.ms", limits.connection_idle_ms_max, "When idle connections close."
    yield "fetch.max.bytes", limits.fetch_bytes_max, "Most bytes that one Fetch answers with."
    yield "listeners", listener, "Where clients reach this node."
    yield "log.dir", broker.data_directory, "Where this node keeps its data."
    yield "log.dirs", broker.data_directory, "Where this node keeps its data."
    yield "max.connections", limits.connections_max, "Most connections to this listener."
    yield "max.connections.per.ip", limits.connections_for_address_max, "Most connections from one address."
    yield "node.id", broker.node_id, "This node's id."
    yield "process.roles", "broker,controller", "This node stores messages and metadata."
    yield "socket.request.max.bytes", limits.frame_bytes_max, "Largest request."


def _about_topics(context: Context) -> Iterator[Told]:
    config = context.broker.config
    retention = show_value(CONFIG_KEYS["retention.ms"], config.topic_defaults)
    hours = -1 if retention == "-1" else int(retention) // HOUR_MS
    yield "auto.create.topics.enable", config.auto_create_topics, "Whether a first use creates a topic."
    yield "default.replication.factor", config.default_replication_factor, "Replicas of a new topic."
    yield "delete.topic.enable", True, "Topics can be deleted."
    yield "log.retention.hours", hours, "log.retention.ms in whole hours."
    yield "num.partitions", config.default_partition_count, "Partitions of a new topic."


def _about_groups(context: Context) -> Iterator[Told]:
    if not context.has_groups:
        return
    config = context.groups.config
    yield (
        "group.consumer.heartbeat.interval.ms",
        config.consumer_heartbeat_interval_ms,
        "Of consumer groups.",
    )
    yield "group.consumer.migration.policy", "bidirectional", "Groups change their protocol at work, both ways."
    yield "group.consumer.session.timeout.ms", config.consumer_session_timeout_ms, "Of consumer groups."
    yield "group.initial.rebalance.delay.ms", config.initial_rebalance_delay_ms, "How long an empty group waits."
    yield "group.max.session.timeout.ms", config.session_timeout_ms_max, "Longest session of a classic member."
    yield "group.max.size", config.members_max, "Most members of a group."
    yield "group.min.session.timeout.ms", config.session_timeout_ms_min, "Shortest session of a classic member."
    yield "group.share.heartbeat.interval.ms", config.share_heartbeat_interval_ms, "Of share groups."
    yield "group.share.max.size", config.share_members_max, "Most members of a share group."
    yield "group.share.session.timeout.ms", config.share_session_timeout_ms, "Of share groups."
    yield "offset.metadata.max.bytes", config.offset_metadata_bytes_max, "Longest metadata of a committed offset."
    yield "offsets.retention.minutes", config.offsets_retention_ms // MINUTE_MS, "For groups without members."
    yield "offsets.topic.num.partitions", config.partitions, "Partitions of the topic of groups."
    yield "offsets.topic.replication.factor", 1, "Replicas of the topic of groups."


def _about_transactions(context: Context) -> Iterator[Told]:
    if not context.has_transactions:
        return
    config = context.transactions.config
    yield "transaction.max.timeout.ms", config.timeout_ms_max, "Longest time-out of a transaction."
    yield "transaction.state.log.min.isr", 1, "In-sync replicas of the topic of transactions."
    yield "transaction.state.log.num.partitions", config.partitions, "Partitions of the topic of transactions."
    yield "transaction.state.log.replication.factor", 1, "Replicas of the topic of transactions."
    yield "transactional.id.expiration.ms", config.expiry_ms, "When an unused transactional id is forgotten."
