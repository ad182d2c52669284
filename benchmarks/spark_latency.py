"""How long one message takes from its sender to a sink, through a streaming query that does nothing but move it.

Messages are sent one at a time, each when the one before has arrived and a pause of a random length is over, so that
they meet the query anywhere between two of its batches. To a topic, a message has arrived when a reader of what is
committed gets it; to a table, when the entry of its log is on disk.
"""

import random
import time
from collections.abc import Callable
from pathlib import Path

from confluent_kafka import Consumer, Producer, TopicPartition
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from benchmarks.spark_data import make_topic
from benchmarks.spark_measured import MeasuredLatency

DEADLINE_S = 60.0
PAUSE_S_MAX = 0.3
WARM_UP = 5
LOOK_S = 0.001


def measure(spark: SparkSession, server: str, directory: Path, *, count: int) -> dict[str, MeasuredLatency]:
    return {
        "topic": _to_topic(spark, server, directory, count),
        "Delta table": _to_delta(spark, server, directory, count),
    }


def _stream(spark: SparkSession, server: str, topic: str) -> DataFrame:
    make_topic(server, topic, partitions=1)
    reader = spark.readStream.format("headrace").option("kafka.bootstrap.servers", server)
    return reader.option("subscribe", topic).option("startingOffsets", "earliest").load().select("key", "value")


def _to_topic(spark: SparkSession, server: str, directory: Path, count: int) -> MeasuredLatency:
    make_topic(server, "latency-out", partitions=1)
    writer = _stream(spark, server, "latency-to-topic").writeStream.format("headrace")
    writer = writer.option("kafka.bootstrap.servers", server).option("topic", "latency-out")
    query = writer.option("checkpointLocation", str(directory / "latency-topic-checkpoint")).start()
    consumer = Consumer(
        {"bootstrap.servers": server, "group.id": "latency", "fetch.wait.max.ms": 100, "auto.offset.reset": "earliest"}
    )
    consumer.assign([TopicPartition("latency-out", 0, 0)])

    def arrived() -> float:
        deadline_s = time.time() + DEADLINE_S
        while time.time() < deadline_s:
            message = consumer.poll(1.0)
            if message is not None and message.error() is None:
                return time.time()
        raise RuntimeError(f"no message arrived within {DEADLINE_S:.0f} s: {query.exception()}")

    try:
        return _time(server, "latency-to-topic", arrived, count)
    finally:
        consumer.close()
        _end(query)


def _to_delta(spark: SparkSession, server: str, directory: Path, count: int) -> MeasuredLatency:
    table = directory / "latency-table"
    writer = _stream(spark, server, "latency-to-delta").writeStream.format("headrace_delta")
    query = writer.option("checkpointLocation", str(directory / "latency-delta-checkpoint")).start(str(table))
    seen = 0

    def arrived() -> float:
        nonlocal seen
        deadline_s = time.time() + DEADLINE_S
        while time.time() < deadline_s:
            entries = sorted((table / "_delta_log").glob("*.json"))
            added = [entry for entry in entries[seen:] if b'"add"' in entry.read_bytes()]
            seen = len(entries)
            if added:
                return added[0].stat().st_mtime
            time.sleep(LOOK_S)
        raise RuntimeError(f"no entry of the table within {DEADLINE_S:.0f} s: {query.exception()}")

    try:
        return _time(server, "latency-to-delta", arrived, count)
    finally:
        _end(query)


def _time(server: str, topic: str, arrived: Callable[[], float], count: int) -> MeasuredLatency:
    producer = Producer({"bootstrap.servers": server, "linger.ms": 0})
    rand = random.Random(1)
    found_ms = []
    for number in range(WARM_UP + count):
        time.sleep(rand.uniform(0, PAUSE_S_MAX))
        sent_s = time.time()
        producer.produce(topic, b"message %d" % number)
        producer.flush()
        taken_ms = (arrived() - sent_s) * 1000
        if number >= WARM_UP:
            found_ms.append(taken_ms)
    found_ms.sort()
    return MeasuredLatency(
        count=count,
        p50_ms=found_ms[len(found_ms) // 2],
        p95_ms=found_ms[int(len(found_ms) * 0.95)],
        max_ms=found_ms[-1],
    )


def _end(query: StreamingQuery) -> None:
    query.stop()
    query.awaitTermination()
