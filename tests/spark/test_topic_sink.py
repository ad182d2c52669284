"""Rows into topics, in batches and as streams, through a real Spark and a real node."""

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import col
from tests.spark.topic_sink import committed, create_topic, numbers, refusal, values, write
from tests.support.node import NodeProcess

from headrace.client.partitioner import partition_for_key
from headrace.spark.errors import explain
from headrace.spark.sink.staging import INLINE_BYTES_MAX


def texts(spark: SparkSession, count: int, *, tasks: int = 2) -> DataFrame:
    return spark.range(0, count, 1, tasks).select(col("id").cast("string").alias("value"))


def files_in(directory: Path) -> list[Path]:
    return [path for path in directory.rglob("*") if path.is_file()]


# A batch.


def test_a_row_becomes_a_message_with_its_key_headers_and_time(
    spark: SparkSession, node: NodeProcess, topic: str
) -> None:
    at = datetime(2026, 3, 1, 12, 0, 0, 250_000, tzinfo=UTC)
    columns = "key string, value string, headers array<struct<key:string,value:binary>>, timestamp timestamp"
    rows = [("k", "v", [("trace", b"1"), ("trace", None)], at), (None, None, None, None)]
    create_topic(node, topic, retention_ms="-1")
    write(spark.createDataFrame(rows, columns).coalesce(1), node, topic=topic)
    first, second = committed(node, topic)
    assert (first.key, first.value) == (b"k", b"v")
    assert first.headers == (("trace", b"1"), ("trace", None))
    assert first.timestamp_ms == int(at.timestamp() * 1000)
    assert (second.key, second.value, second.headers) == (None, None, ())
    assert second.timestamp_ms is not None
    assert abs(second.timestamp_ms - datetime.now(UTC).timestamp() * 1000) < 60_000


def test_rows_go_to_the_partition_they_name_or_to_that_of_their_key(
    spark: SparkSession, node: NodeProcess, topic: str
) -> None:
    create_topic(node, topic, partitions=5)
    keys = [f"key-{number}".encode() for number in range(200)]
    rows: list[tuple[Any, ...]] = [(key, key, None) for key in keys]
    rows += [(None, f"{number}".encode(), number % 5) for number in range(50)]
    write(spark.createDataFrame(rows, "key binary, value binary, partition int").coalesce(1), node, topic=topic)
    for partition in range(5):
        found = committed(node, topic, partition)
        of_keys = [message.key for message in found if message.key is not None]
        assert of_keys == [key for key in keys if partition_for_key(key, 5) == partition]
        named = [int(message.value or b"") for message in found if message.key is None]
        assert named == list(range(partition, 50, 5))


def test_a_column_says_the_topic_of_each_row(spark: SparkSession, node: NodeProcess, topic: str) -> None:
    """The topics are made on first use; an option would count for more than the column."""
    rows = [(f"{topic}-{number % 3}", str(number)) for number in range(60)]
    df = spark.createDataFrame(rows, "topic string, value string")
    write(df, node)
    for number in range(3):
        assert set(values(node, f"{topic}-{number}")) == {str(n) for n in range(number, 60, 3)}
    write(df, node, topic=topic)
    assert values(node, topic) == numbers(60)


@pytest.mark.parametrize("codec", ["gzip", "snappy", "lz4", "zstd"])
def test_every_codec_is_read_by_other_clients(spark: SparkSession, node: NodeProcess, topic: str, codec: str) -> None:
    write(texts(spark, 500), node, topic=topic, kafka_compression_type=codec)
    assert values(node, topic) == numbers(500)


def test_large_output_waits_in_files_which_are_gone_afterwards(
    spark: SparkSession, node: NodeProcess, topic: str, tmp_path: Path
) -> None:
    create_topic(node, topic, partitions=3)
    count, text = 3000, "x" * 1000
    df = spark.range(0, count, 1, 2).selectExpr("cast(id as string) AS key", f"concat(id, '-{text}') AS value")
    assert count * len(text) / 2 > INLINE_BYTES_MAX
    write(df, node, topic=topic, stagingDirectory=tmp_path / "staging")
    found = values(node, topic, partitions=3)
    assert {value.split("-")[0] for value in found} == {str(number) for number in range(count)}
    assert sum(found.values()) == count
    assert files_in(tmp_path / "staging") == []


def test_a_job_with_a_key_publishes_once(spark: SparkSession, node: NodeProcess, topic: str) -> None:
    for _ in range(2):
        write(texts(spark, 100), node, topic=topic, idempotencyKey="nightly")
    assert values(node, topic) == numbers(100)
    write(texts(spark, 100), node, topic=f"{topic}-other", idempotencyKey="nightly")
    assert values(node, f"{topic}-other") == numbers(100)


def test_jobs_are_told_apart_however_the_names_of_keys_and_topics_run_together(
    spark: SparkSession, node: NodeProcess, topic: str
) -> None:
    one = spark.createDataFrame([("0",)], "value string")
    write(one, node, topic=f"orders-{topic}", idempotencyKey="daily")
    write(one, node, topic=topic, idempotencyKey="daily-orders")
    assert values(node, topic) == numbers(1)
    by_column = spark.createDataFrame([(f"{topic}-by-column", "0")], "topic string, value string")
    write(by_column, node, idempotencyKey=f"daily-orders-{topic}")
    assert values(node, f"{topic}-by-column") == numbers(1)
    write(one, node, topic=f"orders-{topic}-app", txnAppId="daily", txnVersion=3)
    write(one, node, topic=f"{topic}-app", txnAppId="daily-orders", txnVersion=3)
    assert values(node, f"{topic}-app") == numbers(1)


def test_a_job_with_versions_publishes_each_of_them_once(spark: SparkSession, node: NodeProcess, topic: str) -> None:
    for version in (0, 1, 1, 0, 2):
        df = spark.createDataFrame([(str(version),)], "value string")
        write(df, node, topic=topic, txnAppId="loader", txnVersion=version)
    assert values(node, topic) == numbers(3)


def test_a_task_that_fails_leaves_nothing_that_counts(
    spark: SparkSession, node: NodeProcess, topic: str, tmp_path: Path
) -> None:
    """Not even the output of tasks that came to an end. A task that fails by itself removes its files; one that Spark
    kills at that moment cannot, and what it leaves is removed by a later job."""
    text = "x" * 1000
    df = spark.range(0, 2000, 1, 2).selectExpr(
        f"concat(id, '{text}') AS value", "cast(if(id = 1999, 77, 0) AS int) AS partition"
    )
    create_topic(node, topic)
    for tasks, staging in ((df, "of two"), (df.coalesce(1), "of one")):
        said = refusal(lambda: write(tasks, node, topic=topic, stagingDirectory=tmp_path / staging))  # noqa: B023
        assert said == f"{topic} has 1 partitions, numbered from 0; a row's column partition is 77"
        assert committed(node, topic) == []
    assert files_in(tmp_path / "of one") == []


def test_a_row_that_is_too_large_is_refused_before_anything_is_published(
    spark: SparkSession, node: NodeProcess, topic: str
) -> None:
    create_topic(node, topic, max_message_bytes="20000")
    small = spark.range(0, 500, 1, 1).selectExpr("repeat('s', 100) AS value")
    write(small, node, topic=topic)
    assert len(committed(node, topic)) == 500
    large = small.union(spark.sql("SELECT repeat('l', 30000) AS value"))
    said = refusal(lambda: write(large, node, topic=topic))
    assert "takes 20000 at once; raise its max.message.bytes" in said
    assert len(committed(node, topic)) == 500


def test_no_rows_are_no_messages(spark: SparkSession, node: NodeProcess, topic: str) -> None:
    create_topic(node, topic)
    write(texts(spark, 0), node, topic=topic)
    assert committed(node, topic) == []


# What is refused, in one sentence and before anything runs. What Spark makes of the sentence is seen in some of them.


def test_what_cannot_be_written_is_refused_on_the_driver(spark: SparkSession, node: NodeProcess, topic: str) -> None:
    df = texts(spark, 1)
    assert refusal(lambda: write(df, node, topik=topic)) == "there is no option topik; did you mean topic?"
    said = refusal(lambda: write(df.withColumnRenamed("value", "text"), node, topic=topic))
    assert said == "a column value, text or binary, is missing; there are text"
    overwrite = df.write.format("headrace").mode("overwrite").option("kafka.bootstrap.servers", node.server)
    said = refusal(lambda: overwrite.option("topic", topic).save())
    assert said == "a topic is added to and not overwritten; say mode('append')"
    nobody = df.write.format("headrace").mode("append").option("kafka.bootstrap.servers", "127.0.0.1:1")
    said = refusal(lambda: nobody.option("topic", topic).save())
    assert said.startswith("no node answers at 127.0.0.1:1;")
    assert said.endswith("with the option kafka.bootstrap.servers")
    said = refusal(lambda: write(df, node, topic=topic, kafka_transaction_timeout_ms=10**9))
    assert said.startswith("the node allows no transaction of 1000000000 ms")


def test_a_row_without_a_topic_is_refused(spark: SparkSession, node: NodeProcess) -> None:
    df = spark.sql("SELECT 'v' AS value, cast(null AS string) AS topic")
    assert refusal(lambda: write(df, node)).startswith("a row has no topic")
    df = spark.sql("SELECT 'v' AS value, '' AS topic")
    assert refusal(lambda: write(df, node)) == "a row's column topic is '': a topic name must not be empty"


# A stream.


def test_a_stream_goes_from_topic_to_topic_and_on_from_its_checkpoint(
    spark: SparkSession, node: NodeProcess, topic: str, checkpoint: str
) -> None:
    target = f"{topic}-out"
    create_topic(node, topic, partitions=2)
    create_topic(node, target, partitions=3)
    for first in (0, 400):
        df = spark.range(first, first + 400).selectExpr("cast(id AS string) AS key", "cast(id AS string) AS value")
        write(df, node, topic=topic)
        rows = spark.readStream.format("headrace").option("kafka.bootstrap.servers", node.server)
        query = (
            rows.option("subscribe", topic)
            .option("startingOffsets", "earliest")
            .option("maxOffsetsPerTrigger", "150")
            .load()
            .select("key", "value")
            .writeStream.format("headrace")
            .option("kafka.bootstrap.servers", node.server)
            .option("topic", target)
            .option("checkpointLocation", checkpoint)
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()
        assert values(node, target, partitions=3) == numbers(first + 400)


def test_a_stream_takes_no_key_of_a_job(spark: SparkSession, node: NodeProcess, topic: str, checkpoint: str) -> None:
    query = (
        spark.readStream.format("rate-micro-batch")
        .option("rowsPerBatch", "1")
        .load()
        .selectExpr("cast(value AS string) AS value")
        .writeStream.format("headrace")
        .options(**{"kafka.bootstrap.servers": node.server, "topic": topic, "idempotencyKey": "x"})
        .option("checkpointLocation", checkpoint)
        .start()
    )
    with pytest.raises(Exception, match="a streaming query knows its batches") as caught:
        query.awaitTermination(60)
    assert explain(caught.value).startswith("a streaming query knows its batches")
