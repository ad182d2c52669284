"""Batches of `format("headrace")` through a real node and a real session."""

import json
from datetime import UTC, datetime

import pytest
from pyspark.sql import SparkSession
from pyspark.sql.datasource import GreaterThanOrEqual, LessThan
from pyspark.sql.functions import spark_partition_id
from tests.spark.source_data import (
    begin,
    create,
    delete_below,
    options_of,
    produce,
    read,
    refusal,
    send,
    transact,
    values,
)
from tests.support.node import NodeProcess
from tests.support.wait import wait_until

from headrace.client.values import Outgoing
from headrace.spark.arrow.schema import FULL_SCHEMA
from headrace.spark.errors import OptionError
from headrace.spark.source.batch import BatchReader, FilteringBatchReader
from headrace.spark.source.reading import Range
from headrace.spark.source.task import Task

NOON_MS = int(datetime(2026, 1, 1, 12, tzinfo=UTC).timestamp() * 1000)


def ranges_of(reader: BatchReader) -> list[Range]:
    return [one for task in reader.partitions() if isinstance(task, Task) for one in task.ranges]


def test_every_column_of_a_message_comes_as_spark_s_kafka_source_gives_it(
    spark: SparkSession, node: NodeProcess, topic: str
) -> None:
    create(node, topic, partitions=2, retention_ms="-1")
    headers = [("trace", b"1"), ("empty", None)]
    send(node, topic, [Outgoing(b"tea", key=b"alice", headers=headers, timestamp_ms=NOON_MS, partition=1)])
    send(node, topic, [Outgoing(None, partition=1, timestamp_ms=NOON_MS + 1)])
    first, second = read(spark, node, subscribe=topic, includeHeaders=True).orderBy("offset").collect()
    assert bytes(first["key"]) == b"alice"
    assert bytes(first["value"]) == b"tea"
    assert (first["topic"], first["partition"], first["offset"], first["timestampType"]) == (topic, 1, 0, 0)
    assert [(one["key"], one["value"]) for one in first["headers"]] == [("trace", b"1"), ("empty", None)]
    assert (second["key"], second["value"], second["headers"], second["offset"]) == (None, None, None, 1)
    times = read(spark, node, subscribe=topic).selectExpr("unix_millis(timestamp) AS ms").collect()
    assert sorted(row["ms"] for row in times) == [NOON_MS, NOON_MS + 1]


def test_a_schema_picks_columns_in_its_order(spark: SparkSession, node: NodeProcess, topic: str) -> None:
    create(node, topic)
    produce(node, topic, ["a", "b"])
    frame = read(spark, node, "offset BIGINT, value BINARY", subscribe=topic)
    assert frame.columns == ["offset", "value"]
    assert [(row["offset"], bytes(row["value"])) for row in frame.collect()] == [(0, b"a"), (1, b"b")]


def test_sql_reads_a_view_and_is_told_so_where_it_asks_for_a_table(
    spark: SparkSession, node: NodeProcess, topic: str
) -> None:
    create(node, topic)
    produce(node, topic, ["a", "b"])
    name = topic.replace("-", "_")
    using = f"{name} USING headrace OPTIONS (`kafka.bootstrap.servers` '{node.server}', subscribe '{topic}')"
    spark.sql(f"CREATE TEMPORARY VIEW {using}")
    assert values(spark.sql(f"SELECT value FROM {name} ORDER BY offset").collect()) == ["a", "b"]
    spark.catalog.dropTempView(name)
    assert "say CREATE TEMPORARY VIEW" in refusal(lambda: spark.sql(f"CREATE TABLE {using}"))
    spark.sql(f"CREATE TABLE {using.replace(name, f'{name} (value BINARY)', 1)}")
    try:
        assert "say CREATE TEMPORARY VIEW" in refusal(lambda: spark.table(name).collect())
    finally:
        spark.sql(f"DROP TABLE {name}")


def test_reading_begins_and_ends_where_the_options_say(spark: SparkSession, node: NodeProcess, topic: str) -> None:
    create(node, topic, partitions=2)
    produce(node, topic, ["a0", "a1", "a2", "a3"], partition=0)
    produce(node, topic, ["b0", "b1"], partition=1)
    starting, ending = {topic: {"0": 1, "1": -2}}, {topic: {"0": 3, "1": -1}}
    frame = read(spark, node, subscribe=topic, startingOffsets=json.dumps(starting), endingOffsets=json.dumps(ending))
    assert sorted(values(frame.collect())) == ["a1", "a2", "b0", "b1"]


def test_a_start_beyond_the_end_is_refused_however_they_are_named(
    spark: SparkSession, node: NodeProcess, topic: str
) -> None:
    create(node, topic, retention_ms="-1")
    send(node, topic, [Outgoing(b"x", timestamp_ms=NOON_MS + 1000 * second) for second in range(10)])

    def at(offset: int) -> str:
        return json.dumps({topic: {"0": offset}})

    said = (
        f"{topic}-0 would be read from offset 7 to 3, which lies before it; check the starting and the ending options"
    )
    by_time = json.dumps({topic: {"0": NOON_MS + 7000}})
    for options in (
        {"startingOffsets": at(7), "endingOffsets": at(3)},
        {"startingOffsets": at(7), "endingTimestamp": NOON_MS + 3000},
        {"startingOffsetsByTimestamp": by_time, "endingOffsets": at(3)},
    ):
        with pytest.raises(OptionError, match=said):
            BatchReader(FULL_SCHEMA, options_of(node, subscribe=topic, **options)).partitions()
    assert refusal(read(spark, node, subscribe=topic, startingOffsets=at(7), endingOffsets=at(3)).count) == said
    assert read(spark, node, subscribe=topic, startingOffsets=at(7), endingOffsets=at(7)).count() == 0


def test_what_is_to_end_below_the_log_s_start_is_refused_unless_it_may_be_lost(node: NodeProcess, topic: str) -> None:
    create(node, topic)
    produce(node, topic, map(str, range(10)), partition=0)
    delete_below(node, topic, 8)
    options = {"subscribe": topic, "endingOffsets": json.dumps({topic: {"0": 5}})}
    with pytest.raises(OptionError, match="would be read from offset 8 to 5"):
        BatchReader(FULL_SCHEMA, options_of(node, **options)).partitions()
    assert BatchReader(FULL_SCHEMA, options_of(node, **options, failOnDataLoss=False)).partitions() == []


def test_reading_begins_and_ends_at_times(node: NodeProcess, topic: str) -> None:
    create(node, topic, partitions=2, retention_ms="-1")
    times = [NOON_MS + 1000 * second for second in range(10)]
    send(node, topic, [Outgoing(b"x", timestamp_ms=ms, partition=0) for ms in times])
    send(node, topic, [Outgoing(b"x", timestamp_ms=NOON_MS, partition=1)])

    def ranges(**options: object) -> list[Range]:
        return ranges_of(BatchReader(FULL_SCHEMA, options_of(node, subscribe=topic, **options)))

    late = {"startingOffsetsByTimestampStrategy": "latest"}
    assert ranges(startingTimestamp=NOON_MS + 2500, **late) == [Range(topic, 0, 3, 10)]
    assert ranges(endingTimestamp=NOON_MS + 2500) == [Range(topic, 0, 0, 3), Range(topic, 1, 0, 1)]
    by_partition = json.dumps({topic: {"0": NOON_MS + 8000, "1": NOON_MS}})
    assert ranges(startingOffsetsByTimestamp=by_partition) == [Range(topic, 0, 8, 10), Range(topic, 1, 0, 1)]


def test_a_time_behind_the_last_message_is_an_error_unless_it_may_be_the_end(node: NodeProcess, topic: str) -> None:
    create(node, topic)
    produce(node, topic, ["a"])
    late = 4_000_000_000_000
    reader = BatchReader(FULL_SCHEMA, options_of(node, subscribe=topic, startingTimestamp=late))
    said = f"{topic}-0 has no message at or after {late}, which the option startingTimestamp names"
    with pytest.raises(OptionError, match=said):
        reader.partitions()
    strategy = {"startingOffsetsByTimestampStrategy": "latest"}
    lenient = options_of(node, subscribe=topic, startingTimestamp=late, **strategy)
    assert ranges_of(BatchReader(FULL_SCHEMA, lenient)) == []


def test_topics_are_found_by_pattern_and_partitions_by_assignment(node: NodeProcess, topic: str) -> None:
    for name in (f"{topic}.tea", f"{topic}.coffee", f"other-{topic}.tea"):
        create(node, name, partitions=2)
        produce(node, name, ["a"], partition=1)
    pattern = BatchReader(FULL_SCHEMA, options_of(node, subscribePattern=rf"{topic}\..*"))
    assert ranges_of(pattern) == [Range(f"{topic}.coffee", 1, 0, 1), Range(f"{topic}.tea", 1, 0, 1)]
    assigned = options_of(node, assign=json.dumps({f"{topic}.tea": [1]}))
    assert ranges_of(BatchReader(FULL_SCHEMA, assigned)) == [Range(f"{topic}.tea", 1, 0, 1)]


def test_many_partitions_are_packed_into_one_task_and_spread_on_request(
    spark: SparkSession, node: NodeProcess, topic: str
) -> None:
    create(node, topic, partitions=8)
    produce(node, topic, [str(number) for number in range(400)])
    assert len(BatchReader(FULL_SCHEMA, options_of(node, subscribe=topic)).partitions()) == 1
    spread = read(spark, node, subscribe=topic, minPartitions=3).withColumn("task", spark_partition_id()).collect()
    assert {row["task"] for row in spread} == {0, 1, 2}
    assert sorted(map(int, values(spread))) == list(range(400))


def test_an_empty_topic_has_no_rows(spark: SparkSession, node: NodeProcess, topic: str) -> None:
    create(node, topic, partitions=2)
    assert read(spark, node, subscribe=topic).collect() == []


# Filters.


def test_pushed_filters_give_the_same_rows(spark: SparkSession, node: NodeProcess, topic: str) -> None:
    create(node, topic, partitions=2)
    produce(node, topic, [f"a{number}" for number in range(20)], partition=0)
    produce(node, topic, [f"b{number}" for number in range(20)], partition=1)
    frame = read(spark, node, subscribe=topic, pushFilters=True)
    condition = "offset >= 5 AND partition = 1 AND (key = CAST('b7' AS BINARY) OR key IS NULL)"
    assert values(frame.where(condition).collect()) == ["b7"]
    keyed = frame.where("key IN (CAST('a3' AS BINARY), CAST('b4' AS BINARY)) AND timestamp > '2020-01-01'")
    assert sorted(values(keyed.collect())) == ["a3", "b4"]


def test_times_are_pushed_from_below_always_and_from_above_where_the_node_stamps(node: NodeProcess, topic: str) -> None:
    create(node, topic, retention_ms="-1")
    send(node, topic, [Outgoing(b"x", timestamp_ms=NOON_MS + number) for number in range(10)])
    stamped = f"{topic}-stamped"
    create(node, stamped, message_timestamp_type="LogAppendTime")
    produce(node, stamped, ["a", "b"])

    def pushed(name: str) -> list[Range]:
        reader = FilteringBatchReader(FULL_SCHEMA, options_of(node, subscribe=name))
        after = datetime.fromtimestamp((NOON_MS + 4) / 1000, UTC)
        before = datetime.fromtimestamp((NOON_MS + 6) / 1000, UTC)
        reader.pushFilters([GreaterThanOrEqual(("timestamp",), after), LessThan(("timestamp",), before)])
        return ranges_of(reader)

    assert pushed(topic) == [Range(topic, 0, 4, 10)]
    assert pushed(stamped) == [], "all of it is later than that"


# What is in a log beside messages, and what is not in it any more.


def test_what_was_aborted_is_not_there_unless_asked_for(spark: SparkSession, node: NodeProcess, topic: str) -> None:
    create(node, topic)
    produce(node, topic, ["plain"])
    transact(node, topic, ["kept"], commit=True)
    transact(node, topic, ["dropped"], commit=False)
    open_one = begin(node, topic, ["undecided"])
    assert values(read(spark, node, subscribe=topic).collect()) == ["plain", "kept"]
    everything = read(spark, node, subscribe=topic, kafka_isolation_level="read_uncommitted")
    assert values(everything.collect()) == ["plain", "kept", "dropped", "undecided"]
    open_one.abort_transaction(60)


def test_a_compacted_topic_is_read_over_its_holes(spark: SparkSession, node: NodeProcess, topic: str) -> None:
    create(node, topic, cleanup_policy="compact", segment_bytes="16384", min_cleanable_dirty_ratio="0.01")

    def write(batch: int) -> None:
        keys = [b"once %d" % batch, *(b"again %d" % number for number in range(9))]
        send(node, topic, [Outgoing(b"%d" % batch + bytes(1000), key=key) for key in keys])

    for batch in range(10):
        write(batch)

    def offsets() -> list[int]:
        return sorted(row["offset"] for row in read(spark, node, "offset BIGINT", subscribe=topic).collect())

    wait_until(lambda: len(offsets()) < 100, deadline_s=30, what="the topic is compacted")
    found = offsets()
    assert found[-1] == 99
    assert found != list(range(found[0], 100)), "there are holes"
    keys = {bytes(row["key"]) for row in read(spark, node, subscribe=topic).collect()}
    assert keys == {b"once %d" % batch for batch in range(10)} | {b"again %d" % number for number in range(9)}


def test_offsets_that_are_gone_fail_the_read_unless_it_may_go_on(
    spark: SparkSession, node: NodeProcess, topic: str
) -> None:
    create(node, topic)
    produce(node, topic, [str(number) for number in range(10)])
    delete_below(node, topic, 4)
    starting = json.dumps({topic: {"0": 1}})
    sentence = refusal(lambda: read(spark, node, subscribe=topic, startingOffsets=starting).count())
    assert sentence.startswith(f"{topic}-0 begins at offset 4, and 1 comes next: retention removed 3 offsets unread")
    frame = read(spark, node, subscribe=topic, startingOffsets=starting, failOnDataLoss=False)
    assert values(frame.collect()) == ["4", "5", "6", "7", "8", "9"]


def test_a_batch_that_may_go_on_logs_how_much_is_gone_of_what_it_was_to_read(
    node: NodeProcess, topic: str, caplog: pytest.LogCaptureFixture
) -> None:
    create(node, topic, partitions=2)
    for partition in (0, 1):
        produce(node, topic, [str(number) for number in range(10)], partition=partition)
    delete_below(node, topic, 6)
    starting, ending = json.dumps({topic: {"0": 1, "1": 0}}), json.dumps({topic: {"0": 4, "1": 10}})
    options = options_of(node, subscribe=topic, startingOffsets=starting, endingOffsets=ending, failOnDataLoss=False)
    BatchReader(FULL_SCHEMA, options).partitions()
    assert [record.getMessage() for record in caplog.records] == [f"{topic}-0: 3 offsets that were to be read are gone"]


# What is refused.


def test_a_topic_that_there_is_not_fails_with_one_sentence(spark: SparkSession, node: NodeProcess, topic: str) -> None:
    sentence = refusal(lambda: read(spark, node, subscribe=topic).count())
    assert sentence == f"there is no topic {topic}; create it with `headrace topic create {topic}`"


def test_a_node_that_does_not_answer_fails_with_one_sentence(spark: SparkSession) -> None:
    frame = spark.read.format("headrace").option("kafka.bootstrap.servers", "127.0.0.1:1").option("subscribe", "a")
    assert refusal(lambda: frame.load().count()).startswith("no node answers at 127.0.0.1:1; is one running there?")


def test_an_option_is_refused_where_the_frame_is_made(spark: SparkSession, node: NodeProcess) -> None:
    sentence = refusal(lambda: read(spark, node, subscibe="orders"))
    assert sentence == "there is no option subscibe; did you mean subscribe?"


def test_partitions_that_an_option_forgets_or_invents_are_named(node: NodeProcess, topic: str) -> None:
    create(node, topic, partitions=2)

    def refused(**options: object) -> str:
        with pytest.raises(OptionError) as caught:
            BatchReader(FULL_SCHEMA, options_of(node, **options)).partitions()
        return str(caught.value)

    def starting(*offsets: int) -> str:
        text = json.dumps({topic: dict(enumerate(offsets))})
        return refused(subscribe=topic, startingOffsets=text)

    assert f"says nothing of {topic}-1" in starting(0)
    assert f"names {topic}-2, which is not read" in starting(0, 0, 0)
    assert f"has 5 for {topic}-0, which ends at 0" in starting(5, 0)
    assert "has 2 partitions" in refused(assign=json.dumps({topic: [7]}))


def test_a_message_that_the_disk_has_damaged_ends_the_job_with_a_sentence_that_says_where_it_is(
    spark: SparkSession, node: NodeProcess, topic: str
) -> None:
    create(node, topic)
    mark = f"the value of {topic} ".encode()
    produce(node, topic, ["whole"])
    # Large enough to be in its segment by now, and not in the journal.
    send(node, topic, [Outgoing(mark + b"x" * 500_000)])
    (segment,) = [path for path in node.data.glob("partitions/*/*.log") if mark in path.read_bytes()]
    with segment.open("r+b") as file:
        file.seek(segment.read_bytes().index(mark))
        file.write(b"T")
    said = refusal(lambda: read(spark, node, subscribe=topic).collect())
    assert said.startswith(f"{topic}-0"), said
    assert "damaged" in said
    # What is whole can be read, and the rest of the node's topics too.
    ending = json.dumps({topic: {"0": 1}})
    assert values(read(spark, node, subscribe=topic, endingOffsets=ending).collect()) == ["whole"]
