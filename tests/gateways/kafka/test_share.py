"""The APIs of share groups, each at its lowest and highest version, over a real connection and a simulated node."""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any
from uuid import UUID

import pytest
from tests.broker.group.share_world import NAME, ShareNode, records_in
from tests.gateways.kafka.harness import Client, connect, run, serving

from headrace.broker.group.share_port import Holder
from headrace.gateways.kafka.errors import ErrorCode, RefusedError
from headrace.gateways.kafka.gateway import SHARES_SERVED
from headrace.gateways.kafka.share_session import Member, ShareSessions
from headrace.model.ids import PartitionId
from headrace.testing.clock import SimulatedClock, settle
from headrace.wire.kafka.messages import (
    alter_configs,
    describe_configs,
    list_config_resources,
    share_acknowledge,
    share_fetch,
)
from headrace.wire.kafka.messages import alter_share_group_offsets as alter_offsets
from headrace.wire.kafka.messages import delete_share_group_offsets as delete_offsets
from headrace.wire.kafka.messages import describe_share_group_offsets as describe_offsets
from headrace.wire.kafka.messages import incremental_alter_configs as incremental
from headrace.wire.kafka.messages.share_acknowledge import ShareAcknowledgeRequest
from headrace.wire.kafka.messages.share_fetch import ShareFetchRequest
from headrace.wire.kafka.messages.share_group_describe import ShareGroupDescribeRequest
from headrace.wire.kafka.messages.share_group_heartbeat import ShareGroupHeartbeatRequest

RANGES = {api.key: (api.version_min, api.version_max) for api in SHARES_SERVED}
EDGES = pytest.mark.parametrize("edge", [0, 1], ids=["lowest", "highest"])
ACCEPT, RELEASE, REJECT, RENEW = 1, 2, 3, 4
GROUP, SOURCE_DEFAULT, SOURCE_GROUP = 32, 5, 8

Acks = tuple[int, int, tuple[int, ...]]


class Asker:
    """A share consumer that asks in the lowest or in the highest version of everything."""

    def __init__(self, client: Client, node: ShareNode, edge: int) -> None:
        self.client = client
        self.node = node
        self.edge = edge
        self.topic_id = node.catalog.topics[NAME].id

    async def ask(self, key: int, request: Any) -> Any:
        return await self.client.ask(key, RANGES[key][self.edge], request)

    async def heartbeat(self, epoch: int, *topics: str, member_id: str = "m", group_id: str = "g") -> Any:
        return await self.ask(76, ShareGroupHeartbeatRequest(group_id, member_id, epoch, None, topics or None))

    async def fetch(
        self, epoch: int, *acks: Acks, partitions: Sequence[int] | None = None, member_id: str = "m", **fields: Any
    ) -> Any:
        """Partitions that are not named are as before, and partition 0 where something is acknowledged."""
        if partitions is None:
            partitions = (0,) if epoch == 0 or acks else ()
        batches = tuple(share_fetch.AcknowledgementBatch(*ack) for ack in acks)
        wanted = tuple(share_fetch.FetchPartition(index, batches) for index in partitions)
        settings = {"max_wait_ms": 0, "min_bytes": 1, "max_bytes": 1 << 20, "max_records": 100, "batch_size": 100}
        request = ShareFetchRequest(
            group_id="g",
            member_id=member_id,
            share_session_epoch=epoch,
            topics=(share_fetch.FetchTopic(self.topic_id, wanted),) if wanted else (),
            **{**settings, **fields},
        )
        return await self.ask(78, request)

    async def acknowledge(self, epoch: int, *acks: Acks, member_id: str = "m", **fields: Any) -> Any:
        batches = tuple(share_acknowledge.AcknowledgementBatch(*ack) for ack in acks)
        topic = share_acknowledge.AcknowledgeTopic(self.topic_id, (share_acknowledge.AcknowledgePartition(0, batches),))
        return await self.ask(79, ShareAcknowledgeRequest("g", member_id, epoch, topics=(topic,), **fields))


def only_partition(answer: Any) -> Any:
    assert answer.error_code == 0, answer.error_message
    (topic,) = answer.responses
    (partition,) = topic.partitions
    return partition


def held(answer: Any) -> list[tuple[int, int, int]]:
    return [(one.first_offset, one.last_offset, one.delivery_count) for one in only_partition(answer).acquired_records]


@asynccontextmanager
async def asking(edge: int, *, partitions: int = 1, **config: Any) -> AsyncIterator[Asker]:
    node = await ShareNode().start()
    await node.make_queue(partitions=partitions, **config)
    async with serving(node.broker, groups=node.groups, shares=node.shares, clock=node.clock) as gateway:
        client = await connect(gateway)
        yield Asker(client, node, edge)
        await client.close()
    node.abandon()


@EDGES
def test_a_member_joins_is_described_and_leaves(edge: int) -> None:
    async def main() -> None:
        async with asking(edge, partitions=3) as asker:
            joined = await asker.heartbeat(0, NAME)
            assert (joined.error_code, joined.member_id, joined.heartbeat_interval_ms) == (0, "m", 5000)
            (topic,) = joined.assignment.topic_partitions
            assert (topic.topic_id, topic.partitions) == (asker.topic_id, (0, 1, 2))
            again = await asker.heartbeat(joined.member_epoch)
            assert (again.error_code, again.member_epoch, again.assignment) == (0, joined.member_epoch, None)

            known, unknown = (await asker.ask(77, ShareGroupDescribeRequest(("g", "h")))).groups
            assert (known.error_code, known.group_state, known.assignor_name) == (0, "Stable", "simple")
            (member,) = known.members
            assert (member.member_id, member.client_id, member.subscribed_topic_names) == ("m", "test", (NAME,))
            assert member.assignment.topic_partitions[0].partitions == (0, 1, 2)
            assert unknown.error_code == ErrorCode.GROUP_ID_NOT_FOUND

            left = await asker.heartbeat(-1)
            assert (left.error_code, left.member_epoch) == (0, -1)
            (empty,) = (await asker.ask(77, ShareGroupDescribeRequest(("g",)))).groups
            assert (empty.group_state, empty.members) == ("Empty", ())

    run(main())


@EDGES
def test_heartbeats_that_make_no_sense_are_refused(edge: int) -> None:
    async def main() -> None:
        async with asking(edge) as asker:
            await asker.node.make("plain")
            joined = await asker.heartbeat(0, NAME)
            for answer, code in [
                (await asker.heartbeat(7, member_id="stranger"), ErrorCode.UNKNOWN_MEMBER_ID),
                (await asker.heartbeat(joined.member_epoch + 1), ErrorCode.FENCED_MEMBER_EPOCH),
                (await asker.heartbeat(-2), ErrorCode.INVALID_REQUEST),
                (await asker.heartbeat(0, member_id="n"), ErrorCode.INVALID_REQUEST),
                (await asker.heartbeat(0, NAME, member_id=""), ErrorCode.INVALID_REQUEST),
                (await asker.heartbeat(0, NAME, group_id=""), ErrorCode.INVALID_GROUP_ID),
                (await asker.heartbeat(0, "plain", member_id="n"), ErrorCode.INVALID_REQUEST),
            ]:
                assert answer.error_code == code
                assert answer.error_message

    run(main())


@EDGES
def test_messages_are_leased_and_accepted_with_the_next_fetch(edge: int) -> None:
    async def main() -> None:
        async with asking(edge, lease_ms=7000) as asker:
            await asker.node.send(b"a", b"b", b"c")
            first = await asker.fetch(0, max_records=2)
            assert first.acquisition_lock_timeout_ms == 7000
            ((begin, end, count),) = held(first)
            assert (end - begin, count) == (1, 1)
            records = records_in([only_partition(first).records])
            assert [record.value for record in records if begin <= record.offset <= end] == [b"a", b"b"]
            second = await asker.fetch(1, (begin, end, (ACCEPT,)))
            assert only_partition(second).acknowledge_error_code == 0
            assert held(second) == [(end + 1, end + 1, 1)]
            assert asker.node.counts().acknowledged == 2
            assert (await asker.fetch(2)).responses == ()

    run(main())


@EDGES
def test_messages_are_accepted_released_and_rejected_one_by_one(edge: int) -> None:
    async def main() -> None:
        async with asking(edge, dead_letter="dead") as asker:
            await asker.node.send(b"a", b"b", b"c")
            ((begin, end, _),) = held(await asker.fetch(0))
            answer = await asker.acknowledge(1, (begin, end, (ACCEPT, RELEASE, REJECT)))
            assert only_partition(answer).error_code == 0
            assert held(await asker.fetch(2)) == [(begin + 1, begin + 1, 2)]
            await settle()  # it is moved behind the answer
            (dead,) = await asker.node.receive(name="dead")
            assert dead.body == b"c"

    run(main())


@EDGES
def test_what_is_not_held_cannot_be_acknowledged(edge: int) -> None:
    async def main() -> None:
        async with asking(edge) as asker:
            await asker.node.send(b"a")
            ((begin, end, _),) = held(await asker.fetch(0))
            assert held(await asker.fetch(0, member_id="other")) == []
            stolen = await asker.acknowledge(1, (begin, end, (ACCEPT,)), member_id="other")
            assert only_partition(stolen).error_code == ErrorCode.INVALID_RECORD_STATE
            stolen = await asker.fetch(2, (begin, end, (ACCEPT,)), member_id="other")
            assert only_partition(stolen).acknowledge_error_code == ErrorCode.INVALID_RECORD_STATE
            assert only_partition(stolen).error_code == 0
            wrong = await asker.acknowledge(1, (begin, end, (ACCEPT, ACCEPT)))
            assert only_partition(wrong).error_code == ErrorCode.INVALID_REQUEST
            assert asker.node.counts().leased == 1

    run(main())


@EDGES
def test_a_session_counts_its_requests(edge: int) -> None:
    async def main() -> None:
        async with asking(edge) as asker:
            ack = (0, 0, (ACCEPT,))
            assert (await asker.fetch(1)).error_code == ErrorCode.SHARE_SESSION_NOT_FOUND
            assert (await asker.fetch(-1)).error_code == ErrorCode.SHARE_SESSION_NOT_FOUND
            assert (await asker.acknowledge(1, ack)).error_code == ErrorCode.SHARE_SESSION_NOT_FOUND
            assert (await asker.fetch(0, ack)).error_code == ErrorCode.INVALID_REQUEST
            assert (await asker.fetch(0, member_id="")).error_code == ErrorCode.INVALID_REQUEST
            assert (await asker.fetch(0)).error_code == 0
            assert (await asker.fetch(2)).error_code == ErrorCode.INVALID_SHARE_SESSION_EPOCH
            assert (await asker.acknowledge(0, ack)).error_code == ErrorCode.INVALID_SHARE_SESSION_EPOCH
            assert (await asker.acknowledge(1, ack)).error_code == 0
            assert (await asker.fetch(1)).error_code == ErrorCode.INVALID_SHARE_SESSION_EPOCH
            assert (await asker.fetch(2)).error_code == 0

    run(main())


@EDGES
@pytest.mark.parametrize("by_fetch", [True, False], ids=["fetch", "acknowledge"])
def test_a_closed_session_gives_back_what_was_not_acknowledged_with_its_end(edge: int, by_fetch: bool) -> None:
    async def main() -> None:
        async with asking(edge) as asker:
            await asker.node.send(b"a", b"b")
            ((begin, end, _),) = held(await asker.fetch(0))
            ack = (begin, begin, (ACCEPT,))
            closed = await (asker.fetch(-1, ack) if by_fetch else asker.acknowledge(-1, ack))
            partition = only_partition(closed)
            assert (partition.acknowledge_error_code if by_fetch else partition.error_code) == 0
            assert held(await asker.fetch(0, member_id="other")) == [(end, end, 2)]
            assert (await asker.fetch(1)).error_code == ErrorCode.SHARE_SESSION_NOT_FOUND

    run(main())


@EDGES
def test_a_session_that_is_opened_anew_still_holds_what_it_held(edge: int) -> None:
    async def main() -> None:
        async with asking(edge) as asker:
            await asker.node.send(b"a")
            ((begin, end, _),) = held(await asker.fetch(0))
            assert held(await asker.fetch(0)) == []
            assert only_partition(await asker.acknowledge(1, (begin, end, (ACCEPT,)))).error_code == 0

    run(main())


@EDGES
def test_a_forgotten_partition_is_fetched_no_more(edge: int) -> None:
    async def main() -> None:
        async with asking(edge) as asker:
            await asker.fetch(0)
            await asker.node.send(b"a")
            forgotten = (share_fetch.ForgottenTopic(asker.topic_id, (0,)),)
            assert (await asker.fetch(1, forgotten_topics_data=forgotten)).responses == ()
            assert len(held(await asker.fetch(2, partitions=[0]))) == 1

    run(main())


@EDGES
def test_partitions_that_cannot_be_fetched_say_why(edge: int) -> None:
    async def main() -> None:
        async with asking(edge) as asker:
            assert only_partition(await asker.fetch(0, partitions=[9])).error_code == (
                ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            )
            asker.topic_id = asker.node.rand.uuid()
            assert only_partition(await asker.fetch(0)).error_code == ErrorCode.UNKNOWN_TOPIC_ID
            asker.topic_id = (await asker.node.make("plain")).id.topic_id
            plain = only_partition(await asker.fetch(0, max_wait_ms=1000))
            assert plain.error_code == ErrorCode.INVALID_REQUEST
            assert "not a queue" in plain.error_message

    run(main())


@EDGES
def test_no_records_are_handed_out_where_none_are_asked_for(edge: int) -> None:
    async def main() -> None:
        async with asking(edge) as asker:
            await asker.node.send(b"a")
            partition = only_partition(await asker.fetch(0, max_records=0, max_wait_ms=60_000))
            assert (partition.records, partition.acquired_records) == (b"", ())
            assert asker.node.counts().leased == 0

    run(main())


def test_a_lease_is_renewed_where_the_request_announces_it() -> None:
    async def main() -> None:
        async with asking(1, lease_ms=1000) as asker:
            await asker.node.send(b"a", b"b")
            ((begin, end, _),) = held(await asker.fetch(0))
            renew = (begin, end, (RENEW,))
            assert (await asker.acknowledge(1, renew)).error_code == ErrorCode.INVALID_REQUEST
            await asker.node.clock.elapse(900)
            renewed = await asker.acknowledge(1, renew, is_renew_ack=True)
            assert (only_partition(renewed).error_code, renewed.acquisition_lock_timeout_ms) == (0, 1000)
            await asker.node.clock.elapse(900)
            await asker.node.send(b"c")
            both = await asker.fetch(2, (begin, end, (RENEW, ACCEPT)), is_renew_ack=True, max_wait_ms=60_000)
            assert (only_partition(both).acknowledge_error_code, held(both)) == (0, [])
            assert only_partition(await asker.acknowledge(3, (begin, begin, (ACCEPT,)))).error_code == 0
            assert asker.node.counts().acknowledged == 2

    run(main())


def test_the_member_that_was_silent_for_longest_goes_when_there_are_too_many() -> None:
    clock, gone = SimulatedClock(), list[Holder]()
    sessions = ShareSessions(gone.append, clock, count_max=2)
    place = PartitionId(UUID(int=1), 0)
    first = sessions.open(Member("g", "first"), [place])
    second = sessions.open(Member("g", "second"), [place])
    with pytest.raises(RefusedError) as refused:
        sessions.open(Member("g", "third"), [place])
    assert refused.value.code is ErrorCode.SHARE_SESSION_LIMIT_REACHED
    clock.advance(60_000)
    assert sessions.go_on(Member("g", "first"), 1) is first
    sessions.open(Member("g", "third"), [place])
    assert (gone, len(sessions)) == ([second.holder], 2)


def altered(key: int, **settings: str | None) -> Any:
    """A request that changes settings of group `g`, in either form."""
    pairs = [(name.replace("_", "."), value) for name, value in settings.items()]
    if key == 33:
        configs = tuple(alter_configs.AlterableConfig(name, value) for name, value in pairs)
        return alter_configs.AlterConfigsRequest((alter_configs.AlterConfigsResource(GROUP, "g", configs),))
    changes = tuple(incremental.AlterableConfig(name, 1 if value is None else 0, value) for name, value in pairs)
    resource = incremental.AlterConfigsResource(GROUP, "g", changes)
    return incremental.IncrementalAlterConfigsRequest((resource,))


@pytest.mark.parametrize("key", [33, 44])
def test_settings_of_a_group_are_altered_described_and_taken_back(key: int) -> None:
    async def main() -> None:
        async with asking(1) as asker:

            async def alter(**settings: str | None) -> int:
                (response,) = (await asker.client.ask(key, 1, altered(key, **settings))).responses
                assert (response.resource_type, response.resource_name) == (GROUP, "g")
                return int(response.error_code)

            async def described(name: str = "share.record.lock.duration.ms") -> tuple[str, int, bool]:
                resource = describe_configs.DescribeConfigsResource(GROUP, "g", (name,))
                request = describe_configs.DescribeConfigsRequest((resource,), include_synonyms=True)
                (result,) = (await asker.client.ask(32, 4, request)).results
                assert (result.error_code, result.error_message) == (0, None)
                (config,) = result.configs
                assert config.synonyms[-1].source == SOURCE_DEFAULT
                return config.value, config.config_source, config.read_only

            assert await described() == ("30000", SOURCE_DEFAULT, False)
            assert await described("share.auto.offset.reset") == ("earliest", SOURCE_DEFAULT, False)
            assert await alter(share_record_lock_duration_ms="2000") == 0
            assert await described() == ("2000", SOURCE_GROUP, False)
            assert await alter(share_auto_offset_reset="earliest") == 0
            listed = list_config_resources.ListConfigResourcesRequest((GROUP,))
            (resource,) = (await asker.client.ask(74, 1, listed)).config_resources
            assert (resource.resource_name, resource.resource_type) == ("g", GROUP)
            assert await alter(share_auto_offset_reset="latest") == ErrorCode.INVALID_CONFIG
            assert await alter(share_nothing="1") == ErrorCode.INVALID_CONFIG
            if key == 44:
                assert await described() == ("2000", SOURCE_GROUP, False)
                assert await alter(share_record_lock_duration_ms=None) == 0
            assert await described() == ("30000", SOURCE_DEFAULT, False)
            assert await described("share.auto.offset.reset") == ("earliest", SOURCE_GROUP, False)

    run(main())


def test_settings_without_a_groups_name_are_refused() -> None:
    async def main() -> None:
        async with asking(1) as asker:
            resource = describe_configs.DescribeConfigsResource(GROUP, "", None)
            request = describe_configs.DescribeConfigsRequest((resource,))
            (result,) = (await asker.client.ask(32, 4, request)).results
            assert result.error_code == ErrorCode.INVALID_GROUP_ID

    run(main())


@EDGES
def test_offsets_of_a_group_are_described_altered_and_deleted(edge: int) -> None:
    async def main() -> None:
        async with asking(edge, partitions=2) as asker:

            async def starts(*topics: tuple[str, tuple[int, ...]], group_id: str = "g") -> Any:
                wanted = tuple(describe_offsets.DescribeShareGroupOffsetsRequestTopic(*topic) for topic in topics)
                group = describe_offsets.DescribeShareGroupOffsetsRequestGroup(group_id, wanted or None)
                (found,) = (await asker.ask(90, describe_offsets.DescribeShareGroupOffsetsRequest((group,)))).groups
                return found

            async def alter(partition: int, offset: int) -> Any:
                wanted = alter_offsets.AlterShareGroupOffsetsRequestPartition(partition, offset)
                topic = alter_offsets.AlterShareGroupOffsetsRequestTopic(NAME, (wanted,))
                return await asker.ask(91, alter_offsets.AlterShareGroupOffsetsRequest("g", (topic,)))

            delete = delete_offsets.DeleteShareGroupOffsetsRequest(
                "g", (delete_offsets.DeleteShareGroupOffsetsRequestTopic(NAME),)
            )
            assert (await starts()).error_code == ErrorCode.GROUP_ID_NOT_FOUND
            assert (await alter(0, 0)).error_code == ErrorCode.GROUP_ID_NOT_FOUND
            await asker.heartbeat(0, NAME)
            assert (await alter(0, 0)).error_code == ErrorCode.NON_EMPTY_GROUP
            assert (await asker.ask(92, delete)).error_code == ErrorCode.NON_EMPTY_GROUP
            await asker.heartbeat(-1)

            (topic,) = (await starts()).topics
            assert (topic.topic_name, topic.topic_id) == (NAME, asker.topic_id)
            assert [(one.partition_index, one.lag, one.error_code) for one in topic.partitions] == [
                (0, 0 if edge else -1, 0),
                (1, 0 if edge else -1, 0),
            ]
            ((missing,),) = [topic.partitions for topic in (await starts(("missing", (0,)))).topics]
            assert (missing.start_offset, missing.error_code) == (-1, 0)

            (changed,) = (await alter(0, topic.partitions[0].start_offset)).responses
            assert (changed.topic_name, changed.topic_id) == (NAME, asker.topic_id)
            assert changed.partitions[0].error_code == 0
            (refused,) = (await alter(0, 1000)).responses
            assert refused.partitions[0].error_code == ErrorCode.OFFSET_OUT_OF_RANGE
            assert refused.partitions[0].error_message

            (gone,) = (await asker.ask(92, delete)).responses
            assert (gone.topic_name, gone.topic_id, gone.error_code) == (NAME, asker.topic_id, 0)
            assert (await starts()).topics == ()

    run(main())
