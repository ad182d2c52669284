"""Rows into queues: workers receive each once, with the properties that a send over HTTP would have given it."""

from collections.abc import Iterator
from zlib import crc32

import pytest
from pyspark.sql import SparkSession
from tests.spark.topic_sink import create_topic, refusal, write
from tests.support.node import NodeProcess, free_port
from tests.support.wait import wait_until

from headrace.client.queue.sync import Client, Message


@pytest.fixture
def client(node: NodeProcess) -> Iterator[Client]:
    with Client(node.http) as client:
        yield client


def drain(client: Client, queue: str) -> list[Message]:
    found = []
    for message in client.queue(queue).messages(wait=0.5, until_empty=True, batch=100):
        found.append(message)
        message.ack()
    return found


def test_workers_receive_each_row_once_in_the_order_of_priority(
    spark: SparkSession, node: NodeProcess, client: Client, topic: str
) -> None:
    df = spark.range(0, 300, 1, 2).selectExpr("cast(id AS string) AS value", "cast(id % 10 AS int) AS priority")
    for _ in range(2):
        write(df, node, queue=topic, http=node.http, idempotencyKey="once")
    found = drain(client, topic)
    assert sorted(int(message.text) for message in found) == list(range(300))
    assert all(message.priority == int(message.text) % 10 for message in found)
    if client.queue(topic).describe().partitions == 1:
        assert [message.priority for message in found] == sorted((number % 10 for number in range(300)), reverse=True)


def test_delay_ttl_key_headers_and_deduplication_id_are_those_of_the_row(
    spark: SparkSession, node: NodeProcess, client: Client, topic: str
) -> None:
    client.queue(topic).create(partitions=3)
    rows = [
        ("now", "a", 0.0, None, "one", [("colour", b"red")]),
        ("again", "a", None, None, "one", None),
        ("later", "b", 3600.0, None, "", None),
        ("gone", "c", None, 0.001, None, None),
    ]
    columns = (
        "value string, key string, delay double, ttl double, deduplication_id string, "
        "headers array<struct<key:string,value:binary>>"
    )
    write(spark.createDataFrame(rows, columns).coalesce(1), node, queue=topic)
    (message,) = drain(client, topic)
    assert (message.text, message.key, message.deduplication_id) == ("now", b"a", "one")
    assert dict(message.headers) == {"colour": b"red"}
    assert message.partition == crc32(b"a") % 3
    wait_until(
        lambda: client.queue(topic).describe().counts.delayed == 1,
        deadline_s=10,
        what="one message waits for its time",
    )
    (waiting,) = client.queue(topic).browse(state="delayed").messages
    assert waiting.body == b"later"


def test_spans_may_be_intervals_and_are_checked(
    spark: SparkSession, node: NodeProcess, client: Client, topic: str
) -> None:
    client.queue(topic).create()
    write(spark.sql("SELECT 'x' AS value, INTERVAL '2' HOUR AS delay, INTERVAL '1' DAY AS ttl"), node, queue=topic)
    assert client.queue(topic).describe().counts.delayed == 1
    for columns, said in (
        ("10 AS priority", "a row has the priority 10; it is 0 to 9, the most urgent"),
        ("-1 AS delay", "a row has a delay of -1000 ms; it is at least 0 ms"),
        ("0 AS ttl", "a row has a ttl of 0 ms; it is at least 1 ms"),
        ("double('nan') AS ttl", "a row has a ttl of -1 ms; it is at least 1 ms"),
    ):
        df = spark.sql(f"SELECT 'x' AS value, {columns}")
        assert refusal(lambda df=df: write(df, node, queue=topic)) == said  # type: ignore[misc]
    assert drain(client, topic) == []


def test_a_topic_is_not_made_a_queue_by_a_write(
    spark: SparkSession, node: NodeProcess, client: Client, topic: str
) -> None:
    create_topic(node, topic)
    df = spark.sql("SELECT 'x' AS value")
    said = refusal(lambda: write(df, node, queue=topic, http=f"127.0.0.1:{free_port()}"))
    assert said.startswith(f"{topic} is a topic and not a queue; write to it by the option topic")
    said = refusal(lambda: write(df, node, queue=f"{topic}-new", http="127.0.0.1:1"))
    assert said.startswith(f"there is no queue {topic}-new, and it could not be made at 127.0.0.1:1")
    assert f"{topic}-new" not in client.queues()
