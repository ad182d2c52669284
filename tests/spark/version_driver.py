"""What every PySpark in the pinned range has to do with source and sinks. See test_versions."""

import sys
from pathlib import Path

import pyspark
from deltalake import DeltaTable
from pyspark.sql import DataFrame, SparkSession
from tests.spark.killed_driver import quick_session

COUNT = 60


def stream(spark: SparkSession, server: str, topic: str) -> DataFrame:
    reader = spark.readStream.format("headrace").option("kafka.bootstrap.servers", server)
    reader = reader.option("subscribe", topic).option("startingOffsets", "earliest")
    return reader.option("maxOffsetsPerTrigger", str(COUNT // 3)).load()


def copy(rows: DataFrame, format: str, checkpoint: Path, **options: str) -> list[dict[str, object]]:
    writer = rows.writeStream.format(format).options(**options).option("checkpointLocation", str(checkpoint))
    query = writer.trigger(availableNow=True).start()
    query.awaitTermination()
    return [dict(one) for one in query.recentProgress]


def main(version: str, server: str, source: str, target: str, place: Path) -> None:
    assert pyspark.__version__ == version, pyspark.__version__
    spark = quick_session("versions")
    read = spark.read.format("headrace").option("kafka.bootstrap.servers", server).option("subscribe", source)
    assert read.load().count() == COUNT
    assert read.option("pushFilters", "true").load().where("offset >= 10").count() == COUNT - 20
    for lost in (False, True):
        checkpoint = place / ("again" if lost else "first")
        for expected in (3, 0):  # the second time, there is nothing new
            reports = copy(
                stream(spark, server, source).select("key", "value"),
                "headrace",
                checkpoint / "topic",
                **{"kafka.bootstrap.servers": server, "topic": target if not lost else f"{target}-again"},
            )
            assert len([one for one in reports if one["numInputRows"]]) == expected, reports
        lake = {"path": str(place / "t"), "keyedBy": "offset"}
        copy(stream(spark, server, source), "headrace_delta", checkpoint / "lake", **lake)
    copy(stream(spark, server, source), "headrace_delta", place / "by-batch", path=str(place / "u"))
    for table in ("t", "u"):
        assert DeltaTable(place / table).to_pyarrow_table().num_rows == COUNT
    rows = read.load().select("value")
    for _ in range(2):
        writer = rows.write.format("headrace").mode("append").option("kafka.bootstrap.servers", server)
        writer.options(topic=target, idempotencyKey="once").save()
    spark.stop()


if __name__ == "__main__":
    given_version, given_server, given_source, given_target, given_place = sys.argv[1:]
    main(given_version, given_server, given_source, given_target, Path(given_place))
