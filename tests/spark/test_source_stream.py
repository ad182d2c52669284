"""Streams of `format("headrace")` through a real node and a real session.

What Spark asks a stream's planner, and when, is Spark's own affair; what the planner must answer is asked here of it
directly, so that moments can be chosen: a crash in the first batch, a topic made anew between two batches.
"""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from tests.spark.source_data import (
    Collected,
    administer,
    begin,
    create,
    delete_below,
    options_of,
    produce,
    refusal,
    run_available,
    stream,
    transact,
    values,
)
from tests.support.node import NodeProcess, running
from tests.support.wait import wait_until

from headrace.client.values import TopicPartition
from headrace.spark.errors import DataLossError
from headrace.spark.link import Link
from headrace.spark.source.mark import Mark, read_mark, read_positions, write_mark
from headrace.spark.source.reading import Range
from headrace.spark.source.tail import Tail


@contextmanager
def tail(node: NodeProcess, **options: object) -> Iterator[Tail]:
    """A planner as a query has it, of a driver that has just started."""
    read = options_of(node, **options)
    with Link(read.servers, read.client) as link:
        yield Tail(read, link)


def kept(mark: Mark | None) -> Mark:
    """As it comes back from a checkpoint."""
    assert mark is not None
    return read_mark(json.loads(json.dumps(write_mark(mark))))


def numbers(count: int) -> list[str]:
    return [str(number) for number in range(count)]


def delete_topic(node: NodeProcess, topic: str) -> None:
    administer(node, lambda admin: admin.delete_topics([topic]))


# Through Spark.


def test_what_is_there_is_read_in_batches_of_fair_shares_and_a_restart_reads_what_is_new(
    spark: SparkSession, node: NodeProcess, topic: str, checkpoint: str
) -> None:
    create(node, topic, partitions=2)
    produce(node, topic, numbers(10), partition=0)
    produce(node, topic, numbers(50), partition=1)
    frame = stream(spark, node, subscribe=topic, startingOffsets="earliest", maxOffsetsPerTrigger=30)
    first = run_available(frame, checkpoint)
    assert [len(rows) for rows in first.batches.values()] == [30, 30]
    shares = [sum(row["partition"] == 0 for row in rows) for rows in first.batches.values()]
    assert shares == [10, 0], "the short backlog is served whole"
    assert sorted(values(first.rows)) == sorted(numbers(10) + numbers(50))
    produce(node, topic, ["new"], partition=0)
    assert values(run_available(frame, checkpoint).rows) == ["new"]


def test_progress_tells_how_far_behind_a_query_is(
    spark: SparkSession, node: NodeProcess, topic: str, checkpoint: str
) -> None:
    create(node, topic)
    produce(node, topic, numbers(25))
    frame = stream(spark, node, subscribe=topic, startingOffsets="earliest", maxOffsetsPerTrigger=10)
    progress = run_available(frame, checkpoint).progress
    sources = [one["sources"][0] for one in progress]
    at = TopicPartition(topic, 0)
    ends = [read_positions(json.loads(source["endOffset"]))[at] for source in sources]
    latest = [read_positions(json.loads(source["latestOffset"]))[at] for source in sources]
    assert [end - done for end, done in zip(latest, ends, strict=True)][:3] == [15, 5, 0]
    told = [json.loads(source["latestOffset"])["$"] for source in sources][:3]
    assert [one["description"] for one in told] == [f"headrace[subscribe {topic}] at {node.server}"] * 3
    behind = [(one["minOffsetsBehindLatest"], one["maxOffsetsBehindLatest"]) for one in told]
    assert behind == [("15", "15"), ("5", "5"), ("0", "0")]
    assert [one["avgOffsetsBehindLatest"] for one in told] == ["15.0", "5.0", "0.0"]


def test_a_running_stream_reads_what_comes_and_finds_new_partitions(
    spark: SparkSession, node: NodeProcess, topic: str, checkpoint: str
) -> None:
    create(node, topic)
    produce(node, topic, ["before"])
    collected = Collected()
    query = collected.start(stream(spark, node, subscribe=topic), checkpoint)
    try:
        wait_until(lambda: bool(collected.batches), deadline_s=60, what="the stream has begun, at the latest offset")
        produce(node, topic, ["after"])
        wait_until(lambda: values(collected.rows) == ["after"], deadline_s=60, what="what was sent is read")
        administer(node, lambda admin: admin.create_partitions(topic, 2))
        produce(node, topic, ["elsewhere"], partition=1)
        wait_until(lambda: "elsewhere" in values(collected.rows), deadline_s=60, what="a new partition is read")
    finally:
        query.stop()
    assert values(collected.rows) == ["after", "elsewhere"]


def test_a_stream_outlives_a_restart_of_the_node(
    spark: SparkSession, tmp_path: Path, topic: str, checkpoint: str
) -> None:
    collected = Collected()
    with running(tmp_path / "data") as node:
        create(node, topic)
        produce(node, topic, ["one"])
        query = collected.start(stream(spark, node, subscribe=topic, startingOffsets="earliest"), checkpoint)
        try:
            wait_until(lambda: values(collected.rows) == ["one"], deadline_s=60, what="the first message is read")
            node.kill()
            node.start()
            produce(node, topic, ["two"])
            wait_until(lambda: values(collected.rows) == ["one", "two"], deadline_s=60, what="the second one is read")
        finally:
            query.stop()


def test_a_hole_that_retention_made_ends_the_query_unless_it_may_be_skipped_and_counted(
    spark: SparkSession, node: NodeProcess, topic: str, checkpoint: str
) -> None:
    create(node, topic)
    produce(node, topic, numbers(10))
    chosen = {"subscribe": topic, "startingOffsets": "earliest"}
    assert len(run_available(stream(spark, node, **chosen), checkpoint).rows) == 10
    produce(node, topic, numbers(10))
    delete_below(node, topic, 13)
    sentence = refusal(lambda: run_available(stream(spark, node, **chosen), checkpoint))
    assert sentence.startswith(f"{topic}-0 begins at offset 13, and 10 comes next: retention removed 3 offsets unread")
    lenient = run_available(stream(spark, node, **chosen, failOnDataLoss=False), checkpoint)
    assert [row["offset"] for row in lenient.rows] == list(range(13, 20))
    end = json.loads(lenient.progress[-1]["sources"][0]["endOffset"])
    assert read_mark(end).skipped == {TopicPartition(topic, 0): 3}


def test_transactions_are_read_when_they_are_committed(
    spark: SparkSession, node: NodeProcess, topic: str, checkpoint: str
) -> None:
    create(node, topic)
    transact(node, topic, ["kept"], commit=True)
    transact(node, topic, ["dropped"], commit=False)
    undecided = begin(node, topic, ["undecided"])
    frame = stream(spark, node, subscribe=topic, startingOffsets="earliest")
    assert values(run_available(frame, checkpoint).rows) == ["kept"]
    undecided.commit_transaction(60)
    assert values(run_available(frame, checkpoint).rows) == ["undecided"]


def test_what_a_stream_cannot_be_asked_for_is_said_in_one_sentence(
    spark: SparkSession, node: NodeProcess, topic: str, checkpoint: str
) -> None:
    frame = stream(spark, node, subscribe=topic, endingOffsets="latest")
    assert refusal(lambda: run_available(frame, checkpoint)).startswith("a stream has no end")
    missing = stream(spark, node, subscribe=topic)
    assert refusal(lambda: run_available(missing, checkpoint)).startswith(f"there is no topic {topic}")


def test_continuous_processing_is_refused(spark: SparkSession, node: NodeProcess, topic: str, checkpoint: str) -> None:
    writer = stream(spark, node, subscribe=topic).writeStream.format("noop").option("checkpointLocation", checkpoint)
    with pytest.raises(Exception, match="does not support continuous processing"):
        writer.trigger(continuous="1 second").start()


# The planner's answers.


def test_a_crash_in_the_first_batch_loses_nothing_that_came_after_the_beginning(node: NodeProcess, topic: str) -> None:
    create(node, topic)
    produce(node, topic, numbers(3))
    with tail(node, subscribe=topic) as before:
        initial = kept(before.initial())
        produce(node, topic, numbers(4))
        assert kept(before.initial()) == initial, "Spark asks twice"
        end = kept(before.latest(initial, most=None, least=None))
    produce(node, topic, numbers(5))
    with tail(node, subscribe=topic) as after:
        again = kept(after.initial())
        assert again.offsets != initial.offsets
        assert after.ranges(again, end) == [Range(topic, 0, 3, 7)]
        following = kept(after.latest(end, most=None, least=None))
        assert after.ranges(end, following) == [Range(topic, 0, 7, 12)]


def test_nothing_new_is_no_batch(node: NodeProcess, topic: str) -> None:
    create(node, topic)
    produce(node, topic, numbers(3))
    with tail(node, subscribe=topic, startingOffsets="earliest") as one:
        end = kept(one.latest(kept(one.initial()), most=None, least=None))
        assert one.latest(end, most=None, least=None) is None


def test_too_little_waits_for_more_unless_it_has_waited_long(node: NodeProcess, topic: str) -> None:
    create(node, topic)
    produce(node, topic, numbers(3))
    with tail(node, subscribe=topic, startingOffsets="earliest") as patient:
        initial = kept(patient.initial())
        assert patient.latest(initial, most=None, least=5) is None
        produce(node, topic, numbers(2))
        assert kept(patient.latest(initial, most=None, least=5)).offsets == {TopicPartition(topic, 0): 5}
    with tail(node, subscribe=topic, startingOffsets="earliest", maxTriggerDelay="0ms") as hasty:
        assert hasty.latest(kept(hasty.initial()), most=None, least=50) is not None


def test_an_available_now_query_leaves_alone_what_comes_later(node: NodeProcess, topic: str) -> None:
    create(node, topic)
    produce(node, topic, numbers(3))
    with tail(node, subscribe=topic, startingOffsets="earliest") as one:
        initial = kept(one.initial())
        one.stop_at_present()
        produce(node, topic, numbers(3))
        end = kept(one.latest(initial, most=None, least=None))
        assert end.offsets == {TopicPartition(topic, 0): 3}
        assert one.latest(end, most=None, least=None) is None


def test_the_earliest_offset_may_go_while_a_stream_begins(node: NodeProcess, topic: str) -> None:
    create(node, topic)
    produce(node, topic, numbers(6))
    with tail(node, subscribe=topic, startingOffsets="earliest") as one:
        initial = kept(one.initial())
        delete_below(node, topic, 2)
        end = kept(one.latest(initial, most=None, least=None))
        assert end.skipped == {}
        assert one.ranges(initial, end) == [Range(topic, 0, 2, 6)]


def test_a_topic_that_was_deleted_ends_the_stream_unless_it_may_go_on(node: NodeProcess, topic: str) -> None:
    create(node, topic)
    produce(node, topic, numbers(3))
    with tail(node, subscribe=topic, startingOffsets="earliest") as one:
        end = kept(one.latest(kept(one.initial()), most=None, least=None))
        delete_topic(node, topic)
        with pytest.raises(DataLossError, match=f"^{topic} was deleted"):
            one.latest(end, most=None, least=None)
    with tail(node, subscribe=topic, failOnDataLoss=False) as lenient:
        assert lenient.latest(end, most=None, least=None) is None


def test_a_topic_that_was_made_anew_is_not_taken_for_the_old_one(node: NodeProcess, topic: str) -> None:
    create(node, topic)
    produce(node, topic, numbers(3))
    with tail(node, subscribe=topic, startingOffsets="earliest") as one:
        end = kept(one.latest(kept(one.initial()), most=None, least=None))
        delete_topic(node, topic)
        create(node, topic)
        produce(node, topic, numbers(5))
        with pytest.raises(DataLossError, match=f"^{topic} was deleted and made anew"):
            one.latest(end, most=None, least=None)
    with tail(node, subscribe=topic, failOnDataLoss=False) as lenient:
        following = kept(lenient.latest(end, most=None, least=None))
        assert lenient.ranges(end, following) == [Range(topic, 0, 0, 5)]


def test_topics_that_appear_later_are_read_from_their_start(node: NodeProcess, topic: str) -> None:
    create(node, f"{topic}.one")
    produce(node, f"{topic}.one", numbers(2))
    with tail(node, subscribePattern=f"{topic}.*") as one:
        end = kept(one.latest(kept(one.initial()), most=None, least=None))
        create(node, f"{topic}.two")
        produce(node, f"{topic}.two", numbers(4))
        following = kept(one.latest(end, most=None, least=None))
        assert one.ranges(end, following) == [Range(f"{topic}.two", 0, 0, 4)]
    with tail(node, subscribePattern=f"{topic}.*") as another:
        assert another.ranges(end, following) == [Range(f"{topic}.two", 0, 0, 4)], "a batch is repeated as it was"
