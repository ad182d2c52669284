"""Each API at its lowest and its highest version, over a real connection."""

from typing import Any
from uuid import UUID

import pytest
from tests.gateways.kafka.fake_broker import NODE_ID, FakeBroker
from tests.gateways.kafka.harness import batch, connect, run, serving

from headrace.gateways.kafka.gateway import SERVED
from headrace.wire.kafka.messages import (
    alter_configs,
    api_versions,
    create_partitions,
    create_topics,
    delete_records,
    delete_topics,
    describe_client_quotas,
    describe_cluster,
    describe_configs,
    describe_log_dirs,
    describe_quorum,
    describe_topic_partitions,
    fetch,
    find_coordinator,
    incremental_alter_configs,
    init_producer_id,
    list_config_resources,
    list_offsets,
    metadata,
    offset_for_leader_epoch,
    produce,
)
from headrace.wire.kafka.registry import APIS

TOPIC_ID = UUID(int=0xABC001)


def request_for(key: int, version: int) -> Any:
    """A request that the fake broker with one topic `t` answers without error."""
    by_id = TOPIC_ID if (key, version) >= (0, 13) else UUID(int=0)
    match key:
        case 0:
            partition = produce.PartitionProduceData(0, batch())
            name, topic_id = ("", by_id) if version >= 13 else ("t", UUID(int=0))
            return produce.ProduceRequest(None, -1, 1000, (produce.TopicProduceData(name, topic_id, (partition,)),))
        case 1:
            name, topic_id = ("", TOPIC_ID) if version >= 13 else ("t", UUID(int=0))
            wanted = fetch.FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1 << 20)
            return fetch.FetchRequest(
                replica_id=-1, max_bytes=1 << 20, topics=(fetch.FetchTopic(name, topic_id, (wanted,)),)
            )
        case 2:
            wanted_time = list_offsets.ListOffsetsPartition(0, -1, -1)
            return list_offsets.ListOffsetsRequest(-1, 0, (list_offsets.ListOffsetsTopic("t", (wanted_time,)),))
        case 3:
            return metadata.MetadataRequest((metadata.MetadataRequestTopic(name="t"),))
        case 10 if version >= 4:
            return find_coordinator.FindCoordinatorRequest(coordinator_keys=("g", "h"))
        case 10:
            return find_coordinator.FindCoordinatorRequest(key="g")
        case 18:
            return api_versions.ApiVersionsRequest("test", "1") if version >= 3 else api_versions.ApiVersionsRequest()
        case 19:
            return create_topics.CreateTopicsRequest((create_topics.CreatableTopic("new", 2, 1),))
        case 20 if version >= 6:
            return delete_topics.DeleteTopicsRequest(topics=(delete_topics.DeleteTopicState("t"),), timeout_ms=1000)
        case 20:
            return delete_topics.DeleteTopicsRequest(topic_names=("t",), timeout_ms=1000)
        case 21:
            cut = delete_records.DeleteRecordsPartition(0, -1)
            return delete_records.DeleteRecordsRequest((delete_records.DeleteRecordsTopic("t", (cut,)),), 1000)
        case 22:
            return init_producer_id.InitProducerIdRequest(None, 1000)
        case 23:
            asked = offset_for_leader_epoch.OffsetForLeaderPartition(0, -1, 3)
            topics = (offset_for_leader_epoch.OffsetForLeaderTopic("t", (asked,)),)
            return offset_for_leader_epoch.OffsetForLeaderEpochRequest(topics=topics)
        case 32:
            resources = (
                describe_configs.DescribeConfigsResource(2, "t", None),
                describe_configs.DescribeConfigsResource(4, str(NODE_ID), None),
            )
            return describe_configs.DescribeConfigsRequest(resources, include_synonyms=True)
        case 33:
            setting = alter_configs.AlterableConfig("retention.ms", "1000")
            return alter_configs.AlterConfigsRequest((alter_configs.AlterConfigsResource(2, "t", (setting,)),))
        case 35:
            return describe_log_dirs.DescribeLogDirsRequest(None)
        case 37:
            return create_partitions.CreatePartitionsRequest(
                (create_partitions.CreatePartitionsTopic("t", 4, None),), 1000
            )
        case 44:
            change = incremental_alter_configs.AlterableConfig("retention.ms", 0, "1000")
            resource = incremental_alter_configs.AlterConfigsResource(2, "t", (change,))
            return incremental_alter_configs.IncrementalAlterConfigsRequest((resource,))
        case 48:
            return describe_client_quotas.DescribeClientQuotasRequest()
        case 55:
            metadata_log = describe_quorum.RequestTopicData(
                "__cluster_metadata", (describe_quorum.RequestPartitionData(0),)
            )
            return describe_quorum.DescribeQuorumRequest((metadata_log,))
        case 60:
            return describe_cluster.DescribeClusterRequest()
        case 74:
            return list_config_resources.ListConfigResourcesRequest()
        case 75:
            return describe_topic_partitions.DescribeTopicPartitionsRequest(
                (describe_topic_partitions.TopicRequest("t"),)
            )
    raise AssertionError(f"no request for key {key}")


def error_codes(value: Any) -> list[int]:
    """Every error code anywhere in a response."""
    codes = []
    for field in getattr(value, "__struct_fields__", ()):
        inner = getattr(value, field)
        if field == "error_code":
            codes.append(inner)
        elif isinstance(inner, tuple):
            for one in inner:
                codes += error_codes(one)
    return codes


EDGES = [(api.key, version) for api in SERVED for version in sorted({api.version_min, api.version_max})]


@pytest.mark.parametrize(("key", "version"), EDGES, ids=[f"{APIS[k].name}-{v}" for k, v in EDGES])
def test_an_api_answers_without_error_at_its_lowest_and_highest_version(key: int, version: int) -> None:
    async def main() -> None:
        broker = FakeBroker()
        broker.add("t")
        async with serving(broker) as gateway:
            client = await connect(gateway)
            response = await client.ask(key, version, request_for(key, version))
            assert set(error_codes(response)) <= {0}
            assert gateway.counters.requests_by_api == {key: 1}
            await client.close()

    run(main())


@pytest.mark.parametrize("api", SERVED, ids=[APIS[api.key].name for api in SERVED])
def test_an_api_answers_every_version_that_it_advertises(api: Any) -> None:
    async def main() -> None:
        async with serving() as gateway:
            client = await connect(gateway)
            for version in range(api.version_min, api.version_max + 1):
                # The topic is missing here: the answer carries an error, and it is an answer.
                await client.ask(api.key, version, request_for(api.key, version))
            await client.close()

    run(main())


def test_versions_are_advertised_as_they_are_served_and_produce_from_zero() -> None:
    async def main() -> None:
        async with serving() as gateway:
            client = await connect(gateway)
            response = await client.ask(18, 3, request_for(18, 3))
            ranges = {one.api_key: (one.min_version, one.max_version) for one in response.api_keys}
            assert ranges[0] == (0, 13)
            for api in SERVED[1:]:
                assert ranges[api.key] == (api.version_min, api.version_max)
            await client.close()

    run(main())
