"""Rollup: what the journal says happened to messages, added up by the minute; on real logs of a real node."""

import json
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from uuid import UUID

import pyarrow as pa
import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka import TopicPartition as Place
from deltalake import DeltaTable
from pyspark.sql import SparkSession
from tests.spark.pipeline_run import RecordingView, make_run
from tests.support.node import NodeProcess, running

from headrace.client.portal import BackgroundLoop
from headrace.client.queue.sync import Client
from headrace.client.stream import StreamClient
from headrace.client.values import Outgoing, TopicPartition
from headrace.folds.group.codec import encode_op as encode_group_op
from headrace.folds.group.op import OffsetEntry, OffsetsCommitted
from headrace.folds.queue.codec import encode_op
from headrace.folds.queue.instant import Instant
from headrace.folds.queue.op import Acked, Leased, Ticked, TxnAcked
from headrace.model.errors import UnknownTopicError
from headrace.model.names import GROUPS_TOPIC
from headrace.spark.errors import OptionError
from headrace.spark.journal.data_source import register
from headrace.spark.journal.entry import entries
from headrace.spark.pipeline.observed import observed_load
from headrace.spark.pipeline.rollup import RollupOptions, events, journal, messages, parsed, prepare, roll_up, run
from headrace.spark.pipeline.rollup_event import EVENT_SCHEMA, Events, rounded
from headrace.spark.pipeline.rollup_summary import summarise
from headrace.spark.pipeline.sent_time import SentTimes, Span
from headrace.wire.kafka.records import Record, encode_batch, encode_control_batch

T0 = 1_700_000_040_000  # the beginning of a minute
MINUTE_MS = 60_000
AT = TopicPartition("orders", 0)
TOPIC_ID = UUID(int=5)


class Log:
    """A partition's bytes, as a node would have them."""

    def __init__(self) -> None:
        self.data = bytearray()
        self.end = 0

    def send(self, count: int, first_ms: int, last_ms: int | None = None) -> None:
        times = [first_ms] * (count - 1) + [first_ms if last_ms is None else last_ms]
        records = [Record(timestamp_ms=time, key=None, value=b"x" * 10) for time in times]
        self._append(encode_batch(records, base_offset=self.end), count)

    def note(self, kind: int, value: bytes) -> None:
        batch = encode_control_batch(kind, value, timestamp_ms=T0)
        batch[:8] = self.end.to_bytes(8)
        self._append(batch, 1)

    def _append(self, batch: bytearray, count: int) -> None:
        self.data += batch
        self.end += count

    def journal(self, topic: str = AT.topic) -> pa.RecordBatch:
        return entries(self.data, topic=topic, partition=0, start=0, end=self.end)[0]


def nowhere(at: TopicPartition, offset: int) -> bytes:
    return b""


def taken(*journals: pa.RecordBatch, look: Any = nowhere, now_ms: int = T0 + 60 * MINUTE_MS) -> list[dict[str, Any]]:
    taker = Events(SentTimes(look), {TOPIC_ID: "orders"}, now_ms=now_ms)
    return [row for batch in journals for row in taker.take(batch).to_pylist()]


def brief(rows: Iterable[dict[str, Any]]) -> list[tuple[Any, ...]]:
    return sorted((row["event"], row["messages"], row["ageMs"]) for row in rows)


def acked(wall_ms: int, *offsets: int) -> tuple[int, bytes]:
    return encode_op(UUID(int=1), Acked(offsets, Instant(0, wall_ms)))


# When was it sent.


def test_a_message_of_a_batch_that_was_read_has_its_time() -> None:
    times = SentTimes(nowhere)
    times.learn(AT, Span(10, 20, 1_000, 2_000))
    times.learn(AT, Span(25, 25, 3_000, 3_000))
    assert [times.find(AT, offset) for offset in (10, 15, 20, 25)] == [1_000, 1_500, 2_000, 3_000]
    assert [times.find(AT, offset) for offset in (9, 21, 26)] == [None, None, None]
    assert times.find(AT._replace(partition=1), 10) is None


def test_the_log_is_asked_once_for_what_was_not_read() -> None:
    log, asked = Log(), []
    log.send(5, T0)
    log.send(5, T0 + 7)
    log.note(*acked(T0, 0))

    def look(at: TopicPartition, offset: int) -> bytes:
        asked.append(offset)
        return bytes(log.data)

    times = SentTimes(look)
    assert [times.find(AT, offset) for offset in (2, 3, 7)] == [T0, T0, T0 + 7]
    assert asked == [2]


def test_the_log_is_asked_once_for_what_is_gone() -> None:
    log, asked = Log(), []
    log.end = 100
    log.send(5, T0)

    def look(at: TopicPartition, offset: int) -> bytes:
        asked.append(offset)
        return bytes(log.data) if offset < 105 else b""

    times = SentTimes(look)
    assert [times.find(AT, offset) for offset in (40, 41, 99, 100, 200, 200)] == [None, None, None, T0, None, None]
    assert asked == [40, 200]


# What happened.


@pytest.mark.parametrize(("age", "kept"), [(0, 0), (999, 999), (1_004, 1_000), (1_239, 1_230), (123_456, 123_000)])
def test_ages_are_kept_to_three_digits(age: int, kept: int) -> None:
    assert rounded(age) == kept


def test_messages_are_counted_with_their_bytes_in_the_minute_of_their_batch() -> None:
    log = Log()
    log.send(3, T0)
    log.send(2, T0 + 59_000)
    log.send(4, T0 + 61_000)
    rows = taken(log.journal())
    assert [(row["name"], row["group"], row["event"], row["messages"]) for row in rows] == [
        ("orders", None, "sent", 5),
        ("orders", None, "sent", 4),
    ]
    assert sum(row["bytes"] for row in rows) == len(log.data)


def test_dwell_time_is_from_sending_to_acknowledgement() -> None:
    log = Log()
    log.send(4, T0)
    log.note(*encode_op(UUID(int=1), Leased((0, 1), 30_000, Instant(0, T0 + 20))))
    log.note(*acked(T0 + 250, 0, 1))
    log.note(*encode_op(UUID(int=1), TxnAcked(9, (2,), Instant(0, T0 + 300))))
    log.note(*encode_op(UUID(int=1), Ticked(Instant(0, T0 + 400))))
    assert brief(taken(log.journal())) == [("acked", 1, 300), ("acked", 2, 250), ("leased", 2, 20), ("sent", 4, None)]


def test_messages_of_an_earlier_batch_are_looked_up_and_those_that_are_gone_are_counted() -> None:
    log = Log()
    log.send(2, T0)
    before = bytes(log.data)
    log.data.clear()
    log.note(*acked(T0 + 5_000, 0, 1))
    assert brief(taken(log.journal(), look=lambda at, offset: before)) == [("acked", 2, 5_000)]
    assert brief(taken(log.journal())) == [("acked", 2, None)]


def test_a_time_in_the_future_does_not_take_the_watermark_along() -> None:
    log = Log()
    log.send(1, T0 + 1_000 * MINUTE_MS)
    (row,) = taken(log.journal(), now_ms=T0)
    assert row["at"] == datetime.fromtimestamp(T0 / 1000, UTC)


def test_a_commit_has_the_age_of_the_newest_message_that_it_covers() -> None:
    orders, groups = Log(), Log()
    orders.send(3, T0)
    orders.send(1, T0 + 500)
    for topic in (TOPIC_ID, UUID(int=6)):
        offset = OffsetEntry(topic_id=topic, partition=0, offset=3, leader_epoch=0, metadata="")
        groups.note(*encode_group_op(OffsetsCommitted(group_id="billing", offsets=(offset,), at_ms=T0 + 800)))
    rows = taken(orders.journal(), groups.journal(GROUPS_TOPIC))
    (commit,) = [row for row in rows if row["event"] == "committed"]  # the other topic is nobody's any more
    assert (commit["name"], commit["group"], commit["partition"], commit["offset"]) == ("orders", "billing", 0, 3)
    assert commit["ageMs"] == 800


# Options.


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"topics": ("a/b",)}, "--topics: "),
        ({"topic": ""}, "--topic: "),
        ({"topics": ("headrace.rollup",)}, "which the rollup itself writes to"),
        ({"late_s": -1.0}, "--late -1 is below zero"),
        ({"hours": 0.0}, "--hours 0 has to be above zero"),
    ],
)
def test_options_that_cannot_be_are_refused(wrong: dict[str, Any], words: str) -> None:
    with pytest.raises(OptionError, match=words):
        RollupOptions(server="127.0.0.1:1", **wrong)


# On Spark.


@pytest.fixture
def streams(node: NodeProcess) -> Iterator[tuple[StreamClient, BackgroundLoop]]:
    loop = BackgroundLoop(name="test")
    client = StreamClient(node.server)
    loop.run(client.connect())
    yield client, loop
    loop.run(client.close())
    loop.close()


def rows_of(frame: Any) -> dict[tuple[str, str | None, str], dict[str, Any]]:
    return {(row["name"], row["group"], row["event"]): row.asDict() for row in frame.collect()}


def test_percentiles_are_weighed_by_messages_and_offsets_are_the_last(spark: SparkSession) -> None:
    moment = datetime.fromtimestamp(T0 / 1000, UTC)
    happened = [
        (moment, "orders", None, "acked", None, None, 98, 0, 10),
        (moment, "orders", None, "acked", None, None, 2, 0, 5_000),
        (moment, "orders", None, "acked", None, None, 7, 0, None),
        (moment, "orders", "billing", "committed", 0, 5, 1, 0, 3),
        (moment, "orders", "billing", "committed", 0, 9, 1, 0, 4),
        (moment, "orders", "billing", "committed", 1, 2, 1, 0, 5),
    ]
    rolled = roll_up(spark.createDataFrame(happened, EVENT_SCHEMA), late_s=60)
    found = rows_of(rolled)
    done = found["orders", None, "acked"]
    assert (done["messages"], done["p50_ms"], done["p99_ms"], done["max_ms"], done["unknown"]) == (
        107,
        10,
        5000,
        5000,
        7,
    )
    assert found["orders", "billing", "committed"]["offsets"] == {"0": 9, "1": 2}
    again = rows_of(parsed(messages(rolled).selectExpr("cast(value as binary) as value")))
    assert again == found


def test_a_queue_and_a_group_of_a_real_node(spark: SparkSession, node: NodeProcess, topic: str) -> None:
    """What workers and consumers do is in the log, and comes out of it with its times."""
    register(spark)
    with Client(node.http) as queues:
        queue = queues.queue(topic)
        queue.send_many([b"x" * 100] * 20)
        for message in queue.receive(max=15, wait=0):
            message.ack()
        (held,) = queue.receive(max=1, wait=0)
        held.release()
    consumer = Consumer({"bootstrap.servers": node.server, "group.id": f"{topic}-readers"})
    consumer.commit(offsets=[Place(topic, 0, 20)], asynchronous=False)
    consumer.close()
    options = RollupOptions(server=node.server, topics=(topic,))
    topics = prepare(options)
    found = rows_of(roll_up(events(journal(lambda: spark.read, options), node.server, topics), late_s=0))
    total = {key: row["messages"] for key, row in found.items() if key[0] == topic}
    assert total == {
        (topic, None, "sent"): 20,
        (topic, None, "leased"): 16,
        (topic, None, "acked"): 15,
        (topic, None, "released"): 1,
        (topic, f"{topic}-readers", "committed"): 1,
    }
    assert found[topic, f"{topic}-readers", "committed"]["offsets"] == {"0": 20}
    for event in ("leased", "acked"):
        row = found[topic, None, event]
        assert row["unknown"] == 0
        assert 0 <= row["p50_ms"] <= row["p99_ms"] <= 60_000


def test_minutes_are_written_once_to_topic_table_and_report(
    spark: SparkSession,
    node: NodeProcess,
    topic: str,
    tmp_path: Path,
    streams: tuple[StreamClient, BackgroundLoop],
) -> None:
    client, loop = streams
    begin_ms = (int(datetime.now(UTC).timestamp() * 1000) // MINUTE_MS - 30) * MINUTE_MS
    loop.run(client.admin.create_topic(topic, partition_count=2))

    def produce(minute: int, count: int) -> None:
        stamp = begin_ms + minute * MINUTE_MS
        many = [Outgoing(b"x" * 100, timestamp_ms=stamp, partition=n % 2) for n in range(count)]
        loop.run(client.produce(topic, many))

    table, page = tmp_path / "table", tmp_path / "rollup.html"
    options = RollupOptions(
        server=node.server,
        topics=(topic,),
        groups=False,
        topic=f"{topic}.rollup",
        table=str(table),
        late_s=0,
        report=page,
    )
    for turn in range(2):
        for minute in (0, 1, 2):
            produce(turn * 5 + minute, 60 * (minute + 1))
        view = RecordingView()
        summary = run(options, make_run(spark, tmp_path / "run", view=view))
    minutes = {row["minute"]: row["messages"] for row in DeltaTable(str(table)).to_pyarrow_table().to_pylist()}
    # The newest minute is not over yet.
    expected = {0: 60, 1: 120, 2: 180, 5: 60, 6: 120}
    assert {round(at.timestamp() * 1000) - begin_ms: count for at, count in minutes.items()} == {
        minute * MINUTE_MS: count for minute, count in expected.items()
    }
    (only,) = summary.rows
    assert only[:7] == (topic, None, "sent", 5, 540, 1.8, 3.0)
    assert "540" in page.read_text()
    at = TopicPartition(f"{topic}.rollup", 0)
    (fetched,) = loop.run(client.fetch({at: 0}))
    written = [json.loads(message.value or b"") for message in fetched.messages]
    assert sorted(row["messages"] for row in written) == [60, 60, 120, 120, 180]
    assert {(row["name"], row["event"]) for row in written} == {(topic, "sent")}
    seen = observed_load(str(table))
    assert seen.peak_per_s == 3.0
    assert 100 < seen.message_bytes < 130


def test_everything_is_rolled_up_with_groups_that_came_after_the_first_run(
    spark: SparkSession, topic: str, tmp_path: Path
) -> None:
    minute_s = int(datetime.now(UTC).timestamp()) // 60 * 60 - 3600

    def send(node: NodeProcess, minute: int) -> None:
        producer = Producer({"bootstrap.servers": node.server})
        producer.produce(topic, b"x", timestamp=(minute_s + minute * 60) * 1000)
        assert producer.flush(30) == 0

    with running(tmp_path / "data") as node:
        options = RollupOptions(server=node.server, late_s=0)
        send(node, 0)
        run(options, make_run(spark, tmp_path / "run"))
        consumer = Consumer({"bootstrap.servers": node.server, "group.id": "readers"})
        consumer.commit(offsets=[Place(topic, 0, 1)], asynchronous=False)
        consumer.close()
        send(node, 1)
        summary = run(options, make_run(spark, tmp_path / "run"))
    # The commit is of now, and a message of now would be needed to close its minute.
    assert [row[:5] for row in summary.rows] == [(topic, None, "sent", 2, 2)]


def test_a_topic_that_is_missing_is_named_before_anything_runs(node: NodeProcess) -> None:
    with pytest.raises(UnknownTopicError, match="there is no topic or queue nowhere-1, nowhere-2"):
        prepare(RollupOptions(server=node.server, topics=("nowhere-1", "nowhere-2")))


def test_a_summary_of_nothing_is_a_summary() -> None:
    assert summarise([], hours=1).figures["messages sent"] == 0
