"""What the tests of the sink share: topics, a write, and what librdkafka, which knows nothing of us, reads of it."""

import asyncio
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame
from tests.compat.clients.confluent import Confluent
from tests.compat.clients.message import Message
from tests.support.node import NodeProcess

from headrace.client.stream import StreamClient
from headrace.spark.errors import explain


def create_topic(node: NodeProcess, topic: str, *, partitions: int = 1, **config: str) -> None:
    async def main() -> None:
        settings = {name.replace("_", "."): value for name, value in config.items()}
        async with StreamClient(node.server) as client:
            await client.admin.create_topic(topic, partition_count=partitions, config=settings)

    asyncio.run(main())


def committed(node: NodeProcess, topic: str, partition: int = 0) -> list[Message]:
    """Messages of transactions that are committed, and none of those that are not."""
    return [message for _, message in Confluent().read(node.server, topic, partition=partition, committed=True)]


def values(node: NodeProcess, topic: str, *, partitions: int = 1) -> Counter[str]:
    found: Counter[str] = Counter()
    for partition in range(partitions):
        found.update((message.value or b"").decode() for message in committed(node, topic, partition))
    return found


def numbers(count: int) -> Counter[str]:
    """Each once."""
    return Counter(str(number) for number in range(count))


def write(df: DataFrame, node: NodeProcess, **options: Any) -> None:
    """As a batch. Dots in names of options are written as underscores."""
    writer = df.write.format("headrace").mode("append").option("kafka.bootstrap.servers", node.server)
    for name, value in options.items():
        writer = writer.option(name.replace("_", "."), str(value))
    writer.save()


def refusal(work: Callable[[], None]) -> str:
    """The one sentence with which it is refused."""
    with pytest.raises(PySparkException) as caught:
        work()
    return explain(caught.value)
