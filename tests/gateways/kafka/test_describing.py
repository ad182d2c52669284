"""What tools ask about the cluster itself: settings of nodes, the quorum, quotas, resources, and topics by the page."""

from typing import Any
from uuid import UUID

import pytest
from tests.broker.transaction.world import World
from tests.gateways.kafka.fake_broker import NODE_ID, FakeBroker
from tests.gateways.kafka.harness import Client, connect, run, serving

from headrace.broker.config import BrokerConfig
from headrace.gateways.kafka.errors import ErrorCode
from headrace.wire.kafka.messages import (
    describe_client_quotas,
    describe_cluster,
    describe_configs,
    describe_quorum,
    describe_topic_partitions,
    list_config_resources,
)

BROKER = 4
# Kafka UI, AKHQ, ksqlDB, Cruise Control and operators look for these.
LOOKED_FOR = {
    "advertised.listeners": "PLAINTEXT://localhost:9092",
    "auto.create.topics.enable": "false",
    "broker.id": "1",
    "compression.type": "producer",
    "default.replication.factor": "1",
    "delete.topic.enable": "true",
    "listeners": "PLAINTEXT://localhost:9092",
    "log.cleanup.policy": "delete",
    "log.dirs": "/data",
    "log.message.timestamp.type": "CreateTime",
    "log.retention.bytes": "-1",
    "log.retention.hours": "2",
    "log.retention.ms": "7200000",
    "log.segment.bytes": "268435456",
    "message.max.bytes": "1048588",
    "min.insync.replicas": "1",
    "node.id": "1",
    "num.partitions": "6",
    "process.roles": "broker,controller",
    "unclean.leader.election.enable": "false",
}


async def settings(client: Client, name: str) -> dict[str, Any]:
    resource = describe_configs.DescribeConfigsResource(BROKER, name, None)
    request = describe_configs.DescribeConfigsRequest((resource,), True, True)
    (found,) = (await client.ask(32, 4, request)).results
    assert found.error_code == 0
    return {config.name: config for config in found.configs}


def test_a_node_tells_its_settings_by_the_names_that_tools_look_for() -> None:
    async def main() -> None:
        broker = FakeBroker()
        broker.config = BrokerConfig(
            auto_create_topics=False, default_partition_count=6, topic_defaults={"retention.ms": "7200000"}
        )
        async with serving(broker) as gateway:
            client = await connect(gateway)
            found = await settings(client, str(NODE_ID))
            assert {name: found[name].value for name in LOOKED_FOR} == LOOKED_FOR
            assert all(config.read_only and config.documentation for config in found.values())
            assert not any(name.startswith(("group.", "offset", "transaction")) for name in found)
            assert await settings(client, "") == {}, "settings for all nodes at once"
            await client.close()

    run(main())


def test_a_node_with_groups_and_transactions_tells_their_settings() -> None:
    async def main() -> None:
        world = await World().start()
        async with serving(FakeBroker(), groups=world.groups, transactions=world.coordinator) as gateway:
            client = await connect(gateway)
            found = await settings(client, str(NODE_ID))
            assert found["offsets.topic.num.partitions"].value == str(world.groups.config.partitions)
            assert found["offsets.retention.minutes"].value == str(7 * 24 * 60)
            assert found["group.max.session.timeout.ms"].value == str(world.groups.config.session_timeout_ms_max)
            assert found["transaction.max.timeout.ms"].value == "900000"
            assert found["transaction.state.log.num.partitions"].value == "2"
            await client.close()
        world.abandon()

    run(main())


@pytest.mark.parametrize("version", [0, 1, 2])
def test_the_operations_on_a_cluster_are_those_of_kafka_without_an_authorizer(version: int) -> None:
    async def main() -> None:
        async with serving() as gateway:
            client = await connect(gateway)
            answer = await client.ask(60, version, describe_cluster.DescribeClusterRequest(True))
            found = {bit for bit in range(32) if answer.cluster_authorized_operations >> bit & 1}
            # Create, alter, describe, cluster action, describe configs, alter configs, idempotent write.
            assert found == {5, 7, 8, 9, 10, 11, 12}
            await client.close()

    run(main())


@pytest.mark.parametrize("version", [0, 1, 2])
def test_the_node_is_the_only_voter_of_the_quorum(version: int) -> None:
    async def main() -> None:
        broker = FakeBroker()
        broker.add("t")
        async with serving(broker) as gateway:
            client = await connect(gateway)
            asked = tuple(
                describe_quorum.RequestTopicData(name, (describe_quorum.RequestPartitionData(0),))
                for name in ("__cluster_metadata", "t")
            )
            answer = await client.ask(55, version, describe_quorum.DescribeQuorumRequest(asked))
            assert answer.error_code == 0
            quorum, other = (topic.partitions[0] for topic in answer.topics)
            assert (quorum.error_code, quorum.leader_id) == (0, NODE_ID)
            assert [voter.replica_id for voter in quorum.current_voters] == [NODE_ID]
            assert quorum.high_watermark == quorum.current_voters[0].log_end_offset == broker.catalog.revision
            assert quorum.observers == ()
            assert other.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            assert [node.node_id for node in answer.nodes] == ([NODE_ID] if version == 2 else [])
            await client.close()

    run(main())


@pytest.mark.parametrize("version", [0, 1])
def test_there_are_no_quotas(version: int) -> None:
    async def main() -> None:
        async with serving() as gateway:
            client = await connect(gateway)
            answer = await client.ask(48, version, describe_client_quotas.DescribeClientQuotasRequest())
            assert (answer.error_code, answer.error_message, answer.entries) == (0, None, ())
            await client.close()

    run(main())


def test_resources_with_settings_are_listed_by_kind() -> None:
    async def main() -> None:
        broker = FakeBroker()
        broker.add("a")
        broker.add("b")
        async with serving(broker) as gateway:
            client = await connect(gateway)

            async def listed(*kinds: int, version: int = 1) -> tuple[int, list[tuple[str, int]]]:
                answer = await client.ask(74, version, list_config_resources.ListConfigResourcesRequest(kinds))
                return answer.error_code, [(one.resource_name, one.resource_type) for one in answer.config_resources]

            assert await listed() == (0, [("a", 2), ("b", 2), ("1", 4)])
            assert await listed(2) == (0, [("a", 2), ("b", 2)])
            assert await listed(4, 16, 8) == (0, [("1", 4)])
            assert await listed(3) == (ErrorCode.UNSUPPORTED_VERSION, [])
            assert await listed(version=0) == (0, []), "version 0 asks for client metrics only"
            await client.close()

    run(main())


Page = list[tuple[str, list[int]]]


class Paging:
    """Asks for topics page by page."""

    def __init__(self, client: Client) -> None:
        self._client = client

    async def page(self, *names: str, limit: int = 2000, at: tuple[str, int] | None = None) -> Any:
        request = describe_topic_partitions.DescribeTopicPartitionsRequest(
            tuple(describe_topic_partitions.TopicRequest(name) for name in names),
            limit,
            None if at is None else describe_topic_partitions.RequestCursor(*at),
        )
        return await self._client.ask(75, 0, request)

    async def all(self, *names: str, limit: int) -> list[Page]:
        pages: list[Page] = []
        at = None
        while True:
            answer = await self.page(*names, limit=limit, at=at)
            pages.append([(topic.name, [one.partition_index for one in topic.partitions]) for topic in answer.topics])
            if answer.next_cursor is None:
                return pages
            at = answer.next_cursor.topic_name, answer.next_cursor.partition_index


def test_topics_are_described_page_by_page_in_the_order_of_their_names() -> None:
    async def main() -> None:
        broker = FakeBroker()
        for name, count in (("c", 2), ("a", 3), ("b", 1)):
            broker.add(name, count)
        async with serving(broker) as gateway:
            client = await connect(gateway)
            paging = Paging(client)
            assert await paging.all(limit=100) == [[("a", [0, 1, 2]), ("b", [0]), ("c", [0, 1])]]
            assert await paging.all(limit=2) == [[("a", [0, 1])], [("a", [2]), ("b", [0])], [("c", [0, 1])]]
            assert await paging.all(limit=3) == [[("a", [0, 1, 2])], [("b", [0]), ("c", [0, 1])]]
            assert await paging.all("c", "a", limit=0) == [
                [("a", [0])], [("a", [1])], [("a", [2])], [("c", [0])], [("c", [1])]
            ]  # fmt: skip
            await client.close()

    run(main())


def test_a_described_topic_has_its_id_and_leader_and_one_that_is_missing_an_error() -> None:
    async def main() -> None:
        broker = FakeBroker()
        made = broker.add("t")
        async with serving(broker) as gateway:
            client = await connect(gateway)
            paging = Paging(client)
            bad, missing, found = (await paging.page("t", "missing", "a/b")).topics
            assert (bad.error_code, bad.name) == (ErrorCode.INVALID_TOPIC_EXCEPTION, "a/b")
            assert (missing.error_code, missing.name) == (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "missing")
            assert (found.error_code, found.topic_id, found.is_internal) == (0, made.id, False)
            assert found.topic_id != UUID(int=0)
            assert [(one.leader_id, one.isr_nodes) for one in found.partitions] == [(NODE_ID, (NODE_ID,))]
            assert found.partitions[0].eligible_leader_replicas == ()
            assert set(broker.catalog.topics) == {"t"}, "nothing is created by being asked for"
            at_gone = await paging.page(at=("s", 7))
            assert [topic.name for topic in at_gone.topics] == ["t"], "the topic of the cursor was deleted"
            (refused,) = (await paging.page("t", at=("t", -1))).topics
            assert refused.error_code == ErrorCode.INVALID_REQUEST
            await client.close()

    run(main())
