"""What the metadata store holds, key by key, and its JSON form.

    /<cluster>/id                     the cluster's id, as Kafka clients see it
    /<cluster>/producer-ids           the next producer id that nobody has
    /<cluster>/nodes/<id>             where a node is reached, under its lease
    /<cluster>/topics/<name>          uuid, settings, partition count
    /<cluster>/partitions/<uuid>/<n>  replicas, leader, epoch, in-sync set
    /<cluster>/subscriptions/<name>   a queue: its topic, its configuration, what gateways note about it
    /<cluster>/redrives/<name>        the redrives of a queue's dead letters, the last one first
    /<cluster>/receipt-key            the secret that receipts are signed with

Fields that a newer headrace added are ignored when read, so nodes of two versions can share a store.
"""

from typing import Any, TypeVar
from uuid import UUID

import msgspec

from headrace.model.errors import ConfigurationError, InvalidConfigError
from headrace.model.ids import Epoch, NodeId, PartitionId
from headrace.model.queue import Queue, QueueConfig
from headrace.model.topic import Topic
from headrace.model.topic_setting import parse_config


class TopicRecord(msgspec.Struct, frozen=True, kw_only=True):
    uuid: UUID
    partition_count: int
    replication_factor: int
    overrides: dict[str, str] = {}


class PartitionRecord(msgspec.Struct, frozen=True, kw_only=True):
    """Who holds a partition. Every change of leader raises the epoch, and so does every start of the leader's node."""

    replicas: tuple[int, ...]
    leader: int
    epoch: int
    in_sync: tuple[int, ...]


class NodeAddress(msgspec.Struct, frozen=True, kw_only=True):
    """Where clients reach a node."""

    node_id: NodeId
    host: str
    port: int
    rack: str | None = None


class ProducerIdRecord(msgspec.Struct, frozen=True, kw_only=True):
    next: int


class ClusterIdRecord(msgspec.Struct, frozen=True, kw_only=True):
    id: str


class SubscriptionRecord(msgspec.Struct, frozen=True, kw_only=True):
    uuid: UUID
    topic: UUID
    config: dict[str, Any]
    created_ms: int
    modified_ms: int
    notes: dict[str, dict[str, Any]] = {}


class RedrivesRecord(msgspec.Struct, frozen=True, kw_only=True):
    """As the broker wrote them; what is in one is the broker's business."""

    redrives: list[dict[str, Any]]


class ReceiptKeyRecord(msgspec.Struct, frozen=True, kw_only=True):
    key: bytes


FIRST_EPOCH = Epoch(0)

R = TypeVar("R", bound=msgspec.Struct)


class Keys:
    """The keys of one cluster."""

    def __init__(self, cluster: str) -> None:
        self.root = f"/{cluster}/"
        self.cluster_id = f"{self.root}id"
        self.producer_ids = f"{self.root}producer-ids"
        self.topics = f"{self.root}topics/"
        self.partitions = f"{self.root}partitions/"
        self.nodes = f"{self.root}nodes/"
        self.subscriptions = f"{self.root}subscriptions/"
        self.redrives = f"{self.root}redrives/"
        self.receipt_key = f"{self.root}receipt-key"

    def topic(self, name: str) -> str:
        return f"{self.topics}{name}"

    def partitions_of(self, topic_id: UUID) -> str:
        return f"{self.partitions}{topic_id}/"

    def partition(self, partition: PartitionId) -> str:
        return f"{self.partitions}{partition.topic_id}/{partition.partition}"

    def node(self, node_id: int) -> str:
        return f"{self.nodes}{node_id}"

    def subscription(self, name: str) -> str:
        return f"{self.subscriptions}{name}"

    def redrives_of(self, queue: str) -> str:
        return f"{self.redrives}{queue}"

    def parse_partition(self, key: str) -> PartitionId:
        topic_id, _, partition = key.removeprefix(self.partitions).partition("/")
        return PartitionId(UUID(topic_id), int(partition))


def encode(record: msgspec.Struct) -> bytes:
    return msgspec.json.encode(record)


def decode(key: str, value: bytes, kind: type[R]) -> R:
    try:
        return msgspec.json.decode(value, type=kind)
    except msgspec.DecodeError as error:
        raise ConfigurationError(
            f"metadata key {key} holds {value[:200]!r}, which is no {kind.__name__}: {error}"
        ) from error


def topic_of(key: str, name: str, record: TopicRecord) -> Topic:
    try:
        config = parse_config(record.overrides)
    except InvalidConfigError as error:
        raise ConfigurationError(f"metadata key {key}: {error}") from error
    return Topic(
        name=name,
        id=record.uuid,
        partition_count=record.partition_count,
        replication_factor=record.replication_factor,
        overrides=record.overrides,
        config=config,
    )


def record_of(topic: Topic) -> TopicRecord:
    return TopicRecord(
        uuid=topic.id,
        partition_count=topic.partition_count,
        replication_factor=topic.replication_factor,
        overrides=topic.overrides,
    )


def queue_of(key: str, name: str, record: SubscriptionRecord) -> Queue:
    known = {field.name for field in msgspec.structs.fields(QueueConfig)}
    settings = {field: value for field, value in record.config.items() if field in known}
    try:
        config = msgspec.convert(settings, QueueConfig)
    except msgspec.ValidationError as error:
        raise ConfigurationError(f"metadata key {key}: {error}") from error
    return Queue(
        name=name,
        topic_id=record.topic,
        id=record.uuid,
        config=config,
        created_ms=record.created_ms,
        modified_ms=record.modified_ms,
        notes=record.notes,
    )


def subscription_of(queue: Queue) -> SubscriptionRecord:
    return SubscriptionRecord(
        uuid=queue.id,
        topic=queue.topic_id,
        config=msgspec.to_builtins(queue.config),
        created_ms=queue.created_ms,
        modified_ms=queue.modified_ms,
        notes=queue.notes,
    )
