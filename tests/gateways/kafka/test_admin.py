"""Metadata, topics, settings, offsets: what the administrative APIs answer."""

import asyncio
from typing import Any
from uuid import UUID

import pytest
from tests.gateways.kafka.fake_broker import NODE_ID, FakeBroker
from tests.gateways.kafka.harness import Client, batch, connect, run, serving, until
from tests.gateways.kafka.requests import ALL_TOPICS, produce

from headrace.gateways.kafka.errors import ErrorCode
from headrace.model.names import INTERNAL_NAMES
from headrace.model.topic_setting import CONFIG_KEYS
from headrace.testing.clock import SimulatedClock
from headrace.wire.kafka.messages import (
    alter_configs,
    create_partitions,
    create_topics,
    delete_records,
    delete_topics,
    describe_configs,
    find_coordinator,
    init_producer_id,
    list_offsets,
    metadata,
)
from headrace.wire.kafka.messages import incremental_alter_configs as incremental

BAD_NAMES = ["", ".", "..", "a/b", "a\x00b", "sp ace", "ü", "x" * 250, "x" * 300, "../../etc/passwd"]


def asking(*names: str) -> metadata.MetadataRequest:
    return metadata.MetadataRequest(tuple(metadata.MetadataRequestTopic(name=name) for name in names))


def test_a_missing_topic_is_created_on_first_use_with_its_leader_in_the_same_answer() -> None:
    async def main() -> None:
        async with serving(FakeBroker()) as gateway:
            client = await connect(gateway)
            (topic,) = (await client.ask(3, 12, asking("new"))).topics
            assert (topic.error_code, topic.name) == (0, "new")
            assert topic.topic_id != UUID(int=0)
            assert topic.partitions[0].leader_id == NODE_ID
            await client.close()

    run(main())


@pytest.mark.parametrize("by_request", [True, False])
def test_a_missing_topic_is_not_created_where_the_request_or_the_node_forbids_it(by_request: bool) -> None:
    async def main() -> None:
        broker = FakeBroker(auto_create=by_request)
        async with serving(broker) as gateway:
            client = await connect(gateway)
            request = metadata.MetadataRequest(asking("new").topics, allow_auto_topic_creation=not by_request)
            (topic,) = (await client.ask(3, 12, request)).topics
            assert topic.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            assert not broker.catalog.topics
            await client.close()

    run(main())


@pytest.mark.parametrize("name", BAD_NAMES[1:])
def test_a_bad_name_is_an_invalid_topic_in_metadata_and_in_creation(name: str) -> None:
    async def main() -> None:
        async with serving() as gateway:
            client = await connect(gateway)
            for version in (0, 8, 12):
                (topic,) = (await client.ask(3, version, asking(name))).topics
                assert topic.error_code == ErrorCode.INVALID_TOPIC_EXCEPTION
            request = create_topics.CreateTopicsRequest((create_topics.CreatableTopic(name, 1, 1),))
            (created,) = (await client.ask(19, 7, request)).topics
            assert created.error_code == ErrorCode.INVALID_TOPIC_EXCEPTION
            assert created.error_message
            await client.close()

    run(main())


def test_an_array_of_no_topics_means_all_of_them_in_version_0_and_none_later() -> None:
    async def main() -> None:
        broker = FakeBroker()
        broker.add("a")
        broker.add("b")
        async with serving(broker) as gateway:
            client = await connect(gateway)
            assert len((await client.ask(3, 0, asking())).topics) == 2
            assert len((await client.ask(3, 1, asking())).topics) == 0
            assert len((await client.ask(*ALL_TOPICS)).topics) == 2
            await client.close()

    run(main())


def test_topics_are_looked_up_by_id_from_version_12() -> None:
    async def main() -> None:
        broker = FakeBroker()
        known = broker.add("a")
        async with serving(broker) as gateway:
            client = await connect(gateway)

            async def ask(version: int, id: UUID) -> metadata.MetadataResponseTopic:
                request = metadata.MetadataRequest((metadata.MetadataRequestTopic(id, None),))
                (topic,) = (await client.ask(3, version, request)).topics
                assert isinstance(topic, metadata.MetadataResponseTopic)
                return topic

            assert (await ask(12, known.id)).name == "a"
            assert (await ask(12, UUID(int=9))).error_code == ErrorCode.UNKNOWN_TOPIC_ID
            assert (await ask(10, known.id)).error_code == ErrorCode.INVALID_REQUEST
            await client.close()

    run(main())


def test_a_kept_answer_is_not_given_after_the_catalog_or_the_nodes_changed() -> None:
    async def main() -> None:
        broker = FakeBroker()
        broker.add("a")
        async with serving(broker) as gateway:
            client = await connect(gateway)
            first = await client.ask(*ALL_TOPICS)
            assert await client.ask(*ALL_TOPICS) == first
            broker.add("b")
            assert [topic.name for topic in (await client.ask(*ALL_TOPICS)).topics] == ["a", "b"]
            broker.addresses = [type(broker.addresses[0])(node_id=NODE_ID, host="elsewhere", port=1)]
            assert (await client.ask(*ALL_TOPICS)).brokers[0].host == "elsewhere"
            await client.close()

    run(main())


async def create(client: Client, *topics: create_topics.CreatableTopic, **options: Any) -> list[int]:
    response = await client.ask(19, 7, create_topics.CreateTopicsRequest(topics, **options))
    return [topic.error_code for topic in response.topics]


def test_topics_are_created_with_defaults_settings_and_assignments() -> None:
    async def main() -> None:
        broker = FakeBroker()
        async with serving(broker) as gateway:
            client = await connect(gateway)
            assigned = (
                create_topics.CreatableReplicaAssignment(1, (NODE_ID,)),
                create_topics.CreatableReplicaAssignment(0, (NODE_ID,)),
            )
            setting = create_topics.CreatableTopicConfig("retention.ms", "5000")
            assert await create(
                client,
                create_topics.CreatableTopic("plain", -1, -1),
                create_topics.CreatableTopic("assigned", -1, -1, assigned),
                create_topics.CreatableTopic("set", 3, 1, (), (setting,)),
            ) == [0, 0, 0]
            assert broker.catalog.topics["assigned"].partition_count == 2
            assert broker.catalog.topics["set"].config.retention_ms == 5000
            assert await create(client, create_topics.CreatableTopic("dry", 1, 1), validate_only=True) == [0]
            assert "dry" not in broker.catalog.topics
            await client.close()

    run(main())


@pytest.mark.parametrize(
    ("topics", "codes"),
    [
        ([("t", 1, 1, (), ())], [ErrorCode.TOPIC_ALREADY_EXISTS]),
        ([("new", 0, 1, (), ())], [ErrorCode.INVALID_PARTITIONS]),
        ([("new", 1, 0, (), ())], [ErrorCode.INVALID_REPLICATION_FACTOR]),
        ([("new", 1, 3, (), ())], [ErrorCode.INVALID_REPLICATION_FACTOR]),
        ([("new", 1, 1, (), (("no.such.key", "1"),))], [ErrorCode.INVALID_CONFIG]),
        ([("new", 1, 1, (), (("retention.ms", "soon"),))], [ErrorCode.INVALID_CONFIG]),
        ([("new", 1, 1, (), (("retention.ms", None),))], [ErrorCode.INVALID_CONFIG]),
        ([("new", 1, 1, ((0, (NODE_ID,)),), ())], [ErrorCode.INVALID_REQUEST]),
        ([("new", -1, -1, ((1, (NODE_ID,)),), ())], [ErrorCode.INVALID_REPLICA_ASSIGNMENT]),
        ([("new", -1, -1, ((0, (77,)),), ())], [ErrorCode.INVALID_REPLICA_ASSIGNMENT]),
        ([("new", -1, -1, ((0, ()),), ())], [ErrorCode.INVALID_REPLICA_ASSIGNMENT]),
        ([("twice", 1, 1, (), ()), ("twice", 1, 1, (), ()), ("ok", 1, 1, (), ())], [42, 0]),
    ],
)
def test_a_topic_that_cannot_be_is_refused_and_hinders_no_other(topics: list[Any], codes: list[int]) -> None:
    async def main() -> None:
        broker = FakeBroker()
        broker.add("t")
        async with serving(broker) as gateway:
            client = await connect(gateway)
            asked = [
                create_topics.CreatableTopic(
                    name,
                    partitions,
                    replicas,
                    tuple(create_topics.CreatableReplicaAssignment(*one) for one in assignments),
                    tuple(create_topics.CreatableTopicConfig(*one) for one in configs),
                )
                for name, partitions, replicas, assignments, configs in topics
            ]
            assert await create(client, *asked) == codes
            await client.close()

    run(main())


def test_topics_are_deleted_by_name_or_by_id_and_not_by_both() -> None:
    async def main() -> None:
        broker = FakeBroker()
        known = broker.add("by-id")
        broker.add("by-name")
        async with serving(broker) as gateway:
            client = await connect(gateway)
            states = (
                delete_topics.DeleteTopicState(None, known.id),
                delete_topics.DeleteTopicState("by-name"),
                delete_topics.DeleteTopicState("missing"),
                delete_topics.DeleteTopicState(None, UUID(int=5)),
                delete_topics.DeleteTopicState("x", UUID(int=5)),
                delete_topics.DeleteTopicState(None),
            )
            response = await client.ask(20, 6, delete_topics.DeleteTopicsRequest(topics=states, timeout_ms=1000))
            assert [one.error_code for one in response.responses] == [0, 0, 3, 100, 42, 42]
            assert response.responses[0].name == "by-id"
            assert not broker.catalog.topics
            await client.close()

    run(main())


def test_a_topic_that_stands_twice_in_a_request_is_left_alone_and_answered_once() -> None:
    async def main() -> None:
        broker = FakeBroker()
        known = broker.add("t")
        for name in ("u", "v", "w"):
            broker.add(name)
        states = [delete_topics.DeleteTopicState(name) for name in ("t", "u", "gone", "v", "v", "v", "w", "gone")]
        states.append(delete_topics.DeleteTopicState(None, known.id))
        async with serving(broker) as gateway:
            client = await connect(gateway)
            parts = tuple(create_partitions.CreatePartitionsTopic(name, 2, None) for name in ("t", "t", "u"))
            grown = await client.ask(37, 3, create_partitions.CreatePartitionsRequest(parts, 1000, False))
            assert [(one.name, one.error_code) for one in grown.results] == [("t", 42), ("u", 0)]
            changes = (incremental.AlterableConfig("retention.ms", 0, "5"),)
            resources = tuple(incremental.AlterConfigsResource(2, name, changes) for name in ("t", "u", "t"))
            altered = await client.ask(44, 1, incremental.IncrementalAlterConfigsRequest(resources))
            assert [(one.resource_name, one.error_code) for one in altered.responses] == [("t", 42), ("u", 0)]
            assert broker.catalog.topics["t"].overrides == {}
            request = delete_topics.DeleteTopicsRequest(topics=tuple(states), timeout_ms=1000)
            deleted = await client.ask(20, 6, request)
            codes = [(one.name, one.error_code) for one in deleted.responses]
            assert codes == [("t", 42), ("u", 0), ("gone", 42), ("v", 42), ("w", 0)]
            assert set(broker.catalog.topics) == {"t", "v"}
            await client.close()

    run(main())


def test_settings_are_described_with_source_type_synonyms_and_documentation() -> None:
    async def main() -> None:
        broker = FakeBroker()
        broker.add("t")
        await broker.alter_config("t", {"retention.ms": "77"})
        async with serving(broker) as gateway:
            client = await connect(gateway)
            resources = (
                describe_configs.DescribeConfigsResource(2, "t", None),
                describe_configs.DescribeConfigsResource(2, "t", ("segment.bytes", "headrace.queue")),
                describe_configs.DescribeConfigsResource(4, str(NODE_ID), None),
                describe_configs.DescribeConfigsResource(2, "missing", None),
                describe_configs.DescribeConfigsResource(4, "99", None),
                describe_configs.DescribeConfigsResource(8, "1", None),
            )
            request = describe_configs.DescribeConfigsRequest(resources, True, True)
            everything, one, node, *refused = (await client.ask(32, 4, request)).results
            found = {config.name: config for config in everything.configs}
            assert set(found) == set(CONFIG_KEYS)
            assert (found["retention.ms"].value, found["retention.ms"].config_source) == ("77", 1)
            assert [synonym.source for synonym in found["retention.ms"].synonyms] == [1, 5]
            assert found["segment.bytes"].config_source == 5
            assert all(config.documentation and not config.read_only for config in everything.configs)
            assert [(config.name, config.read_only) for config in one.configs] == [
                ("segment.bytes", False),
                ("headrace.queue", True),
            ]
            assert one.configs[1].value == "false"
            assert all(config.read_only for config in node.configs)
            assert [result.error_code for result in refused] == [3, 42, 42]
            await client.close()

    run(main())


def test_settings_are_replaced_as_a_whole_or_changed_one_by_one() -> None:
    async def main() -> None:
        broker = FakeBroker()
        broker.add("t")
        async with serving(broker) as gateway:
            client = await connect(gateway)

            async def replace(kind: int, name: str, **settings: str) -> int:
                configs = tuple(
                    alter_configs.AlterableConfig(k.replace("_", "."), value) for k, value in settings.items()
                )
                resource = alter_configs.AlterConfigsResource(kind, name, configs)
                response = await client.ask(33, 2, alter_configs.AlterConfigsRequest((resource,)))
                code = response.responses[0].error_code
                assert isinstance(code, int)
                return code

            async def change(*changes: tuple[str, int, str | None]) -> int:
                configs = tuple(incremental.AlterableConfig(*one) for one in changes)
                resource = incremental.AlterConfigsResource(2, "t", configs)
                response = await client.ask(44, 1, incremental.IncrementalAlterConfigsRequest((resource,)))
                code = response.responses[0].error_code
                assert isinstance(code, int)
                return code

            def overrides() -> dict[str, str]:
                return broker.catalog.topics["t"].overrides

            assert await replace(2, "t", retention_ms="1", segment_bytes="8192") == 0
            assert await change(("retention.ms", 1, None), ("segment.ms", 0, "9")) == 0
            assert overrides() == {"segment.bytes": "8192", "segment.ms": "9"}
            assert await replace(2, "t", retention_ms="2") == 0
            assert overrides() == {"retention.ms": "2"}
            assert await change(("retention.ms", 0, "soon")) == ErrorCode.INVALID_CONFIG
            assert await change(("retention.ms", 2, "5")) == ErrorCode.INVALID_CONFIG
            assert await change(("cleanup.policy", 2, "compact")) == 0
            assert overrides() == {"retention.ms": "2", "cleanup.policy": "delete,compact"}
            assert await change(("cleanup.policy", 3, "delete")) == 0
            assert overrides() == {"retention.ms": "2", "cleanup.policy": "compact"}
            assert await change(("cleanup.policy", 3, "compact")) == 0
            assert overrides() == {"retention.ms": "2", "cleanup.policy": ""}
            assert await change(("cleanup.policy", 2, "delete")) == 0
            assert overrides() == {"retention.ms": "2", "cleanup.policy": "delete"}
            assert await change(("cleanup.policy", 1, None)) == 0
            assert await change(("retention.mss", 1, None)) == ErrorCode.INVALID_CONFIG
            assert await change(("retention.ms", 9, "1")) == ErrorCode.INVALID_REQUEST
            assert await change(("retention.ms", 0, "1"), ("retention.ms", 1, None)) == ErrorCode.INVALID_REQUEST
            assert await replace(2, "missing") == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            assert await replace(4, "1") == ErrorCode.INVALID_REQUEST
            assert overrides() == {"retention.ms": "2"}
            await client.close()

    run(main())


@pytest.mark.parametrize("name", sorted(INTERNAL_NAMES))
def test_nothing_is_deleted_from_topics_of_headraces_own(name: str) -> None:
    async def main() -> None:
        broker = FakeBroker()
        broker.add(name)
        broker.add("t")
        async with serving(broker) as gateway:
            client = await connect(gateway)
            await client.ask(*produce(batch()))
            everything = (delete_records.DeleteRecordsPartition(0, -1),)
            topics = tuple(delete_records.DeleteRecordsTopic(topic, everything) for topic in (name, "t"))
            response = await client.ask(21, 2, delete_records.DeleteRecordsRequest(topics, 1000))
            found = [topic.partitions[0] for topic in response.topics]
            assert (found[0].error_code, found[0].low_watermark) == (ErrorCode.INVALID_TOPIC_EXCEPTION, -1)
            assert (found[1].error_code, found[1].low_watermark) == (0, 1)
            await client.close()

    run(main())


def test_records_are_deleted_whatever_time_is_given_for_it() -> None:
    async def main() -> None:
        clock = SimulatedClock()
        broker = FakeBroker()
        broker.add("t")
        broker.gate = asyncio.Event()
        async with serving(broker, clock=clock) as gateway:
            client = await connect(gateway)
            await client.ask(*produce(batch()))
            topics = (delete_records.DeleteRecordsTopic("t", (delete_records.DeleteRecordsPartition(0, -1),)),)
            sent = client.send(21, 2, delete_records.DeleteRecordsRequest(topics, 0))
            await until(lambda: broker.making == 1, "the deletion waits for the disk")
            clock.advance(1000)
            broker.gate.set()
            (found,) = (await client.receive(21, 2, sent)).topics[0].partitions
            assert (found.error_code, found.low_watermark) == (0, 1)
            await client.close()

    run(main())


def test_offsets_are_found_by_special_times_and_by_time() -> None:
    async def main() -> None:
        broker = FakeBroker()
        broker.add("t")
        async with serving(broker) as gateway:
            client = await connect(gateway)
            for time_ms in (1000, 3000, 2000):
                await client.ask(*produce(batch(timestamp_ms=time_ms)))

            async def ask(time_ms: int, version: int = 10, epoch: int = -1) -> tuple[int, int, int]:
                wanted = list_offsets.ListOffsetsPartition(0, epoch, time_ms)
                request = list_offsets.ListOffsetsRequest(-1, 0, (list_offsets.ListOffsetsTopic("t", (wanted,)),))
                one = (await client.ask(2, version, request)).topics[0].partitions[0]
                return one.error_code, one.offset, one.timestamp

            assert await ask(-1) == (0, 3, -1)
            assert await ask(-2) == (0, 0, -1)
            assert await ask(-3) == (0, 1, 3000)
            assert await ask(-4) == (0, 0, -1)
            assert await ask(-5) == (0, -1, -1)
            assert await ask(1500) == (0, 1, 3000)
            assert await ask(9999) == (0, -1, -1)
            assert (await ask(-3, version=6))[0] == ErrorCode.UNSUPPORTED_VERSION
            assert (await ask(-9))[0] == ErrorCode.UNSUPPORTED_VERSION
            assert (await ask(-1, epoch=1))[0] == ErrorCode.FENCED_LEADER_EPOCH
            assert (await ask(-1, epoch=9))[0] == ErrorCode.UNKNOWN_LEADER_EPOCH
            await client.close()

    run(main())


def test_this_node_coordinates_every_key_and_unknown_kinds_are_refused() -> None:
    async def main() -> None:
        async with serving() as gateway:
            client = await connect(gateway)
            old = await client.ask(10, 2, find_coordinator.FindCoordinatorRequest("g"))
            assert (old.error_code, old.node_id, old.port) == (0, NODE_ID, 9092)
            request = find_coordinator.FindCoordinatorRequest(key_type=0, coordinator_keys=("g", "h"))
            new = await client.ask(10, 6, request)
            assert [(one.key, one.node_id) for one in new.coordinators] == [("g", NODE_ID), ("h", NODE_ID)]
            bad = await client.ask(10, 2, find_coordinator.FindCoordinatorRequest("g", 7))
            assert bad.error_code == ErrorCode.INVALID_REQUEST
            await client.close()

    run(main())


def test_every_idempotent_producer_gets_its_own_id_and_a_transactional_one_is_refused() -> None:
    async def main() -> None:
        async with serving() as gateway:
            client = await connect(gateway)
            plain = init_producer_id.InitProducerIdRequest(None, 1000)
            first, second = await client.ask(22, 5, plain), await client.ask(22, 5, plain)
            assert first.producer_id != second.producer_id
            assert (first.error_code, first.producer_epoch) == (0, 0)
            refused = await client.ask(22, 5, init_producer_id.InitProducerIdRequest("tx", 1000))
            assert refused.error_code == ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
            assert refused.producer_id == -1
            await client.close()

    run(main())


def test_a_version_of_api_versions_that_nobody_knows_gets_version_0_with_our_range() -> None:
    async def main() -> None:
        async with serving() as gateway:
            client = await connect(gateway)
            client.send_bytes(bytes.fromhex("0000000e0012006300000009ffff00010100"))
            frame = await client.frame()
            assert frame[:4] == bytes.fromhex("00000009")
            assert frame[4:] == bytes.fromhex("002300000001001200000004")
            await client.close()

    run(main())
