"""ConsumerGroupHeartbeat and ConsumerGroupDescribe, in both versions, over a connection and a simulated node."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any
from uuid import UUID

import pytest
from tests.broker.group.world import CONFIG, GroupNode
from tests.gateways.kafka.harness import Client, connect, run, serving

from headrace.gateways.kafka.errors import ErrorCode
from headrace.wire.kafka.messages.consumer_group_describe import ConsumerGroupDescribeRequest
from headrace.wire.kafka.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    RequestTopicPartitions,
)
from headrace.wire.kafka.messages.describe_groups import DescribeGroupsRequest
from headrace.wire.kafka.messages.list_groups import ListGroupsRequest
from headrace.wire.kafka.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from headrace.wire.kafka.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
)

VERSIONS = pytest.mark.parametrize("version", [0, 1])


class Asker:
    def __init__(self, client: Client, node: GroupNode, version: int) -> None:
        self.client = client
        self.version = version
        self.topic_id = node.catalog.topics["t"].id

    async def beat(self, member_id: str, epoch: int, **fields: Any) -> Any:
        request = ConsumerGroupHeartbeatRequest(**{"group_id": "g", **fields}, member_id=member_id, member_epoch=epoch)
        return await self.client.ask(68, self.version, request)

    async def join(self, member_id: str, **fields: Any) -> Any:
        settings = {"rebalance_timeout_ms": 5000, "subscribed_topic_names": ("t",), "topic_partitions": ()}
        return await self.beat(member_id, 0, **{**settings, **fields})

    async def describe(self, group_id: str = "g") -> Any:
        request = ConsumerGroupDescribeRequest((group_id,))
        (group,) = (await self.client.ask(69, self.version, request)).groups
        return group

    def owned(self, *indexes: int) -> tuple[RequestTopicPartitions, ...]:
        return (RequestTopicPartitions(self.topic_id, indexes),)


@asynccontextmanager
async def asking(version: int) -> AsyncIterator[Asker]:
    node = await GroupNode().start()
    await node.make(partitions=4)
    async with serving(node.broker, groups=node.groups) as gateway:
        client = await connect(gateway)
        yield Asker(client, node, version)
        await client.close()
    node.abandon()


def given(answer: Any) -> list[tuple[UUID, tuple[int, ...]]]:
    return [(topic.topic_id, topic.partitions) for topic in answer.assignment.topic_partitions]


@VERSIONS
def test_two_members_share_a_topic_out_and_one_leaves(version: int) -> None:
    async def main() -> None:
        async with asking(version) as asker:
            first = await asker.join("a", rack_id="r")
            assert (first.error_code, first.error_message, first.member_id) == (0, None, "a")
            assert first.heartbeat_interval_ms == CONFIG.consumer_heartbeat_interval_ms
            assert given(first) == [(asker.topic_id, (0, 1, 2, 3))]
            assert (await asker.beat("a", first.member_epoch)).assignment is None
            second = await asker.join("b")
            assert (second.error_code, given(second)) == (0, [])
            told = await asker.beat("a", first.member_epoch)
            assert (told.member_epoch, given(told)) == (first.member_epoch, [(asker.topic_id, (0, 1))])
            done = await asker.beat("a", first.member_epoch, topic_partitions=asker.owned(0, 1))
            assert (done.member_epoch, done.assignment) == (second.member_epoch, None)
            taken = await asker.beat("b", second.member_epoch)
            assert given(taken) == [(asker.topic_id, (2, 3))]
            gone = await asker.beat("a", -1)
            assert (gone.error_code, gone.member_epoch) == (0, -1)
            assert given(await asker.beat("b", second.member_epoch)) == [(asker.topic_id, (0, 1, 2, 3))]

    run(main())


@VERSIONS
def test_a_group_is_described_with_its_epochs_and_assignments(version: int) -> None:
    async def main() -> None:
        async with asking(version) as asker:
            joined = await asker.join("a", instance_id="a1", rack_id="r", server_assignor="range")
            await asker.join("b")
            group = await asker.describe()
            assert (group.error_code, group.group_id, group.group_state) == (0, "g", "Reconciling")
            assert (group.group_epoch, group.assignment_epoch, group.assignor_name) == (2, 2, "range")
            member, other = group.members
            assert (member.member_id, member.instance_id, member.rack_id, member.client_id) == ("a", "a1", "r", "test")
            assert (member.member_epoch, member.subscribed_topic_names) == (joined.member_epoch, ("t",))
            assert (member.subscribed_topic_regex, member.member_type) == (None, 1 if version else -1)
            (topic,) = member.assignment.topic_partitions
            assert (topic.topic_id, topic.topic_name, topic.partitions) == (asker.topic_id, "t", (0, 1, 2, 3))
            assert [one.partitions for one in other.target_assignment.topic_partitions] == [(2, 3)]
            assert other.assignment.topic_partitions == ()
            unknown = await asker.describe("unknown")
            assert (unknown.error_code, unknown.group_id) == (ErrorCode.GROUP_ID_NOT_FOUND, "unknown")

    run(main())


@VERSIONS
def test_members_that_are_not_or_are_no_more_are_told_what_they_are(version: int) -> None:
    async def main() -> None:
        async with asking(version) as asker:
            joined = await asker.join("a", instance_id="i")
            for answer, code in (
                (await asker.beat("stranger", 1), ErrorCode.UNKNOWN_MEMBER_ID),
                (await asker.beat("a", joined.member_epoch + 1), ErrorCode.FENCED_MEMBER_EPOCH),
                (await asker.join("b", instance_id="i"), ErrorCode.UNRELEASED_INSTANCE_ID),
                (await asker.beat("b", 1, instance_id="i"), ErrorCode.FENCED_INSTANCE_ID),
                (await asker.join("b", server_assignor="cleverest"), ErrorCode.UNSUPPORTED_ASSIGNOR),
                (await asker.join("b", subscribed_topic_names=None), ErrorCode.INVALID_REQUEST),
                (await asker.join("b", rebalance_timeout_ms=-1), ErrorCode.INVALID_REQUEST),
                (await asker.join("b", group_id=""), ErrorCode.INVALID_GROUP_ID),
                (await asker.beat("b", -2), ErrorCode.INVALID_REQUEST),
            ):
                assert (answer.error_code, bool(answer.error_message)) == (code, True)
            assert (await asker.beat("a", -2, instance_id="i")).member_epoch == -2
            heir = await asker.join("b", instance_id="i")
            assert (heir.error_code, heir.member_epoch, given(heir)) == (0, joined.member_epoch, given(joined))

    run(main())


def test_a_newcomer_without_an_id_is_given_one_in_the_first_version_only() -> None:
    async def main() -> None:
        async with asking(0) as asker:
            named = await asker.join("")
            assert (named.error_code, len(named.member_id) > 10) == (0, True)
            asker.version = 1
            assert (await asker.join("")).error_code == ErrorCode.INVALID_REQUEST

    run(main())


def test_a_subscription_by_expression_is_matched_by_the_coordinator() -> None:
    async def main() -> None:
        async with asking(1) as asker:
            wrong = await asker.join("a", subscribed_topic_names=None, subscribed_topic_regex="(t")
            assert wrong.error_code == ErrorCode.INVALID_REGULAR_EXPRESSION
            joined = await asker.join("a", subscribed_topic_names=None, subscribed_topic_regex="^[s-u]$")
            assert given(joined) == [(asker.topic_id, (0, 1, 2, 3))]
            (member,) = (await asker.describe()).members
            assert member.subscribed_topic_regex == "^[s-u]$"

    run(main())


def test_offsets_are_committed_and_read_under_the_members_epoch() -> None:
    async def main() -> None:
        async with asking(1) as asker:
            joined = await asker.join("a")
            place = OffsetCommitRequestPartition(0, 9)
            by_id = (OffsetCommitRequestTopic(topic_id=asker.topic_id, partitions=(place,)),)
            by_name = (OffsetCommitRequestTopic("t", partitions=(place,)),)
            for version, topics in ((9, by_name), (10, by_id)):
                for epoch, code in ((joined.member_epoch, 0), (joined.member_epoch + 1, ErrorCode.STALE_MEMBER_EPOCH)):
                    request = OffsetCommitRequest("g", epoch, "a", topics=topics)
                    answer = await asker.client.ask(8, version, request)
                    assert answer.topics[0].partitions[0].error_code == code
            wanted = (OffsetFetchRequestTopics("t", partition_indexes=(0,)),)
            for epoch, code in ((joined.member_epoch, 0), (joined.member_epoch + 1, ErrorCode.STALE_MEMBER_EPOCH)):
                asked = OffsetFetchRequestGroup("g", "a", epoch, wanted)
                (found,) = (await asker.client.ask(9, 9, OffsetFetchRequest(groups=(asked,)))).groups
                assert found.error_code == code

    run(main())


def test_lists_show_the_kind_and_the_classic_description_does_not_know_it() -> None:
    async def main() -> None:
        async with asking(1) as asker:
            await asker.join("a")
            listed = await asker.client.ask(16, 5, ListGroupsRequest(types_filter=("consumer",)))
            (group,) = listed.groups
            assert (group.group_id, group.group_state, group.group_type) == ("g", "Stable", "consumer")
            (described,) = (await asker.client.ask(15, 6, DescribeGroupsRequest(("g",)))).groups
            assert described.error_code == ErrorCode.GROUP_ID_NOT_FOUND

    run(main())
