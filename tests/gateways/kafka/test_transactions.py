"""The APIs of transactions, each at its lowest and highest version, over a real connection and a simulated node."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any
from uuid import UUID

import pytest
from tests.broker.transaction.world import World, batch
from tests.gateways.kafka.harness import Client, connect, run, serving

from headrace.folds.transaction.fold import Producer
from headrace.gateways.kafka.apis import fetch_1, init_producer_id_22, list_offsets_2, produce_0
from headrace.gateways.kafka.errors import ErrorCode
from headrace.gateways.kafka.gateway import TRANSACTIONS_SERVED
from headrace.wire.kafka.messages.add_offsets_to_txn import AddOffsetsToTxnRequest
from headrace.wire.kafka.messages.add_partitions_to_txn import AddPartitionsToTxnRequest, AddPartitionsToTxnTopic
from headrace.wire.kafka.messages.api_versions import ApiVersionsRequest
from headrace.wire.kafka.messages.describe_producers import DescribeProducersRequest, TopicRequest
from headrace.wire.kafka.messages.describe_transactions import DescribeTransactionsRequest
from headrace.wire.kafka.messages.end_txn import EndTxnRequest
from headrace.wire.kafka.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from headrace.wire.kafka.messages.init_producer_id import InitProducerIdRequest
from headrace.wire.kafka.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from headrace.wire.kafka.messages.list_transactions import ListTransactionsRequest
from headrace.wire.kafka.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from headrace.wire.kafka.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)

APIS = (*TRANSACTIONS_SERVED, init_producer_id_22.API, produce_0.API, fetch_1.API, list_offsets_2.API)
RANGES = {api.key: (api.version_min, api.version_max) for api in APIS}
EDGES = pytest.mark.parametrize("edge", [0, 1], ids=["lowest", "highest"])
READ_COMMITTED = 1


class Asker:
    """A transactional producer that asks in the lowest or in the highest version of everything."""

    def __init__(self, client: Client, world: World, edge: int) -> None:
        self.client = client
        self.edge = edge
        self.world = world
        self.topic_id = world.catalog.topics["t"].id
        self.producer = Producer("tx", -1, -1)
        self.sequence = 0

    def version(self, key: int) -> int:
        return RANGES[key][self.edge]

    async def ask(self, key: int, request: Any, *, version: int | None = None) -> Any:
        return await self.client.ask(key, self.version(key) if version is None else version, request)

    async def begin(self) -> Producer:
        answer = await self.ask(22, InitProducerIdRequest("tx", 60_000))
        assert answer.error_code == 0
        self.producer = Producer("tx", answer.producer_id, answer.producer_epoch)
        self.sequence = 0
        return self.producer

    async def add_partition(self, topic: str = "t", index: int = 0) -> int:
        request = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id="tx",
            v3_and_below_producer_id=self.producer.producer_id,
            v3_and_below_producer_epoch=self.producer.epoch,
            v3_and_below_topics=(AddPartitionsToTxnTopic(topic, (index,)),),
        )
        (found,) = (await self.ask(24, request)).results_by_topic_v3_and_below
        code: int = found.results_by_partition[0].partition_error_code
        return code

    async def send(self, value: bytes, *, producer: Producer | None = None, version: int | None = None) -> int:
        version = self.version(0) if version is None else version
        records = bytes(batch(producer or self.producer, value, sequence=self.sequence))
        by_id = version >= 13
        name, topic_id = ("", self.topic_id) if by_id else ("t", UUID(int=0))
        data = (TopicProduceData(name, topic_id, (PartitionProduceData(0, records),)),)
        answer = await self.ask(0, ProduceRequest("tx", -1, 5000, data), version=version)
        code: int = answer.responses[0].partition_responses[0].error_code
        if code == 0:
            self.sequence += 1
        return code

    async def end(self, *, is_commit: bool) -> int:
        _, producer_id, epoch = self.producer
        answer = await self.ask(26, EndTxnRequest("tx", producer_id, epoch, is_commit))
        if self.version(26) >= 5 and answer.error_code == 0:
            self.producer = Producer("tx", answer.producer_id, answer.producer_epoch)
            self.sequence = 0
        code: int = answer.error_code
        return code

    async def commit_offset(self, offset: int, *, member_id: str = "", generation: int = -1) -> int:
        topics = (TxnOffsetCommitRequestTopic("t", (TxnOffsetCommitRequestPartition(0, offset),)),)
        _, producer_id, epoch = self.producer
        request = TxnOffsetCommitRequest("tx", "g", producer_id, epoch, topics=topics)
        if self.version(28) >= 3:
            request = TxnOffsetCommitRequest("tx", "g", producer_id, epoch, generation, member_id, None, topics)
        code: int = (await self.ask(28, request)).topics[0].partitions[0].error_code
        return code

    async def fetch(self, *, isolation: int) -> Any:
        by_id = self.version(1) >= 13
        name, topic_id = ("", self.topic_id) if by_id else ("t", UUID(int=0))
        wanted = FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1 << 20)
        request = FetchRequest(
            replica_id=-1,
            max_bytes=1 << 20,
            isolation_level=isolation,
            topics=(FetchTopic(name, topic_id, (wanted,)),),
        )
        return (await self.ask(1, request)).responses[0].partitions[0]

    async def latest(self, *, isolation: int) -> int:
        wanted = (ListOffsetsTopic("t", (ListOffsetsPartition(0, -1, -1),)),)
        version = max(self.version(2), 2)  # the first one that has an isolation level
        answer = await self.ask(2, ListOffsetsRequest(-1, isolation, wanted), version=version)
        offset: int = answer.topics[0].partitions[0].offset
        return offset


@asynccontextmanager
async def asking(edge: int) -> AsyncIterator[Asker]:
    world = await World().start()
    await world.make("t")
    async with serving(world.broker, groups=world.groups, transactions=world.coordinator) as gateway:
        client = await connect(gateway)
        yield Asker(client, world, edge)
        await client.close()
    world.abandon()


@EDGES
def test_a_transaction_is_committed_with_its_offsets_and_another_is_aborted(edge: int) -> None:
    async def main() -> None:
        async with asking(edge) as asker:
            await asker.begin()
            for offset, is_commit in ((3, True), (7, False)):
                assert await asker.add_partition() == 0
                assert await asker.send(b"%d" % offset) == 0
                _, producer_id, epoch = asker.producer
                added = await asker.ask(25, AddOffsetsToTxnRequest("tx", producer_id, epoch, "g"))
                assert added.error_code == 0
                assert await asker.commit_offset(offset) == 0
                assert await asker.end(is_commit=is_commit) == 0
            assert await asker.world.committed() == [b"3"]
            assert await asker.world.values() == [b"3", b"7"]

    run(main())


@EDGES
def test_readers_are_told_how_far_all_is_decided_and_what_was_aborted(edge: int) -> None:
    async def main() -> None:
        async with asking(edge) as asker:
            await asker.begin()
            await asker.add_partition()
            await asker.send(b"aborted")
            await asker.end(is_commit=False)
            aborted_by = asker.producer.producer_id
            await asker.add_partition()
            await asker.send(b"open")
            committed = await asker.fetch(isolation=READ_COMMITTED)
            assert (committed.high_watermark, committed.last_stable_offset) == (3, 2)
            assert [(one.producer_id, one.first_offset) for one in committed.aborted_transactions] == [(aborted_by, 0)]
            everything = await asker.fetch(isolation=0)
            assert (everything.high_watermark, everything.last_stable_offset) == (3, 2)
            assert everything.aborted_transactions == ()
            assert await asker.latest(isolation=READ_COMMITTED) == 2
            assert await asker.latest(isolation=0) == 3

    run(main())


@EDGES
def test_a_fenced_producer_is_told_so_in_the_words_of_its_version(edge: int) -> None:
    async def main() -> None:
        async with asking(edge) as asker:
            old = await asker.begin()
            await asker.add_partition()
            assert await asker.send(b"old") == 0
            await asker.begin()
            fenced = ErrorCode.INVALID_PRODUCER_EPOCH if edge == 0 else ErrorCode.PRODUCER_FENCED
            asker.producer = old
            assert await asker.add_partition() == fenced
            assert await asker.end(is_commit=True) == fenced
            added = await asker.ask(25, AddOffsetsToTxnRequest("tx", old.producer_id, old.epoch, "g"))
            assert added.error_code == fenced
            assert await asker.commit_offset(1) == ErrorCode.INVALID_PRODUCER_EPOCH
            assert await asker.send(b"late") == ErrorCode.INVALID_PRODUCER_EPOCH
            assert await asker.world.committed() == []

    run(main())


def test_a_producer_that_says_what_it_has_and_is_not_the_last_is_fenced() -> None:
    async def main() -> None:
        async with asking(1) as asker:
            old = await asker.begin()
            await asker.begin()
            request = InitProducerIdRequest("tx", 60_000, old.producer_id, old.epoch)
            assert (await asker.ask(22, request)).error_code == ErrorCode.PRODUCER_FENCED
            assert (await asker.ask(22, request, version=3)).error_code == ErrorCode.INVALID_PRODUCER_EPOCH

    run(main())


def test_a_partition_joins_by_being_sent_to_from_version_12_and_not_before() -> None:
    async def main() -> None:
        async with asking(1) as asker:
            await asker.begin()
            assert await asker.send(b"x", version=11) == ErrorCode.INVALID_TXN_STATE
            assert await asker.send(b"x", version=12) == 0
            assert await asker.end(is_commit=True) == 0
            assert await asker.world.committed() == [b"x"]

    run(main())


def test_a_group_joins_by_its_offsets_from_version_5_and_not_before() -> None:
    async def main() -> None:
        async with asking(0) as asker:
            await asker.begin()
            await asker.add_partition()
            assert await asker.commit_offset(3) == ErrorCode.INVALID_TXN_STATE
        async with asking(1) as asker:
            await asker.begin()
            assert await asker.commit_offset(3) == 0
            assert await asker.end(is_commit=True) == 0

    run(main())


def test_a_consumer_that_lost_its_place_cannot_commit_in_a_transaction() -> None:
    """Failure row 31: generation and member are checked in the commit itself."""

    async def main() -> None:
        async with asking(1) as asker:
            await asker.begin()
            assert await asker.commit_offset(3, member_id="zombie", generation=4) in (
                ErrorCode.UNKNOWN_MEMBER_ID,
                ErrorCode.ILLEGAL_GENERATION,
            )

    run(main())


def test_transactional_batches_without_a_transactional_id_are_refused() -> None:
    async def main() -> None:
        async with asking(1) as asker:
            producer = await asker.begin()
            records = bytes(batch(producer, b"x", sequence=0))
            data = (TopicProduceData("t", UUID(int=0), (PartitionProduceData(0, records),)),)
            answer = await asker.ask(0, ProduceRequest(None, -1, 5000, data), version=9)
            assert answer.responses[0].partition_responses[0].error_code == ErrorCode.INVALID_TXN_STATE

    run(main())


@EDGES
def test_partitions_join_together_or_not_at_all(edge: int) -> None:
    async def main() -> None:
        async with asking(edge) as asker:
            producer = await asker.begin()
            topics = (AddPartitionsToTxnTopic("t", (0,)), AddPartitionsToTxnTopic("missing", (0,)))
            answer = await asker.ask(
                24,
                AddPartitionsToTxnRequest(
                    v3_and_below_transactional_id="tx",
                    v3_and_below_producer_id=producer.producer_id,
                    v3_and_below_producer_epoch=producer.epoch,
                    v3_and_below_topics=topics,
                ),
            )
            codes = {
                topic.name: [one.partition_error_code for one in topic.results_by_partition]
                for topic in answer.results_by_topic_v3_and_below
            }
            assert codes == {
                "t": [ErrorCode.OPERATION_NOT_ATTEMPTED],
                "missing": [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION],
            }
            assert await asker.add_partition("__transaction_state") == ErrorCode.INVALID_TOPIC_EXCEPTION

    run(main())


@EDGES
def test_what_cannot_be_is_refused(edge: int) -> None:
    async def main() -> None:
        async with asking(edge) as asker:
            for id, timeout_ms, code in (
                ("", 1000, ErrorCode.INVALID_REQUEST),
                ("tx", 0, ErrorCode.INVALID_TRANSACTION_TIMEOUT),
                ("tx", 2_000_000_000, ErrorCode.INVALID_TRANSACTION_TIMEOUT),
                ("__headrace-http-0", 1000, ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED),
            ):
                answer = await asker.ask(22, InitProducerIdRequest(id, timeout_ms))
                assert (answer.error_code, answer.producer_id) == (code, -1)
            answer = await asker.ask(26, EndTxnRequest("stranger", 1, 0, True))
            assert answer.error_code == ErrorCode.INVALID_PRODUCER_ID_MAPPING
            await asker.begin()
            assert await asker.end(is_commit=True) == ErrorCode.INVALID_TXN_STATE
            added = await asker.ask(25, AddOffsetsToTxnRequest("tx", *asker.producer[1:], ""))
            assert added.error_code == ErrorCode.INVALID_GROUP_ID

    run(main())


@EDGES
def test_administrators_see_who_has_what_open(edge: int) -> None:
    async def main() -> None:
        async with asking(edge) as asker:
            _, producer_id, epoch = await asker.begin()
            await asker.add_partition()
            await asker.send(b"x")
            (described, unknown) = (
                await asker.ask(65, DescribeTransactionsRequest(("tx", "missing")))
            ).transaction_states
            assert (described.transaction_state, described.producer_id) == ("Ongoing", producer_id)
            assert [(topic.topic, topic.partitions) for topic in described.topics] == [("t", (0,))]
            assert unknown.error_code == ErrorCode.TRANSACTIONAL_ID_NOT_FOUND
            listed = await asker.ask(66, ListTransactionsRequest(("Ongoing", "Odd"), ()))
            assert [one.transactional_id for one in listed.transaction_states] == ["tx"]
            assert listed.unknown_state_filters == ("Odd",)
            nobody = await asker.ask(66, ListTransactionsRequest((), (producer_id + 1,)))
            assert nobody.transaction_states == ()
            (topic,) = (await asker.ask(61, DescribeProducersRequest((TopicRequest("t", (0, 9)),)))).topics
            (active,) = topic.partitions[0].active_producers
            assert (active.producer_id, active.producer_epoch, active.current_txn_start_offset) == (
                producer_id,
                epoch,
                0,
            )
            assert topic.partitions[1].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION

    run(main())


def test_clients_are_told_that_epochs_may_be_raised_with_every_transaction() -> None:
    async def main() -> None:
        async with asking(1) as asker:
            for version in (3, 4):
                answer = await asker.ask(18, ApiVersionsRequest("test", "1"), version=version)
                (feature,) = [one for one in answer.finalized_features if one.name == "transaction.version"]
                assert (feature.min_version_level, feature.max_version_level) == (2, 2)
                assert answer.finalized_features_epoch >= 0

    run(main())


@pytest.mark.parametrize("api", TRANSACTIONS_SERVED, ids=lambda api: str(api.key))
def test_every_version_between_the_edges_is_answered(api: Any) -> None:
    requests: dict[int, Any] = {
        24: AddPartitionsToTxnRequest(v3_and_below_transactional_id="x"),
        25: AddOffsetsToTxnRequest("x", 1, 0, "g"),
        26: EndTxnRequest("x", 1, 0, True),
        28: TxnOffsetCommitRequest("x", "g", 1, 0),
        61: DescribeProducersRequest((TopicRequest("t", (0,)),)),
        65: DescribeTransactionsRequest(("x",)),
        66: ListTransactionsRequest(),
    }

    async def main() -> None:
        async with asking(0) as asker:
            for version in range(api.version_min, api.version_max + 1):
                await asker.ask(api.key, requests[api.key], version=version)

    run(main())
