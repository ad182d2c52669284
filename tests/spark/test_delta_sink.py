"""`format("headrace_delta")` with a real Spark: batch and streaming, once each, refused before anything is written."""

import datetime
import json
from pathlib import Path

import pytest
from deltalake import DeltaTable
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from tests.spark.source_data import refusal

from headrace.spark.lake.reading import Snapshot, read_table


@pytest.fixture
def table(tmp_path: Path) -> Path:
    return tmp_path / "table"


def numbers(path: Path) -> list[int]:
    return sorted(DeltaTable(path).to_pyarrow_table()["id"].to_pylist())


def append(frame: DataFrame, path: Path, **options: str) -> None:
    frame.write.format("headrace_delta").mode("append").options(**options).save(str(path))


def files_in(path: Path) -> set[str]:
    return {str(file.relative_to(path)) for file in path.rglob("*.parquet")}


def test_rows_of_every_type_come_back_as_they_were(spark: SparkSession, table: Path) -> None:
    row = (
        7,
        2,
        3,
        1.5,
        2.5,
        True,
        "text",
        b"\x00\xff",
        datetime.date(2026, 3, 1),
        datetime.datetime(2026, 3, 1, 12, 0, 0, 123456),
        [("k", b"v"), ("k", None)],
        {"a": 1},
        "x/y z",
    )
    schema = (
        "a long, b int, c short, d double, e float, f boolean, g string, h binary, i date, j timestamp, "
        "k array<struct<key:string,value:binary>>, l map<string,int>, p string"
    )
    empty = (None,) * 12 + ("x/y z",)
    frame = spark.createDataFrame([row, empty], schema)
    append(frame, table, partitionBy="p")
    assert read_table(spark, table).orderBy("a").collect() == frame.orderBy("a").collect()
    assert DeltaTable(table).to_pyarrow_table().num_rows == 2


def test_partition_values_come_back_as_the_log_has_them(spark: SparkSession, table: Path) -> None:
    """Spark would make something else of the directories of all but one of these."""
    values = ["ü", "日本", "__HIVE_DEFAULT_PARTITION__", None, "plain"]
    rows = [(value, datetime.datetime(2026, 3, 1, 12, hour), hour) for hour, value in enumerate(values)]
    append(spark.createDataFrame(rows, "p string, at timestamp, id int"), table, partitionBy="p,at")
    assert [tuple(row) for row in read_table(spark, table).orderBy("id").collect()] == rows
    assert [row["id"] for row in read_table(spark, table).where("p = 'ü'").collect()] == [0]


def test_directories_are_left_out_that_a_query_does_not_need(spark: SparkSession, table: Path) -> None:
    rows = [("ü", 0), ("plain", 1), ("other", 2)]
    append(spark.createDataFrame(rows, "p string, id int"), table, partitionBy="p")
    (removed,) = (file for file in files_in(table) if file.startswith("p=other"))
    (table / removed).write_bytes(b"not a file of Parquet")
    assert [row["id"] for row in read_table(spark, table).where("p = 'plain'").collect()] == [1]


def test_a_table_is_read_by_its_address_and_with_dots_in_its_columns(spark: SparkSession, table: Path) -> None:
    frame = spark.createDataFrame([(1, "a", "p")], "`a.b` int, `c``d` string, `e.f` string")
    frame.write.format("headrace_delta").mode("append").option("partitionBy", "e.f").save(table.as_uri())
    assert read_table(spark, table.as_uri()).collect() == frame.collect()


def test_a_table_is_read_wherever_it_is(spark: SparkSession, table: Path) -> None:
    place = table.parent / "größe mit leer"
    link = table.parent / "link"
    link.symlink_to(place)
    frame = spark.createDataFrame([(1, "é x"), (2, "plain")], "id int, p string")
    append(frame, place, partitionBy="p")
    for path in (place, link):
        assert sorted(read_table(spark, path).collect()) == frame.collect()
        assert Snapshot(path).between(spark, "id", 2, 3).collect() == frame.where("id = 2").collect()


def test_a_binary_column_to_partition_by_is_refused_before_anything_is_written(
    spark: SparkSession, table: Path
) -> None:
    frame = spark.createDataFrame([(b"x", 1)], "p binary, id int")
    assert refusal(lambda: append(frame, table, partitionBy="p")) == (
        "partitionBy names p, which is binary, and a partition's value is text; partition by hex(p)"
    )
    assert not table.exists()


def test_who_reads_with_the_sink_s_format_is_told_how_tables_are_read(spark: SparkSession, table: Path) -> None:
    append(spark.range(1), table)
    spark.range(1).write.format("headrace_delta").mode("append").option("path", str(table)).saveAsTable("by_name")
    told = "headrace.spark.lake.reading.read_table(session, "
    assert f"{told}'{table}')" in refusal(lambda: spark.read.format("headrace_delta").load(str(table)).collect())
    assert told in refusal(lambda: spark.table("by_name").collect())
    spark.sql("DROP TABLE by_name")


def test_a_path_that_is_a_file_is_refused_by_one_sentence(spark: SparkSession, table: Path) -> None:
    table.write_text("no table")
    for path in (table, table / "below"):
        sentence = f"{table} is a file, and the table {path} is a directory; give another path"
        assert refusal(lambda path=path: append(spark.range(1), path)) == sentence  # type: ignore[misc]


def test_a_batch_is_one_version_of_the_table(spark: SparkSession, table: Path) -> None:
    append(spark.range(1000, numPartitions=4), table)
    append(spark.range(1000, 2000, numPartitions=4), table)
    assert numbers(table) == list(range(2000))
    assert [entry["operation"] for entry in DeltaTable(table).history()] == ["WRITE", "WRITE", "CREATE TABLE"]


def test_files_are_skipped_by_their_statistics(spark: SparkSession, table: Path) -> None:
    append(spark.range(1000, numPartitions=1), table)
    append(spark.range(1000, 2000, numPartitions=1), table)
    least = DeltaTable(table).get_add_actions(flatten=True)["min.id"].to_pylist()
    assert sorted(least) == [0, 1000]


def test_a_job_with_a_key_happens_once(spark: SparkSession, table: Path) -> None:
    for _ in range(2):
        append(spark.range(10), table, idempotencyKey="job-1")
    append(spark.range(10, 20), table, idempotencyKey="job-2")
    assert numbers(table) == list(range(20))


def test_batches_of_a_foreach_happen_once_by_application_and_version(spark: SparkSession, table: Path) -> None:
    for version in ("0", "0", "1"):
        append(spark.range(int(version), int(version) + 1), table, txnAppId="mine", txnVersion=version)
    assert numbers(table) == [0, 1]


def test_overwriting_replaces_all_rows_at_once(spark: SparkSession, table: Path) -> None:
    append(spark.range(10), table)
    spark.range(5).write.format("headrace_delta").mode("overwrite").save(str(table))
    assert numbers(table) == list(range(5))


def test_a_frame_without_rows_makes_a_table_without_rows(spark: SparkSession, table: Path) -> None:
    append(spark.range(0), table)
    assert read_table(spark, table).count() == 0


def test_columns_are_added_where_asked_and_missing_ones_are_null(spark: SparkSession, table: Path) -> None:
    append(spark.range(1), table)
    append(spark.range(1, 2).withColumn("note", F.lit("new")), table, mergeSchema="true")
    append(spark.range(2, 3), table, mergeSchema="true")
    assert [tuple(row) for row in read_table(spark, table).orderBy("id").collect()] == [
        (0, None),
        (1, "new"),
        (2, None),
    ]


def test_rows_that_do_not_fit_are_refused_by_one_sentence_before_anything_is_written(
    spark: SparkSession, table: Path
) -> None:
    append(spark.range(10), table)
    before = files_in(table), DeltaTable(table).version()
    drifted = spark.range(10).withColumn("note", F.lit("x"))
    assert refusal(lambda: append(drifted, table)) == (
        f"the rows do not fit the table at {table}: column note is new here. "
        "With the option mergeSchema new columns are added and missing ones are null"
    )
    assert refusal(lambda: append(drifted, table, megreSchema="true")).endswith("did you mean mergeSchema?")
    assert (files_in(table), DeltaTable(table).version()) == before


def test_nothing_of_a_failed_batch_is_seen(spark: SparkSession, table: Path) -> None:
    append(spark.range(10), table)
    value = F.when(F.col("id") < 19_000, F.col("id")).otherwise(F.raise_error(F.lit("no")))
    with pytest.raises(PySparkException):
        append(spark.range(20_000, numPartitions=2).select(value.alias("id")), table)
    assert numbers(table) == list(range(10))
    assert DeltaTable(table).version() == 1


# Streaming.


def feed(directory: Path, name: str, ids: range) -> None:
    """One file of a streaming source."""
    directory.mkdir(exist_ok=True)
    hidden = directory / f".{name}"
    hidden.write_text("".join(json.dumps({"id": number}) + "\n" for number in ids), encoding="utf-8")
    hidden.rename(directory / name)


def stream(spark: SparkSession, source: Path) -> DataFrame:
    return spark.readStream.schema("id long").option("maxFilesPerTrigger", "1").json(str(source))


def run_all(frame: DataFrame, table: Path, checkpoint: str, *, mode: str = "append", **options: str) -> None:
    writer = frame.writeStream.format("headrace_delta").outputMode(mode).options(**options)
    query = writer.option("checkpointLocation", checkpoint).trigger(availableNow=True).start(str(table))
    query.awaitTermination()


def test_a_stream_goes_on_where_it_was(spark: SparkSession, table: Path, tmp_path: Path, checkpoint: str) -> None:
    source = tmp_path / "source"
    feed(source, "1", range(10))
    feed(source, "2", range(10, 20))
    run_all(stream(spark, source), table, checkpoint)
    feed(source, "3", range(20, 30))
    run_all(stream(spark, source), table, checkpoint)
    assert numbers(table) == list(range(30))
    assert DeltaTable(table).version() == 3


def test_a_batch_that_spark_repeats_adds_nothing(
    spark: SparkSession, table: Path, tmp_path: Path, checkpoint: str
) -> None:
    """Without Spark's own commit of the last batch, as after a crash between the two commits."""
    source = tmp_path / "source"
    feed(source, "1", range(10))
    run_all(stream(spark, source), table, checkpoint)
    feed(source, "2", range(10, 20))
    run_all(stream(spark, source), table, checkpoint)
    before = files_in(table)
    for name in ("1", ".1.crc"):
        (Path(checkpoint) / "commits" / name).unlink(missing_ok=True)
    run_all(stream(spark, source), table, checkpoint)
    assert numbers(table) == list(range(20))
    assert files_in(table) == before


def test_rows_of_a_topic_come_once_although_the_checkpoint_is_lost(
    spark: SparkSession, table: Path, tmp_path: Path
) -> None:
    source = tmp_path / "source"

    def topic_rows() -> DataFrame:
        return stream(spark, source).select(
            F.lit("orders").alias("topic"),
            (F.col("id") % 2).cast("int").alias("partition"),
            F.floor(F.col("id") / 2).alias("offset"),
            "id",
        )

    for run in range(3):
        feed(source, str(run), range(run * 10, run * 10 + 10))
        run_all(topic_rows(), table, str(tmp_path / f"checkpoint-{run}"), keyedBy="offset", partitionBy="topic")
    assert numbers(table) == list(range(30))


def test_a_complete_result_replaces_the_one_before(
    spark: SparkSession, table: Path, tmp_path: Path, checkpoint: str
) -> None:
    source = tmp_path / "source"
    for run in range(2):
        feed(source, str(run), range(run * 10, run * 10 + 10))
        counted = stream(spark, source).groupBy((F.col("id") % 2).alias("id")).count()
        run_all(counted, table, checkpoint, mode="complete")
    assert DeltaTable(table).to_pyarrow_table().sort_by("id").to_pydict() == {"id": [0, 1], "count": [10, 10]}
