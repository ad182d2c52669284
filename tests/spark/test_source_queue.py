"""Queues read by Spark beside their workers, from whom nothing is taken."""

from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from pyspark.sql import SparkSession
from pyspark.sql.types import StringType, StructField, StructType
from tests.spark.source_data import create, delete_below, options_of, read, refusal, run_available, stream, values
from tests.spark.test_source_stream import kept
from tests.support.node import NodeProcess, free_port

from headrace import Client
from headrace.client.errors import UnreachableError
from headrace.client.values import TopicPartition
from headrace.model.errors import UnknownQueueError
from headrace.spark.errors import DataLossError
from headrace.spark.link import Link
from headrace.spark.option.source import SourceOptions, read_options
from headrace.spark.source.batch import BatchReader
from headrace.spark.source.stream import StreamReader
from headrace.spark.source.tail import Tail

# Longer than a busy machine takes for a test.
LEASE_S = 600


@pytest.fixture
def client(node: NodeProcess) -> Iterator[Client]:
    with Client(node.http) as made:
        yield made


@contextmanager
def tail(node: NodeProcess, queue: str, **options: object) -> Iterator[Tail]:
    read = options_of(node, queue=queue, http=node.http, **options)
    with Link(read.servers, read.client) as link:
        yield Tail(read, link)


def test_a_queue_is_read_while_workers_lease_and_acknowledge(
    spark: SparkSession, node: NodeProcess, client: Client, topic: str
) -> None:
    queue = client.queue(topic)
    queue.create(history=3600)
    for number in range(20):
        queue.send(f"{number}", priority=9 if number == 19 else 5)
    urgent, *leased = queue.receive(max=10, wait=5, lease=LEASE_S)
    for message in leased[:4]:
        message.ack()
    rows = read(spark, node, queue=topic, http=node.http, includeQueueColumns=True).collect()
    assert values(rows) == [str(number) for number in range(20)]
    assert [row["id"] for row in rows] == [f"0-{row['offset']}" for row in rows]
    by_value = dict(zip(values(rows), rows, strict=True))
    assert (urgent.text, by_value["19"]["priority"], by_value["18"]["priority"]) == ("19", 9, 5)
    for message in leased[:4]:
        assert (by_value[message.text]["state"], by_value[message.text]["attempt"]) == ("acknowledged", None)
    for message in [urgent, *leased[4:]]:
        assert (by_value[message.text]["state"], by_value[message.text]["attempt"]) == ("leased", 1)
    assert (by_value["18"]["state"], by_value["18"]["attempt"]) == ("visible", 0)
    for message in [urgent, *leased[4:]]:
        message.ack()
    left = queue.receive(max=20, wait=5)
    assert sorted(int(message.text) for message in left) == list(range(9, 19))
    assert {message.attempt for message in left} == {1}, "reading was no attempt"


def test_a_queue_over_several_partitions_tells_where_each_message_is(
    spark: SparkSession, node: NodeProcess, client: Client, topic: str
) -> None:
    queue = client.queue(topic)
    queue.create(partitions=3)
    for number in range(12):
        queue.send(f"{number}", key=f"key {number}")
    held = {message.text for message in queue.receive(max=5, wait=5, lease=LEASE_S)}
    rows = read(spark, node, "value BINARY, state STRING", queue=topic, http=node.http).collect()
    states = dict(zip(values(rows), [row["state"] for row in rows], strict=True))
    assert len(states) == 12
    assert {text for text, state in states.items() if state == "leased"} == held


def test_a_stream_of_a_queue_gives_each_message_once_with_its_columns(
    spark: SparkSession, node: NodeProcess, client: Client, topic: str, checkpoint: str
) -> None:
    queue = client.queue(topic)
    queue.create(history=3600)
    queue.send("one", priority=7)
    options = {"queue": topic, "http": node.http, "reader": "lake", "startingOffsets": "earliest"}
    options |= {"includeQueueColumns": "true"}
    first = run_available(stream(spark, node, **options), checkpoint)
    (row,) = first.rows
    assert (row["id"], row["priority"], row["state"]) == (f"0-{row['offset']}", 7, "visible")
    queue.receive(wait=5)[0].ack()
    assert run_available(stream(spark, node, **options), checkpoint).rows == [], "an acknowledgement is no message"
    queue.send("two")
    assert values(run_available(stream(spark, node, **options), checkpoint).rows) == ["two"]
    assert [reader.name for reader in queue.readers()] == ["lake"]


def test_leases_and_acknowledgements_alone_start_no_batch(node: NodeProcess, client: Client, topic: str) -> None:
    queue = client.queue(topic)
    queue.create(history=3600)
    queue.send("one")
    with tail(node, topic, startingOffsets="earliest") as one:
        end = kept(one.latest(kept(one.initial()), most=None, least=None))
        queue.receive(wait=5)[0].ack()
        assert one.latest(end, most=None, least=None) is None
        queue.send("two")
        following = kept(one.latest(end, most=None, least=None))
        (only,) = one.ranges(end, following)
        assert only.start < following.offsets[TopicPartition(topic, 0)]


def test_what_was_seen_to_be_no_message_may_be_cleaned_away(node: NodeProcess, client: Client, topic: str) -> None:
    queue = client.queue(topic)
    queue.create()
    queue.send("one")
    at = TopicPartition(topic, 0)
    with tail(node, topic, startingOffsets="earliest") as one:
        end = kept(one.latest(kept(one.initial()), most=None, least=None))
        queue.receive(wait=5)[0].ack()
        assert one.latest(end, most=None, least=None) is None
        reported = one.end()
        assert reported is not None
        delete_below(node, topic, reported.offsets[at])
        following = kept(one.latest(end, most=None, least=None))
        assert following.offsets[at] > end.offsets[at]
        assert (following.skipped, one.ranges(end, following)) == ({}, [])
    with tail(node, topic) as another:
        assert another.ranges(end, following) == [], "a batch is repeated as it was"
        with pytest.raises(DataLossError, match=r"done and cleaned away; name a reader"):
            another.latest(end, most=None, least=None)


def test_a_named_reader_is_registered_and_moved_to_where_the_stream_goes_on(
    node: NodeProcess, client: Client, topic: str
) -> None:
    queue = client.queue(topic)
    queue.create()
    for number in range(5):
        queue.send(f"{number}")
    with tail(node, topic, startingOffsets="earliest", reader="lake") as one:
        (reader,) = queue.readers()
        assert (reader.name, reader.positions) == ("lake", {0: 0})
        end = kept(one.latest(kept(one.initial()), most=None, least=None))
        assert queue.readers()[0].positions == {0: 0}, "the batch is not over"
        assert one.latest(end, most=None, least=None) is None, "moving the reader is no message"
        assert queue.readers()[0].positions == {0: end.offsets[TopicPartition(topic, 0)]}


def test_where_nobody_can_be_asked_about_a_queue_is_said_before_any_task_runs(
    node: NodeProcess, client: Client, topic: str
) -> None:
    client.queue(topic).create()
    nowhere = f"127.0.0.1:{free_port()}"
    schema = StructType([StructField("state", StringType())])

    def given(**more: str) -> SourceOptions:
        return read_options({"kafka.bootstrap.servers": node.server, "queue": topic, "http": nowhere, **more})

    said = f"no node answers at {nowhere}, the option http, where it is asked about the queue {topic}"
    with pytest.raises(UnreachableError, match=said):
        BatchReader(schema, given()).partitions()
    with pytest.raises(UnreachableError, match=said):
        StreamReader(schema, given()).initialOffset()
    with pytest.raises(UnreachableError, match=said):
        StreamReader(StructType([]), given(reader="archive")).initialOffset()
    assert BatchReader(StructType([StructField("id", StringType())]), given()).partitions() == []


def test_a_topic_is_not_read_as_a_queue_wherever_http_is(spark: SparkSession, node: NodeProcess, topic: str) -> None:
    create(node, topic)
    said = f"{topic} is a topic and not a queue; say subscribe instead of queue, or convert it with"
    for http in (node.http, f"127.0.0.1:{free_port()}"):
        assert refusal(lambda http=http: read(spark, node, queue=topic, http=http).count()).startswith(said)  # type: ignore[misc]
        options = read_options({"kafka.bootstrap.servers": node.server, "queue": topic, "http": http})
        with pytest.raises(UnknownQueueError, match=said):
            StreamReader(StructType([]), options).initialOffset()


def test_a_queue_that_there_is_not_fails_with_one_sentence(spark: SparkSession, node: NodeProcess, topic: str) -> None:
    sentence = refusal(lambda: read(spark, node, queue=topic).count())
    assert sentence == f"there is no queue {topic}; create it with `headrace queue create {topic}`"
