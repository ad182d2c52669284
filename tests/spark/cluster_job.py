"""The driver of the cluster's test: a topic through Python tasks into a topic, and then into the lake.

In its second batch each task stops in the middle, with half of its rows given to the sink, writes down which executor
it is in, and waits until it is told to go on: time for a test to kill that executor.
"""

import os
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import psutil
import pyarrow as pa
from pyspark.sql import SparkSession
from pyspark.taskcontext import TaskContext

from headrace.spark import session

_LOOK_S = 0.05
_DEADLINE_S = 120.0


def executor_pid() -> int:
    """The JVM above this Python worker."""
    above: list[psutil.Process] = psutil.Process(os.getpid()).parents()
    return int(next(process.pid for process in above if process.name() == "java"))


def hold(place: Path) -> None:
    """Say where this is, and wait."""
    (place / f"held-{executor_pid()}").touch()
    pause, waited_s = threading.Event(), 0.0
    while not (place / "go").exists():
        assert waited_s < _DEADLINE_S, "nobody said go"
        pause.wait(_LOOK_S)
        waited_s += _LOOK_S


def copy(spark: SparkSession, server: str, source: str, name: str, place: Path, sink: dict[str, str]) -> None:
    """Run one query to its end; the sink's options name its format."""
    place = place / name
    place.mkdir()

    def held(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        context = TaskContext.get()
        assert context is not None
        is_second = context.getLocalProperty("streaming.sql.batchId") == "1"
        for batch in batches:
            half = batch.num_rows // 2
            yield batch.slice(0, half)
            if is_second:
                hold(place)
            yield batch.slice(half)

    rows = (
        spark.readStream.format("headrace")
        .option("kafka.bootstrap.servers", server)
        .option("subscribe", source)
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", "400")
        .load()
        .select("key", "value")
        .mapInArrow(held, "key binary, value binary")
    )
    options = dict(sink)
    query = (
        rows.writeStream.format(options.pop("format"))
        .options(**options)
        .option("checkpointLocation", str(place / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()


def main(master: str, server: str, source: str, target: str, place: Path) -> None:
    spark = session(
        "cluster-test",
        master=master,
        config={
            "spark.executor.memory": "512m",
            "spark.driver.memory": "512m",
            "spark.sql.shuffle.partitions": "2",
            # A dead executor is no fault of the task's, but both may be hit.
            "spark.task.maxFailures": "8",
        },
    )
    to_topic = {"format": "headrace", "kafka.bootstrap.servers": server, "topic": target}
    copy(spark, server, source, "topic", place, to_topic)
    copy(spark, server, source, "lake", place, {"format": "headrace_delta", "path": str(place / "table")})
    spark.stop()


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], sys.argv[3], sys.argv[4], Path(sys.argv[5]))
