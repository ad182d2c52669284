"""The APIs of groups, each at its lowest and highest version, over a real connection and a simulated node."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any
from uuid import UUID

import pytest
from tests.broker.group.world import GroupNode
from tests.gateways.kafka.harness import Client, connect, run, serving

from headrace.gateways.kafka.errors import ErrorCode
from headrace.gateways.kafka.gateway import GROUPS_SERVED
from headrace.wire.kafka.messages.delete_groups import DeleteGroupsRequest
from headrace.wire.kafka.messages.describe_groups import DescribeGroupsRequest
from headrace.wire.kafka.messages.heartbeat import HeartbeatRequest
from headrace.wire.kafka.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from headrace.wire.kafka.messages.leave_group import LeaveGroupRequest, MemberIdentity
from headrace.wire.kafka.messages.list_groups import ListGroupsRequest
from headrace.wire.kafka.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from headrace.wire.kafka.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)
from headrace.wire.kafka.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
)
from headrace.wire.kafka.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from headrace.wire.kafka.registry import APIS

RANGES = {api.key: (api.version_min, api.version_max) for api in GROUPS_SERVED}
EDGES = pytest.mark.parametrize("edge", [0, 1], ids=["lowest", "highest"])
SUBSCRIPTION = b"\0\0\0\0\0\1\0\1t\0\0\0\0"


class Asker:
    """A client that asks in the lowest or in the highest version of everything."""

    def __init__(self, client: Client, node: GroupNode, edge: int) -> None:
        self.client = client
        self.edge = edge
        self.topic_id = node.catalog.topics["t"].id

    def version(self, key: int) -> int:
        return RANGES[key][self.edge]

    async def ask(self, key: int, request: Any) -> Any:
        return await self.client.ask(key, self.version(key), request)

    async def join(self, member_id: str = "", **fields: Any) -> Any:
        settings = {
            "group_id": "g",
            "session_timeout_ms": 10_000,
            "rebalance_timeout_ms": 20_000,
            "member_id": member_id,
            "protocol_type": "consumer",
            "protocols": (JoinGroupRequestProtocol("range", SUBSCRIPTION),),
        }
        return await self.ask(11, JoinGroupRequest(**{**settings, **fields}))

    async def enter(self) -> Any:
        """Join as a new member, by whatever number of calls the version asks for."""
        joined = await self.join()
        if self.version(11) >= 4:
            assert joined.error_code == ErrorCode.MEMBER_ID_REQUIRED
            joined = await self.join(joined.member_id)
        return joined

    async def become_stable(self) -> str:
        joined = await self.enter()
        assert (joined.error_code, joined.leader) == (0, joined.member_id)
        request = SyncGroupRequest(
            group_id="g",
            generation_id=joined.generation_id,
            member_id=joined.member_id,
            assignments=(SyncGroupRequestAssignment(joined.member_id, b"mine"),),
        )
        synced = await self.ask(14, request)
        assert (synced.error_code, synced.assignment) == (0, b"mine")
        member_id: str = joined.member_id
        return member_id

    async def commit(self, offset: int, *, member_id: str = "", generation: int = -1, **topic: Any) -> int:
        by_id = self.version(8) >= 10
        named = {"name": "" if by_id else "t", "topic_id": self.topic_id if by_id else UUID(int=0), **topic}
        place = OffsetCommitRequestPartition(0, offset, committed_metadata="note")
        topics = (OffsetCommitRequestTopic(partitions=(place,), **named),)
        answer = await self.ask(8, OffsetCommitRequest("g", generation, member_id, topics=topics))
        code: int = answer.topics[0].partitions[0].error_code
        return code

    async def committed(self, group_id: str = "g", *, everything: bool = False) -> list[tuple[Any, ...]]:
        version = self.version(9)
        if version >= 8:
            topics = (OffsetFetchRequestTopics(topic_id=self.topic_id, partition_indexes=(0,)),)
            group = OffsetFetchRequestGroup(group_id, topics=None if everything else topics)
            (found,) = (await self.ask(9, OffsetFetchRequest(groups=(group,)))).groups
            assert found.error_code == 0
            assert all(topic.topic_id == self.topic_id for topic in found.topics)
        else:
            found = await self.ask(9, OffsetFetchRequest(group_id, (OffsetFetchRequestTopic("t", (0,)),)))
            assert all(topic.name == "t" for topic in found.topics)
        return [
            (one.partition_index, one.committed_offset, one.metadata, one.error_code)
            for topic in found.topics
            for one in topic.partitions
        ]

    async def describe(self, group_id: str = "g") -> Any:
        (group,) = (await self.ask(15, DescribeGroupsRequest((group_id,)))).groups
        return group

    async def leave(self, member_id: str) -> int:
        if self.version(13) < 3:
            answer = await self.ask(13, LeaveGroupRequest("g", member_id))
        else:
            (answer,) = (await self.ask(13, LeaveGroupRequest("g", members=(MemberIdentity(member_id),)))).members
        code: int = answer.error_code
        return code

    async def delete(self) -> int:
        (result,) = (await self.ask(42, DeleteGroupsRequest(("g",)))).results
        code: int = result.error_code
        return code

    async def delete_offset(self) -> tuple[int, int]:
        topics = (OffsetDeleteRequestTopic("t", (OffsetDeleteRequestPartition(0),)),)
        answer = await self.ask(47, OffsetDeleteRequest("g", topics))
        return answer.error_code, answer.topics[0].partitions[0].error_code if answer.topics else 0


@asynccontextmanager
async def asking(edge: int) -> AsyncIterator[Asker]:
    node = await GroupNode().start()
    await node.make()
    async with serving(node.broker, groups=node.groups) as gateway:
        client = await connect(gateway)
        yield Asker(client, node, edge)
        await client.close()
    node.abandon()


@EDGES
def test_a_member_joins_syncs_beats_commits_and_leaves(edge: int) -> None:
    async def main() -> None:
        async with asking(edge) as asker:
            member_id = await asker.become_stable()
            assert (await asker.ask(12, HeartbeatRequest("g", 1, member_id))).error_code == 0
            assert await asker.commit(7, member_id=member_id, generation=1) == 0
            assert await asker.committed() == [(0, 7, "note", 0)]
            described = await asker.describe()
            assert (described.error_code, described.group_state, described.protocol_data) == (0, "Stable", "range")
            (member,) = described.members
            assert (member.member_id, member.client_id, member.client_host) == (member_id, "test", "127.0.0.1")
            assert (member.member_metadata, member.member_assignment) == (SUBSCRIPTION, b"mine")
            (listed,) = (await asker.ask(16, ListGroupsRequest())).groups
            assert (listed.group_id, listed.protocol_type) == ("g", "consumer")
            assert await asker.delete() == ErrorCode.NON_EMPTY_GROUP
            assert await asker.delete_offset() == (0, ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC)
            assert await asker.leave(member_id) == 0
            assert (await asker.describe()).group_state == "Empty"
            assert await asker.delete_offset() == (0, 0)
            assert await asker.committed() == [(0, -1, "", 0)]
            assert await asker.delete() == 0
            assert await asker.delete() == ErrorCode.GROUP_ID_NOT_FOUND

    run(main())


@EDGES
def test_strangers_and_old_generations_are_told_what_they_are(edge: int) -> None:
    async def main() -> None:
        async with asking(edge) as asker:
            member_id = await asker.become_stable()
            for name, generation, code in (
                ("stranger", 1, ErrorCode.UNKNOWN_MEMBER_ID),
                (member_id, 0, ErrorCode.ILLEGAL_GENERATION),
            ):
                assert (await asker.ask(12, HeartbeatRequest("g", generation, name))).error_code == code
                assert (await asker.ask(14, SyncGroupRequest("g", generation, name))).error_code == code
                assert await asker.commit(1, member_id=name, generation=generation) == code
            assert await asker.commit(1) == ErrorCode.UNKNOWN_MEMBER_ID
            assert (await asker.join("stranger")).error_code == ErrorCode.UNKNOWN_MEMBER_ID
            assert await asker.leave("stranger") == ErrorCode.UNKNOWN_MEMBER_ID

    run(main())


@EDGES
def test_joins_that_cannot_be_are_refused(edge: int) -> None:
    async def main() -> None:
        async with asking(edge) as asker:
            assert (await asker.join(group_id="")).error_code == ErrorCode.INVALID_GROUP_ID
            assert (await asker.join(session_timeout_ms=1)).error_code == ErrorCode.INVALID_SESSION_TIMEOUT
            assert (await asker.join(protocols=())).error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL

    run(main())


@EDGES
def test_a_group_that_nobody_knows_has_no_offsets_and_no_error(edge: int) -> None:
    async def main() -> None:
        async with asking(edge) as asker:
            assert await asker.committed("unknown") == [(0, -1, "", 0)]
            described = await asker.describe("unknown")
            assert described.group_state == "Dead"
            assert described.error_code == (ErrorCode.GROUP_ID_NOT_FOUND if edge else 0)
            assert await asker.delete() == ErrorCode.GROUP_ID_NOT_FOUND
            assert await asker.delete_offset() == (ErrorCode.GROUP_ID_NOT_FOUND, 0)
            assert (await asker.ask(16, ListGroupsRequest())).groups == ()

    run(main())


def test_all_offsets_of_a_group_are_asked_for_at_once() -> None:
    async def main() -> None:
        async with asking(1) as asker:
            await asker.commit(4)
            assert await asker.committed(everything=True) == [(0, 4, "note", 0)]
            everything = await asker.client.ask(9, 7, OffsetFetchRequest("g", None))
            assert [topic.name for topic in everything.topics] == ["t"]
            refused = await asker.client.ask(9, 7, OffsetFetchRequest("", None))
            assert refused.error_code == ErrorCode.INVALID_GROUP_ID

    run(main())


@EDGES
def test_offsets_of_topics_that_do_not_exist_are_refused_one_by_one(edge: int) -> None:
    async def main() -> None:
        async with asking(edge) as asker:
            by_id = {"topic_id": UUID(int=5)} if edge else {"name": "missing"}
            expected = ErrorCode.UNKNOWN_TOPIC_ID if edge else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            assert await asker.commit(1, **by_id) == expected

    run(main())


def test_groups_are_listed_by_state_and_type() -> None:
    async def main() -> None:
        async with asking(1) as asker:
            await asker.become_stable()

            async def listed(**filters: Any) -> list[tuple[str, str]]:
                answer = await asker.ask(16, ListGroupsRequest(**filters))
                return [(group.group_state, group.group_type) for group in answer.groups]

            assert await listed() == [("Stable", "classic")]
            assert await listed(states_filter=("stable",), types_filter=("Classic",)) == [("Stable", "classic")]
            assert await listed(states_filter=("Empty",)) == []
            assert await listed(types_filter=("share",)) == []

    run(main())


def test_a_static_member_is_fenced_by_the_one_that_takes_its_place() -> None:
    async def main() -> None:
        async with asking(1) as asker:
            first = await asker.join(group_instance_id="i")
            assert first.error_code == 0
            shares = (SyncGroupRequestAssignment(first.member_id, b"mine"),)
            await asker.ask(14, SyncGroupRequest("g", 1, first.member_id, "i", assignments=shares))
            second = await asker.join(group_instance_id="i")
            assert (second.error_code, second.generation_id, second.skip_assignment) == (0, 1, True)
            assert second.member_id != first.member_id
            beat = await asker.ask(12, HeartbeatRequest("g", 1, first.member_id, "i"))
            assert beat.error_code == ErrorCode.FENCED_INSTANCE_ID
            gone = await asker.ask(13, LeaveGroupRequest("g", members=(MemberIdentity("", "i"),)))
            assert gone.members[0].error_code == 0

    run(main())


REQUESTS: dict[int, Any] = {
    8: OffsetCommitRequest("g", topics=(OffsetCommitRequestTopic("t", partitions=()),)),
    9: OffsetFetchRequest("g", (), (OffsetFetchRequestGroup("g"),)),
    11: JoinGroupRequest("g", session_timeout_ms=1),
    12: HeartbeatRequest("g"),
    13: LeaveGroupRequest("g"),
    14: SyncGroupRequest("g"),
    15: DescribeGroupsRequest(("g",)),
    16: ListGroupsRequest(),
    42: DeleteGroupsRequest(("g",)),
    47: OffsetDeleteRequest("g"),
}
# Those of the classic protocol and of offsets; the other kinds of group have tests of their own.
CLASSIC = [api for api in GROUPS_SERVED if api.key in REQUESTS]


@pytest.mark.parametrize("api", CLASSIC, ids=[APIS[api.key].name for api in CLASSIC])
def test_an_api_of_groups_answers_every_version_that_it_advertises(api: Any) -> None:
    async def main() -> None:
        async with asking(0) as asker:
            for version in range(api.version_min, api.version_max + 1):
                request = REQUESTS[api.key]
                if api.key == 9:
                    request = OffsetFetchRequest("g") if version < 8 else OffsetFetchRequest(groups=request.groups)
                await asker.client.ask(api.key, version, request)

    run(main())
