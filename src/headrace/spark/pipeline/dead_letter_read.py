"""A queue's messages as a DataFrame, each with the state that it is in.

What is still in a queue is known to the node alone: the log also holds what was acknowledged and not cleaned away yet.
So these rows come from the node's browsing, which takes nothing from anybody: one task for each partition, page by
page.
"""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import pyarrow as pa

from headrace.client.queue.description import BrowsedMessage
from headrace.client.queue.sync import Client, Queue

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

SCHEMA = (
    "queue string, partition int, offset bigint, id string, state string, priority int, attempt int, sent_ms bigint, "
    "key binary, value binary, headers array<struct<key: string, value: binary>>"
)

_ARROW = pa.schema(
    [
        ("queue", pa.string()),
        ("partition", pa.int32()),
        ("offset", pa.int64()),
        ("id", pa.string()),
        ("state", pa.string()),
        ("priority", pa.int32()),
        ("attempt", pa.int32()),
        ("sent_ms", pa.int64()),
        ("key", pa.binary()),
        ("value", pa.binary()),
        ("headers", pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))),
    ]
)
_PAGE_COUNT = 1000  # the most that a node gives at once
_BEYOND = 10**18 - 1  # above every offset


def read_messages(spark: "SparkSession", http: str, queues: Sequence[str]) -> "DataFrame":
    """Every message that is in the queues, in whatever state. Which partitions there are is asked here and now."""
    with Client(http) as client:
        places = [(queue, index) for queue in queues for index in range(client.queue(queue).describe().partitions)]

    def browse(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        with Client(http) as client:
            for batch in batches:
                for place in batch.to_pylist():
                    yield from _pages(client.queue(place["queue"]), place["partition"])

    asked = spark.createDataFrame(places, "queue string, partition int")
    return asked.repartition(min(len(places), 8), "queue", "partition").mapInArrow(browse, SCHEMA)


def _pages(queue: Queue, partition: int) -> Iterator[pa.RecordBatch]:
    # A page goes on after a place, and into the next partition: so a partition begins after all of the one before it.
    after: str | None = f"{partition - 1}-{_BEYOND}" if partition else None
    while True:
        page = queue.browse(limit=_PAGE_COUNT, after=after)
        own = [message for message in page.messages if message.partition == partition]
        if own:
            yield pa.RecordBatch.from_pylist([_row(queue.name, message) for message in own], schema=_ARROW)
        after = page.next
        if after is None or len(own) < len(page.messages):
            return


def _row(queue: str, message: BrowsedMessage) -> dict[str, object]:
    return {
        "queue": queue,
        "partition": message.partition,
        "offset": message.offset,
        "id": message.id,
        "state": message.state,
        "priority": message.priority,
        "attempt": message.attempt,
        "sent_ms": message.sent_ms,
        "key": message.key,
        "value": message.body,
        "headers": [{"key": name, "value": value} for name, value in message.headers],
    }
