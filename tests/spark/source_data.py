"""What the tests of the source share: topics with messages in them, and reading them with Spark."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from typing import Any

import pytest
from confluent_kafka import Producer
from confluent_kafka import TopicPartition as KafkaPartition
from confluent_kafka.admin import AdminClient
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql.streaming.query import StreamingQuery
from tests.support.node import NodeProcess

from headrace.client.admin import Admin
from headrace.client.stream import StreamClient
from headrace.client.values import Outgoing
from headrace.spark.errors import explain
from headrace.spark.option.source import SourceOptions, read_options

DEADLINE_S = 60


def create(node: NodeProcess, topic: str, *, partitions: int = 1, **config: str) -> None:
    """Settings have underscores for dots."""

    async def main() -> None:
        settings = {name.replace("_", "."): value for name, value in config.items()}
        async with StreamClient(node.server) as client:
            await client.admin.create_topic(topic, partition_count=partitions, config=settings)

    asyncio.run(main())


def produce(node: NodeProcess, topic: str, values: Iterable[str], *, partition: int | None = None) -> None:
    """One batch for each partition. A value is its own key."""
    send(node, topic, [Outgoing(value.encode(), key=value.encode(), partition=partition) for value in values])


def send(node: NodeProcess, topic: str, messages: list[Outgoing]) -> None:
    async def main() -> None:
        async with StreamClient(node.server) as client:
            await client.produce(topic, messages)

    asyncio.run(main())


def transact(node: NodeProcess, topic: str, values: Iterable[str], *, commit: bool) -> Producer:
    """A transaction of librdkafka's, ended as it is said. The producer is kept for those that are to stay open."""
    producer = begin(node, topic, values)
    if commit:
        producer.commit_transaction(DEADLINE_S)
    else:
        producer.abort_transaction(DEADLINE_S)
    return producer


def begin(node: NodeProcess, topic: str, values: Iterable[str]) -> Producer:
    producer = Producer({"bootstrap.servers": node.server, "transactional.id": f"tests {topic}", "log_level": 0})
    producer.init_transactions(DEADLINE_S)
    producer.begin_transaction()
    for value in values:
        producer.produce(topic, value=value.encode(), partition=0)
    assert producer.flush(DEADLINE_S) == 0
    return producer


def delete_below(node: NodeProcess, topic: str, offset: int) -> None:
    """Partition 0 begins there from now on, as after retention."""
    admin = AdminClient({"bootstrap.servers": node.server, "log_level": 0})
    for outcome in admin.delete_records([KafkaPartition(topic, 0, offset)]).values():
        outcome.result(DEADLINE_S)


def administer(node: NodeProcess, work: Callable[[Admin], Awaitable[object]]) -> None:
    async def main() -> None:
        async with StreamClient(node.server) as client:
            await work(client.admin)

    asyncio.run(main())


# Reading.


def options_of(node: NodeProcess, **options: object) -> SourceOptions:
    return read_options(_named(node, options))


def read(spark: SparkSession, node: NodeProcess, schema: str | None = None, **options: object) -> DataFrame:
    """As a batch. Names of options have underscores for dots."""
    reader = spark.read.format("headrace").options(**_named(node, options))
    return (reader if schema is None else reader.schema(schema)).load()


def stream(spark: SparkSession, node: NodeProcess, **options: object) -> DataFrame:
    return spark.readStream.format("headrace").options(**_named(node, options)).load()


def _named(node: NodeProcess, options: dict[str, Any]) -> dict[str, str]:
    given = {name.replace("_", "."): str(value) for name, value in options.items()}
    return {"kafka.bootstrap.servers": node.server} | given


def values(rows: Iterable[Row]) -> list[str]:
    return [bytes(row["value"]).decode() for row in rows]


class Collected:
    """The rows of a stream, batch by batch, and the query's progress."""

    def __init__(self) -> None:
        self.batches: dict[int, list[Row]] = {}
        self.progress: list[dict[str, Any]] = []

    def __call__(self, frame: DataFrame, batch_id: int) -> None:
        self.batches[batch_id] = frame.collect()

    @property
    def rows(self) -> list[Row]:
        return [row for id in sorted(self.batches) for row in self.batches[id]]

    def start(self, frame: DataFrame, checkpoint: str) -> StreamingQuery:
        return frame.writeStream.foreachBatch(self).option("checkpointLocation", checkpoint).start()


def run_available(frame: DataFrame, checkpoint: str) -> Collected:
    """Everything that is there now, in as many batches as it takes."""
    collected = Collected()
    writer = frame.writeStream.foreachBatch(collected).option("checkpointLocation", checkpoint)
    query = writer.trigger(availableNow=True).start()
    try:
        assert query.awaitTermination(DEADLINE_S)
    finally:
        query.stop()
    collected.progress = [dict(one) for one in query.recentProgress]
    return collected


def refusal(work: Callable[[], object]) -> str:
    """The one sentence with which it fails; Python's stack is not shown with it."""
    with pytest.raises(PySparkException) as caught:
        work()
    assert "Traceback" not in str(caught.value)
    return explain(caught.value)
