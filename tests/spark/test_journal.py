"""The batches of real topics and queues as rows."""

import asyncio

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from tests.support.node import NodeProcess

from headrace.client.queue.sync import Client
from headrace.client.stream import StreamClient
from headrace.client.values import Outgoing
from headrace.model.batch import assign
from headrace.model.ids import Epoch, Offset
from headrace.spark.journal.data_source import NAME, register
from headrace.spark.journal.entry import ARROW_SCHEMA, entries
from headrace.wire.kafka.records import Record, encode_batch, encode_control_records


def journal(spark: SparkSession, node: NodeProcess, topic: str) -> DataFrame:
    register(spark)
    reader = spark.read.format(NAME).option("kafka.bootstrap.servers", node.server)
    return reader.option("subscribe", topic).load()


def produce(node: NodeProcess, topic: str, *batches: int) -> None:
    async def main() -> None:
        async with StreamClient(node.server) as client:
            await client.admin.create_topic(topic, partition_count=1)
            for count in batches:
                await client.produce(topic, [Outgoing(b"v%d" % number, key=b"k") for number in range(count)])

    asyncio.run(main())


def test_a_batch_is_one_row_with_its_offsets_and_its_producers_sequence(
    spark: SparkSession, node: NodeProcess, topic: str
) -> None:
    produce(node, topic, 3, 5)
    rows = journal(spark, node, topic).orderBy("baseOffset").collect()
    assert [(row["baseOffset"], row["lastOffset"], row["recordCount"]) for row in rows] == [(0, 2, 3), (3, 7, 5)]
    assert [row["baseSequence"] for row in rows] == [0, 3]
    assert len({row["producerId"] for row in rows}) == 1
    assert not any(row["isControl"] for row in rows)


def test_a_queues_entries_are_rows_among_its_messages(spark: SparkSession, node: NodeProcess, topic: str) -> None:
    with Client(node.http) as client:
        queue = client.queue(topic)
        queue.create()
        queue.send_many(["a", "b"])
        for message in queue.receive(max=2, wait=5):
            message.ack()
    rows = journal(spark, node, topic).collect()
    kinds = {row["controlKind"] for row in rows if row["isControl"]}
    assert {100, 102} <= kinds, "leases and acknowledgements"
    assert sum(row["recordCount"] for row in rows if not row["isControl"]) == 2
    covered = sorted(offset for row in rows for offset in range(row["baseOffset"], row["lastOffset"] + 1))
    assert covered == list(range(len(covered))), "every offset is in one row"


def test_only_the_wanted_columns_come(spark: SparkSession, node: NodeProcess, topic: str) -> None:
    produce(node, topic, 2)
    register(spark)
    reader = spark.read.format(NAME).option("kafka.bootstrap.servers", node.server).option("subscribe", topic)
    frame = reader.schema("lastOffset bigint, topic string").load()
    assert [tuple(row) for row in frame.collect()] == [(1, topic)]


def placed(batch: bytearray, offset: int) -> bytes:
    assign(batch, 0, Offset(offset), Epoch(0))
    return bytes(batch)


def test_ranges_that_meet_within_a_batch_give_it_once() -> None:
    log = b"".join(
        placed(encode_batch([Record(1, None, b"v")] * count), offset) for offset, count in ((0, 4), (4, 4), (10, 1))
    )
    for border in range(12):
        first, _ = entries(log, topic="t", partition=0, start=0, end=border)
        # A node sends the whole batch in which the second range begins.
        second, end = entries(log, topic="t", partition=0, start=border, end=11)
        found = first.column("baseOffset").to_pylist() + second.column("baseOffset").to_pylist()
        assert found == [0, 4, 10]
        assert end == 11 or border > 11


def test_a_control_batch_is_a_row_for_each_of_its_records() -> None:
    log = placed(encode_control_records([(100, b"x"), (102, b"y")], timestamp_ms=3), 7)
    found, end = entries(log, topic="t", partition=2, start=0, end=100)
    rows = found.to_pylist()
    assert [(row["baseOffset"], row["lastOffset"], row["controlKind"]) for row in rows] == [(7, 7, 100), (8, 8, 102)]
    assert [row["sizeBytes"] for row in rows] == [len(log), 0]
    assert end == 9


def test_nothing_is_an_empty_batch_with_every_column() -> None:
    found, end = entries(b"", topic="t", partition=0, start=5, end=9)
    assert (found.num_rows, found.schema, end) == (0, ARROW_SCHEMA, 5)


def test_a_stream_that_cannot_be_says_why(spark: SparkSession, node: NodeProcess, topic: str, checkpoint: str) -> None:
    register(spark)
    reader = spark.readStream.format(NAME).option("kafka.bootstrap.servers", node.server)
    rows = reader.option("subscribe", topic).option("subscribePattern", topic).load()
    query = rows.writeStream.format("noop").option("checkpointLocation", checkpoint).start()
    with pytest.raises(StreamingQueryException, match="name what to read by one of subscribe, subscribePattern"):
        query.awaitTermination()
