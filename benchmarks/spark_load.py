"""The Spark side of the benchmark, in a process of its own: a session, and each way to move rows as a user writes it.

Run as `python -m benchmarks.spark_load SERVER TOPIC DIRECTORY --turns 3`; it prints what it measured as JSON. Every way
has a turn before the next one has its second, so that a change of the machine's mood meets all of them. One turn before
those that count lets the JVM compile what it runs.
"""

import argparse
import shutil
import sys
import time
from collections.abc import Callable
from pathlib import Path

import msgspec
from pyspark.sql import DataFrame, SparkSession

from benchmarks import spark_latency
from benchmarks.spark_data import DOCUMENTS, RANDOM, make_topic, topic_of
from benchmarks.spark_measured import CODEC, STREAM_BATCH_ROWS, MeasuredSpark
from benchmarks.spark_memory import Watch
from headrace.spark import session


class Ways:
    """Each returns when everything has arrived."""

    def __init__(self, spark: SparkSession, server: str, topic: str, directory: Path) -> None:
        self._spark = spark
        self._server = server
        self._topic = topic
        self._directory = directory
        self._count = 0

    def parquet(self, kind: str = DOCUMENTS) -> str:
        return str(self._directory / f"{kind}.parquet")

    def write_parquet(self, kind: str) -> None:
        self.source(kind).write.mode("overwrite").parquet(self.parquet(kind))

    def source(self, kind: str = DOCUMENTS) -> DataFrame:
        reader = self._spark.read.format("headrace").option("kafka.bootstrap.servers", self._server)
        return reader.option("subscribe", topic_of(self._topic, kind)).load()

    def source_to_noop(self) -> None:
        self.source().write.format("noop").mode("overwrite").save()

    def pruned_source_to_noop(self) -> None:
        reader = self._spark.read.format("headrace").option("kafka.bootstrap.servers", self._server)
        reader = reader.schema("key binary, partition int, offset long, timestamp timestamp")
        reader.option("subscribe", self._topic).load().write.format("noop").mode("overwrite").save()

    def parquet_to_noop(self) -> None:
        self._spark.read.parquet(self.parquet()).write.format("noop").mode("overwrite").save()

    def random_source_to_noop(self) -> None:
        self.source(RANDOM).write.format("noop").mode("overwrite").save()

    def random_parquet_to_noop(self) -> None:
        self._spark.read.parquet(self.parquet(RANDOM)).write.format("noop").mode("overwrite").save()

    def source_to_delta(self) -> None:
        writer = self.source().write.format("headrace_delta").mode("append").option("compression", CODEC)
        writer.save(self._new("delta"))

    def parquet_to_parquet(self) -> None:
        writer = self._spark.read.parquet(self.parquet()).write.mode("append").option("compression", CODEC)
        writer.parquet(self._new("parquet"))

    def stream_to_delta(self) -> None:
        reader = self._spark.readStream.format("headrace").option("kafka.bootstrap.servers", self._server)
        reader = reader.option("subscribe", self._topic).option("startingOffsets", "earliest")
        rows = reader.option("maxOffsetsPerTrigger", STREAM_BATCH_ROWS).load()
        writer = rows.writeStream.format("headrace_delta").option("compression", CODEC).trigger(availableNow=True)
        query = writer.option("checkpointLocation", self._new("checkpoint")).start(self._new("stream"))
        query.awaitTermination()

    def topic_to_topic(self) -> None:
        target = Path(self._new("copy")).name
        make_topic(self._server, target, partitions=4)
        rows = self.source().select("key", "value")
        rows.write.format("headrace").option("kafka.bootstrap.servers", self._server).mode("append").option(
            "topic", target
        ).save()

    def clean_up(self) -> None:
        for path in self._directory.glob("turn-*"):
            shutil.rmtree(path)

    def _new(self, name: str) -> str:
        self._count += 1
        return str(self._directory / f"turn-{self._count}-{name}")


WAYS: dict[str, Callable[[Ways], None]] = {
    "source_to_noop": Ways.source_to_noop,
    "parquet_to_noop": Ways.parquet_to_noop,
    "random_source_to_noop": Ways.random_source_to_noop,
    "random_parquet_to_noop": Ways.random_parquet_to_noop,
    "pruned_source_to_noop": Ways.pruned_source_to_noop,
    "source_to_delta": Ways.source_to_delta,
    "parquet_to_parquet": Ways.parquet_to_parquet,
    "stream_to_delta": Ways.stream_to_delta,
    "topic_to_topic": Ways.topic_to_topic,
}


def measure(
    server: str, topic: str, directory: Path, *, names: list[str], turns: int, latency_count: int
) -> MeasuredSpark:
    begun_s = time.perf_counter()
    spark = session("benchmark")
    ways = Ways(spark, server, topic, directory)
    rows = ways.source().count()
    start_s = time.perf_counter() - begun_s
    for kind in {RANDOM if name.startswith(RANDOM) else DOCUMENTS for name in names}:
        ways.write_parquet(kind)
    seconds: dict[str, list[float]] = {name: [] for name in names}
    watches = {name: Watch() for name in names}
    for turn in range(turns + 1):
        for name in names:
            with watches[name]:
                begun_s = time.perf_counter()
                WAYS[name](ways)
                taken_s = time.perf_counter() - begun_s
            ways.clean_up()
            if turn:
                seconds[name].append(taken_s)
    latencies = spark_latency.measure(spark, server, directory, count=latency_count) if latency_count else {}
    memory = {name: watch.found() for name, watch in watches.items()}
    spark.stop()
    return MeasuredSpark(rows=rows, seconds=seconds, latencies=latencies, memory=memory, start_s=start_s)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.spark_load")
    parser.add_argument("server")
    parser.add_argument("topic")
    parser.add_argument("directory", type=Path)
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--ways", nargs="*", choices=list(WAYS), default=list(WAYS))
    parser.add_argument("--latencies", type=int, default=50, help="messages whose way is timed; 0 for none")
    given = parser.parse_args()
    found = measure(
        given.server,
        given.topic,
        given.directory,
        names=given.ways,
        turns=given.turns,
        latency_count=given.latencies,
    )
    sys.stdout.buffer.write(msgspec.json.encode(found))


if __name__ == "__main__":
    main()
