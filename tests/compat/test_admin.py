"""Administration through each client's own admin API."""

import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any
from uuid import UUID

import pytest
from aiokafka import TopicPartition as AioPartition
from aiokafka.admin import AIOKafkaAdminClient, RecordsToDelete
from aiokafka.admin import NewPartitions as AioNewPartitions
from aiokafka.admin import NewTopic as AioNewTopic
from aiokafka.admin.config_resource import ConfigResource as AioResource
from aiokafka.admin.config_resource import ConfigResourceType as AioResourceType
from confluent_kafka import KafkaError, KafkaException, TopicCollection, TopicPartition
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewPartitions,
    NewTopic,
    OffsetSpec,
    ResourceType,
)
from kafka import KafkaAdminClient
from kafka import TopicPartition as PythonPartition
from kafka import errors as python_errors
from kafka.admin import ConfigResource as PythonResource
from kafka.admin import ConfigResourceType as PythonResourceType
from kafka.protocol.consumer import OffsetSpec as PythonOffsetSpec
from tests.compat.clients import aio
from tests.compat.clients.every import CONFLUENT, KCAT
from tests.compat.clients.kcat import kcat
from tests.compat.clients.message import DEADLINE_S, Message
from tests.support.kafka_default import KAFKA_DEFAULTS
from tests.support.node import NodeProcess
from tests.support.wait import wait_until

NOW_MS = time.time_ns() // 1_000_000
# The largest time is neither first nor last.
TIMES_MS = [NOW_MS + step for step in (0, 10, 5000, 20, 30)]


def fill(node: NodeProcess, topic: str) -> None:
    messages = [Message(value=b"%d" % at, timestamp_ms=timestamp_ms) for at, timestamp_ms in enumerate(TIMES_MS)]
    CONFLUENT.write(node.server, topic, messages)


# confluent-kafka.


@pytest.fixture
def confluent(node: NodeProcess) -> AdminClient:
    return AdminClient({"bootstrap.servers": node.server, "log_level": 0})


def result_of(futures: dict[Any, Any]) -> Any:
    (future,) = futures.values()
    return future.result(DEADLINE_S)


def test_confluent_creates_describes_grows_and_deletes_a_topic(confluent: AdminClient, topic: str) -> None:
    result_of(confluent.create_topics([NewTopic(topic, 3, 1, config={"retention.ms": "3600000"})]))
    described = result_of(confluent.describe_topics(TopicCollection([topic])))
    assert described.name == topic
    assert [partition.id for partition in described.partitions] == [0, 1, 2]
    assert {partition.leader.id for partition in described.partitions} == {1}
    assert [[one.id for one in partition.isr] for partition in described.partitions] == [[1]] * 3

    result_of(confluent.create_partitions([NewPartitions(topic, 5)]))
    assert len(confluent.list_topics(topic, timeout=DEADLINE_S).topics[topic].partitions) == 5

    result_of(confluent.delete_topics([topic]))
    assert topic not in confluent.list_topics(timeout=DEADLINE_S).topics


def test_confluent_validates_without_creating(confluent: AdminClient, topic: str) -> None:
    result_of(confluent.create_topics([NewTopic(topic, 3, 1)], validate_only=True))
    assert topic not in confluent.list_topics(timeout=DEADLINE_S).topics


def configs_of(confluent: AdminClient, topic: str) -> dict[str, Any]:
    found: dict[str, Any] = result_of(confluent.describe_configs([ConfigResource(ResourceType.TOPIC, topic)]))
    return found


def test_confluent_describes_and_alters_configs(confluent: AdminClient, topic: str) -> None:
    result_of(confluent.create_topics([NewTopic(topic, 1, 1, config={"retention.ms": "3600000"})]))
    before = configs_of(confluent, topic)
    assert before["retention.ms"].value == "3600000"
    assert not before["retention.ms"].is_default
    assert before["headrace.durability"].value == "fsync"
    assert before["headrace.durability"].is_default

    entry = ConfigEntry("segment.bytes", "1048576", incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=[entry])
    result_of(confluent.incremental_alter_configs([resource]))
    after = configs_of(confluent, topic)
    assert (after["segment.bytes"].value, after["retention.ms"].value) == ("1048576", "3600000")

    entry = ConfigEntry("retention.ms", None, incremental_operation=AlterConfigOpType.DELETE)
    resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=[entry])
    result_of(confluent.incremental_alter_configs([resource]))
    assert configs_of(confluent, topic)["retention.ms"].value == "604800000"

    # The old call replaces the whole.
    resource = ConfigResource(ResourceType.TOPIC, topic, {"retention.bytes": "1000000"})
    with pytest.deprecated_call():
        result_of(confluent.alter_configs([resource]))
    replaced = configs_of(confluent, topic)
    assert replaced["retention.bytes"].value == "1000000"
    assert replaced["segment.bytes"].is_default


def test_a_topic_with_every_default_set_explicitly_is_created_shown_and_kept(
    confluent: AdminClient, topic: str
) -> None:
    result_of(confluent.create_topics([NewTopic(topic, 1, 1, config=KAFKA_DEFAULTS)]))
    shown = {name: entry.value for name, entry in configs_of(confluent, topic).items()}
    assert shown == KAFKA_DEFAULTS | {"headrace.durability": "fsync"}
    entries = [
        ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET) for name, value in KAFKA_DEFAULTS.items()
    ]
    result_of(
        confluent.incremental_alter_configs([ConfigResource(ResourceType.TOPIC, topic, incremental_configs=entries)])
    )
    assert shown == {name: entry.value for name, entry in configs_of(confluent, topic).items()}


def test_a_setting_that_would_not_hold_is_rejected_with_the_reason(confluent: AdminClient, topic: str) -> None:
    with pytest.raises(KafkaException) as caught:
        result_of(confluent.create_topics([NewTopic(topic, 1, 1, config={"remote.storage.enable": "true"})]))
    assert caught.value.args[0].code() == KafkaError.INVALID_CONFIG
    assert "no remote storage" in caught.value.args[0].str()


def test_confluent_describes_the_broker_and_the_cluster(confluent: AdminClient) -> None:
    cluster = confluent.describe_cluster().result(DEADLINE_S)
    assert [one.id for one in cluster.nodes] == [1]
    assert cluster.controller.id == 1
    assert cluster.cluster_id
    assert result_of(confluent.describe_configs([ConfigResource(ResourceType.BROKER, "1")])) is not None


def test_confluent_deletes_records_and_lists_offsets(confluent: AdminClient, node: NodeProcess, topic: str) -> None:
    result_of(confluent.create_topics([NewTopic(topic, 1, 1)]))
    fill(node, topic)
    place = TopicPartition(topic, 0)

    def offset(spec: OffsetSpec) -> tuple[int, int]:
        found = result_of(confluent.list_offsets({place: spec}))
        return found.offset, found.timestamp

    assert offset(OffsetSpec.earliest())[0] == 0
    assert offset(OffsetSpec.latest())[0] == 5
    assert offset(OffsetSpec.max_timestamp()) == (2, TIMES_MS[2])
    assert offset(OffsetSpec.for_timestamp(TIMES_MS[1])) == (1, TIMES_MS[1])

    deleted = result_of(confluent.delete_records([TopicPartition(topic, 0, 3)]))
    assert deleted.low_watermark == 3
    assert offset(OffsetSpec.earliest())[0] == 3
    assert [at for at, _ in CONFLUENT.read(node.server, topic, offset=3)] == [3, 4]
    with pytest.raises(KafkaException) as refused:
        result_of(confluent.delete_records([TopicPartition(topic, 0, 99)]))
    assert refused.value.args[0].code() == KafkaError.OFFSET_OUT_OF_RANGE


@pytest.mark.parametrize(
    ("wrong", "code"),
    [
        (NewTopic("no spaces", 1, 1), KafkaError.TOPIC_EXCEPTION),
        (NewTopic("x" * 250, 1, 1), KafkaError.TOPIC_EXCEPTION),
        (NewTopic("no-partitions", 0, 1), KafkaError.INVALID_PARTITIONS),
        (NewTopic("too-many-replicas", 1, 3), KafkaError.INVALID_REPLICATION_FACTOR),
        (NewTopic("unknown-key", 1, 1, config={"retention.m": "1"}), KafkaError.INVALID_CONFIG),
        (NewTopic("bad-value", 1, 1, config={"retention.ms": "soon"}), KafkaError.INVALID_CONFIG),
        (NewTopic("bad-key", 1, 1, config={"cleanup.policy": "shrink"}), KafkaError.INVALID_CONFIG),
    ],
    ids=lambda value: value.topic[:20] if isinstance(value, NewTopic) else None,
)
def test_confluent_is_told_what_is_wrong_with_a_topic(confluent: AdminClient, wrong: NewTopic, code: int) -> None:
    with pytest.raises(KafkaException) as refused:
        result_of(confluent.create_topics([wrong]))
    assert refused.value.args[0].code() == code
    assert len(refused.value.args[0].str()) > 20


def test_confluent_is_told_of_topics_that_exist_or_do_not(confluent: AdminClient, topic: str) -> None:
    result_of(confluent.create_topics([NewTopic(topic, 2, 1)]))
    with pytest.raises(KafkaException) as refused:
        result_of(confluent.create_topics([NewTopic(topic, 2, 1)]))
    assert refused.value.args[0].code() == KafkaError.TOPIC_ALREADY_EXISTS
    with pytest.raises(KafkaException) as refused:
        result_of(confluent.create_partitions([NewPartitions(topic, 1)]))
    assert refused.value.args[0].code() == KafkaError.INVALID_PARTITIONS
    with pytest.raises(KafkaException) as refused:
        result_of(confluent.delete_topics([f"{topic}-not"]))
    assert refused.value.args[0].code() == KafkaError.UNKNOWN_TOPIC_OR_PART


# kafka-python.


@pytest.fixture
def python(node: NodeProcess) -> Iterator[Any]:
    with python_admin(node) as admin:
        yield admin


@contextmanager
def python_admin(node: NodeProcess) -> Iterator[Any]:
    admin = KafkaAdminClient(bootstrap_servers=node.server)
    try:
        yield admin
    finally:
        admin.close()


def test_kafka_python_creates_describes_grows_and_deletes_a_topic(python: Any, topic: str) -> None:
    made = python.create_topics({topic: {"num_partitions": 3, "configs": {"retention.ms": "3600000"}}})
    assert made["topics"][0]["num_partitions"] == 3
    (described,) = python.describe_topics([topic])
    assert sorted(one["partition_index"] for one in described["partitions"]) == [0, 1, 2]
    assert {one["leader_id"] for one in described["partitions"]} == {1}

    python.create_partitions({topic: 5})
    assert len(python.describe_topics([topic])[0]["partitions"]) == 5
    with pytest.raises(python_errors.TopicAlreadyExistsError):
        python.create_topics([topic])

    # By id, as newer brokers allow.
    python.delete_topics([UUID(str(described["topic_id"]))])
    assert topic not in python.list_topics()
    with pytest.raises(python_errors.UnknownTopicOrPartitionError):
        python.delete_topics([topic])


@pytest.mark.parametrize("is_incremental", [True, False])
def test_kafka_python_describes_and_alters_configs(python: Any, topic: str, is_incremental: bool) -> None:
    python.create_topics({topic: {"configs": {"retention.ms": "3600000"}}})

    def configs() -> dict[str, str]:
        found = python.describe_configs([PythonResource(PythonResourceType.TOPIC, topic)], config_filter="all")
        return {name: one["value"] for name, one in found["topic"][topic].items()}

    assert configs()["retention.ms"] == "3600000"
    change = PythonResource(PythonResourceType.TOPIC, topic, configs={"segment.bytes": "1048576"})
    altered = python.alter_configs([change], incremental=is_incremental)
    assert altered == {"topic": {topic: "OK"}}
    assert (configs()["segment.bytes"], configs()["retention.ms"]) == ("1048576", "3600000")

    reset = PythonResource(PythonResourceType.TOPIC, topic, configs={"retention.ms": None})
    python.reset_configs([reset], incremental=is_incremental)
    assert (configs()["segment.bytes"], configs()["retention.ms"]) == ("1048576", "604800000")

    wrong = PythonResource(PythonResourceType.TOPIC, topic, configs={"segment.bytes": "many"})
    refused = python.alter_configs([wrong], incremental=is_incremental)["topic"][topic]
    assert "InvalidConfig" in refused
    assert "segment.bytes" in refused


def test_kafka_python_describes_the_cluster_and_its_directories(python: Any, node: NodeProcess, topic: str) -> None:
    cluster = python.describe_cluster()
    assert cluster["controller_id"] == 1
    assert cluster["cluster_id"]
    assert len(cluster["brokers"]) == 1

    python.create_topics({topic: {"num_partitions": 2}})
    fill(node, topic)
    (broker,) = python.describe_log_dirs([topic])
    (directory,) = broker["log_dirs"]
    assert directory["error_code"] == 0
    assert directory["log_dir"] == str(node.data)
    (found,) = directory["topics"]
    sizes = {one["partition_index"]: one["partition_size"] for one in found["partitions"]}
    assert sizes[0] > 0
    assert sizes[1] == 0


def test_kafka_python_deletes_records_and_lists_offsets(python: Any, node: NodeProcess, topic: str) -> None:
    python.create_topics({topic: {"num_partitions": 1}})
    fill(node, topic)
    place = PythonPartition(topic, 0)

    def offset(spec: int) -> tuple[int, int]:
        found = python.list_partition_offsets({place: spec})[place]
        return found.offset, found.timestamp

    assert offset(PythonOffsetSpec.EARLIEST)[0] == 0
    assert offset(PythonOffsetSpec.LATEST)[0] == 5
    assert offset(PythonOffsetSpec.MAX_TIMESTAMP) == (2, TIMES_MS[2])
    assert offset(TIMES_MS[1]) == (1, TIMES_MS[1])

    assert python.delete_records({place: 3})[place]["low_watermark"] == 3
    assert offset(PythonOffsetSpec.EARLIEST)[0] == 3
    with pytest.raises(python_errors.OffsetOutOfRangeError):
        python.delete_records({place: 99})


# aiokafka.


@asynccontextmanager
async def aio_admin(node: NodeProcess) -> AsyncIterator[Any]:
    admin = AIOKafkaAdminClient(bootstrap_servers=node.server)
    await admin.start()
    try:
        yield admin
    finally:
        await admin.close()


def test_aiokafka_creates_describes_grows_and_deletes_a_topic(node: NodeProcess, topic: str) -> None:
    async def talk() -> None:
        async with aio_admin(node) as admin:
            made = await admin.create_topics([AioNewTopic(topic, 3, 1, topic_configs={"retention.ms": "3600000"})])
            assert made.topic_errors[0][1] == 0
            (described,) = await admin.describe_topics([topic])
            assert sorted(one["partition"] for one in described["partitions"]) == [0, 1, 2]
            await admin.create_partitions({topic: AioNewPartitions(5)})
            assert len((await admin.describe_topics([topic]))[0]["partitions"]) == 5
            assert topic in await admin.list_topics()
            again = await admin.create_topics([AioNewTopic(topic, 3, 1)])
            assert again.topic_errors[0][1] == python_errors.TopicAlreadyExistsError.errno
            await admin.delete_topics([topic])
            assert topic not in await admin.list_topics()

    aio.run(talk())


def test_aiokafka_describes_and_alters_configs(node: NodeProcess, topic: str) -> None:
    async def talk() -> None:
        async with aio_admin(node) as admin:
            await admin.create_topics([AioNewTopic(topic, 1, 1, topic_configs={"retention.ms": "3600000"})])

            async def configs() -> dict[str, str]:
                (answer,) = await admin.describe_configs([AioResource(AioResourceType.TOPIC, topic)])
                ((code, _, _, _, entries, *_),) = answer.resources
                assert code == 0
                return {entry[0]: entry[1] for entry in entries}

            assert (await configs())["retention.ms"] == "3600000"
            change = AioResource(AioResourceType.TOPIC, topic, configs={"segment.bytes": "1048576"})
            (altered,) = await admin.alter_configs([change])
            assert altered.resources[0][0] == 0
            after = await configs()
            # The old call replaces the whole.
            assert (after["segment.bytes"], after["retention.ms"]) == ("1048576", "604800000")

    aio.run(talk())


def test_aiokafka_describes_the_cluster_deletes_records_and_finds_offsets(node: NodeProcess, topic: str) -> None:
    fill(node, topic)

    async def talk() -> None:
        place = AioPartition(topic, 0)
        async with aio_admin(node) as admin, aio.open_consumer(node.server) as consumer:
            cluster = await admin.describe_cluster()
            assert [one["node_id"] for one in cluster["brokers"]] == [1]
            assert cluster["controller_id"] == 1
            assert await consumer.beginning_offsets([place]) == {place: 0}
            assert await consumer.end_offsets([place]) == {place: 5}
            assert await admin.delete_records({place: RecordsToDelete(3)}) == {place: 3}
            assert await consumer.beginning_offsets([place]) == {place: 3}

    aio.run(talk())


# kcat.


def test_kcat_lists_the_node_and_a_topic_that_it_made_by_using_it(node: NodeProcess, topic: str) -> None:
    KCAT.write(node.server, topic, [Message(value=b"hello")])
    listed = kcat("-L", "-b", node.server, "-t", topic).stdout.decode()
    assert f"broker 1 at {node.server} (controller)" in listed
    assert f'topic "{topic}" with 1 partitions' in listed
    assert "partition 0, leader 1, replicas: 1, isrs: 1" in listed


def test_deleted_and_made_again_a_topic_is_empty(confluent: AdminClient, node: NodeProcess, topic: str) -> None:
    result_of(confluent.create_topics([NewTopic(topic, 1, 1)]))
    fill(node, topic)
    result_of(confluent.delete_topics([topic]))
    wait_until(
        lambda: topic not in confluent.list_topics(timeout=DEADLINE_S).topics, deadline_s=30, what="the topic is gone"
    )
    result_of(confluent.create_topics([NewTopic(topic, 1, 1)]))
    assert CONFLUENT.read(node.server, topic) == []
    fill(node, topic)
    assert [at for at, _ in CONFLUENT.read(node.server, topic)] == [0, 1, 2, 3, 4]
