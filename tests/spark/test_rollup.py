"""Rollup: what the journal says happened to messages, added up by the minute; on real logs of a real node."""

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
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
from pyspark.sql.streaming.datasource import ReadAllAvailable
from tests.spark.pipeline_run import RecordingView, make_run
from tests.spark.source_data import create, read, send
from tests.support.node import NodeProcess, running
from tests.support.wait import wait_until

from headrace.client.portal import BackgroundLoop
from headrace.client.queue.sync import Client
from headrace.client.stream import StreamClient
from headrace.client.values import Outgoing, TopicPartition
from headrace.folds.group.codec import encode_op as encode_group_op
from headrace.folds.group.op import OffsetEntry, OffsetsCommitted
from headrace.folds.queue.codec import encode_op
from headrace.folds.queue.instant import Instant
from headrace.folds.queue.op import Acked, Leased, Ticked, TxnAcked
from headrace.host.clock import SystemClock
from headrace.model.errors import UnknownTopicError
from headrace.model.names import GROUPS_TOPIC
from headrace.spark.errors import OptionError
from headrace.spark.journal.data_source import register
from headrace.spark.journal.entry import entries
from headrace.spark.pipeline.observed import observed_load
from headrace.spark.pipeline.rollup import (
    RollupOptions,
    events,
    journal,
    messages,
    parsed,
    prepare,
    read_rollup,
    run,
)
from headrace.spark.pipeline.rollup_event import EVENT_SCHEMA, Events, rounded
from headrace.spark.pipeline.rollup_minute import PERCENTILES, VALUE_SCHEMA, add_up, percentiles
from headrace.spark.pipeline.rollup_summary import summarise
from headrace.spark.pipeline.rollup_tick import TickReader
from headrace.spark.pipeline.sent_time import SentTimes, Span
from headrace.spark.pipeline.summary import Summary
from headrace.testing.clock import SimulatedClock
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
        self.send_at([first_ms] * (count - 1) + [first_ms if last_ms is None else last_ms])

    def send_at(self, times: Sequence[int]) -> None:
        records = [Record(timestamp_ms=time, key=None, value=b"x" * 10) for time in times]
        self._append(encode_batch(records, base_offset=self.end), len(records))

    def note(self, kind: int, value: bytes) -> None:
        batch = encode_control_batch(kind, value, timestamp_ms=T0)
        batch[:8] = self.end.to_bytes(8)
        self._append(batch, 1)

    def _append(self, batch: bytearray, count: int) -> None:
        self.data += batch
        self.end += count

    def journal(self, topic: str = AT.topic) -> pa.RecordBatch:
        return entries(self.data, topic=topic, partition=0, start=0, end=self.end, counts_minutes=True)[0]


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


def test_messages_of_one_batch_are_counted_in_the_minutes_of_their_own_times() -> None:
    log = Log()
    minutes = [10, 0, 0, 9, 3, 3, 3, 11]  # in no order: the header has only the first and the latest
    log.send_at([T0 + minute * MINUTE_MS + 59_999 for minute in minutes])
    log.send_at([T0 + 9 * MINUTE_MS])
    rows = taken(log.journal())
    counts = {row["minute"] - T0 // MINUTE_MS: row["messages"] for row in rows}
    assert counts == {0: 2, 3: 3, 9: 2, 10: 1, 11: 1}
    assert sum(row["bytes"] for row in rows) == len(log.data)


def test_messages_without_a_time_are_counted_now() -> None:
    log = Log()
    log.send_at([-1, -1])
    (row,) = taken(log.journal(), now_ms=T0)
    assert (row["messages"], row["minute"]) == (2, T0 // MINUTE_MS)


def test_a_clock_ticks_for_each_minute_that_is_over_and_never_back() -> None:
    clock = SimulatedClock(wall_ms=10 * MINUTE_MS + 29_999)
    reader = TickReader(90_000, clock)
    everything = ReadAllAvailable()
    start = reader.initialOffset()
    first = reader.latestOffset(start, everything)
    clock.jump_wall(1)
    second = reader.latestOffset(first, everything)
    clock.jump_wall(-MINUTE_MS)
    assert reader.latestOffset(second, everything) == second
    ticks = [[*reader.read(one)] for one in reader.partitions(first, second)]
    assert (first, ticks) == ({"minute": 8}, [[(9,)]]), "the ninth minute ended 90 s ago"
    assert reader.partitions(second, second) == []
    clock.jump_wall(5 * MINUTE_MS)
    reader.prepareForTriggerAvailableNow()
    target = reader.latestOffset(second, everything)
    clock.jump_wall(5 * MINUTE_MS)
    assert reader.latestOffset(target, everything) == target


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


def test_a_time_in_the_future_is_taken_for_now() -> None:
    log = Log()
    log.send(1, T0 + 1_000 * MINUTE_MS)
    (row,) = taken(log.journal(), now_ms=T0)
    assert row["minute"] == T0 // MINUTE_MS


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


def rows_of(happened: Iterable[Any]) -> dict[tuple[str, str | None, str], dict[str, Any]]:
    return {(row["name"], row["group"], row["event"]): row.asDict() for row in add_up(happened)}


def test_percentiles_are_weighed_by_messages_and_offsets_are_the_last(spark: SparkSession) -> None:
    minute = T0 // MINUTE_MS
    happened = [
        (minute, "orders", None, "acked", None, None, 98, 0, 10),
        (minute, "orders", None, "acked", None, None, 2, 0, 5_000),
        (minute, "orders", None, "acked", None, None, 7, 0, None),
        (minute, "orders", "billing", "committed", 0, 5, 1, 0, 3),
        (minute, "orders", "billing", "committed", 0, 9, 1, 0, 4),
        (minute, "orders", "billing", "committed", 1, 2, 1, 0, 5),
    ]
    found = rows_of(spark.createDataFrame(happened, EVENT_SCHEMA).collect())
    done = found["orders", None, "acked"]
    assert (done["messages"], done["p50_ms"], done["p99_ms"], done["max_ms"], done["unknown"]) == (
        107,
        10,
        5000,
        5000,
        7,
    )
    assert found["orders", "billing", "committed"]["offsets"] == {"0": 9, "1": 2}
    rolled = spark.createDataFrame([*found.values()], VALUE_SCHEMA)
    again = [row.asDict() for row in parsed(messages(rolled).selectExpr("cast(value as binary) as value")).collect()]
    assert again == [row.asDict() for row in rolled.collect()]


def test_percentiles_are_those_of_spark(spark: SparkSession) -> None:
    ages = {7: 3, 10: 1, 1_000: 90, 5_000: 1, 12: 0, 40_000: 6}
    rows = spark.createDataFrame([*ages.items()], "age bigint, messages bigint")
    expected = rows.selectExpr(f"percentile(age, array{PERCENTILES}, messages) as found").collect()[0]["found"]
    assert percentiles(ages, PERCENTILES) == pytest.approx(expected)
    assert percentiles({}, PERCENTILES) == [None, None, None]


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
    found = rows_of(events(journal(lambda: spark.read, options), node.server, topics).collect())
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
    expected = {0: 60, 1: 120, 2: 180, 5: 60, 6: 120, 7: 180}
    assert {round(at.timestamp() * 1000) - begin_ms: count for at, count in minutes.items()} == {
        minute * MINUTE_MS: count for minute, count in expected.items()
    }
    (only,) = summary.rows
    assert only[:7] == (topic, None, "sent", 6, 720, 2.0, 3.0)
    assert "720" in page.read_text()
    at = TopicPartition(f"{topic}.rollup", 0)
    (fetched,) = loop.run(client.fetch({at: 0}))
    written = [json.loads(message.value or b"") for message in fetched.messages]
    assert sorted(row["messages"] for row in written) == [60, 60, 120, 120, 180, 180]
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
    assert [row[:5] for row in summary.rows if row[2] == "sent"] == [(topic, None, "sent", 2, 2)]
    # The commit is of now: its minute may be over by the second run, or not.
    groups = [row[:5] for row in summary.rows if row[2] != "sent"]
    assert groups in ([], [(topic, "readers", "committed", 1, 1)])


def test_minutes_have_as_many_messages_as_have_their_times(
    spark: SparkSession, node: NodeProcess, topic: str, tmp_path: Path
) -> None:
    """Batches that span ten minutes, messages of long ago behind newer ones, transactions and messages of now."""
    create(node, topic, partitions=2)
    now_ms = SystemClock().wall_ms()
    hour_ms = now_ms // MINUTE_MS * MINUTE_MS - 60 * MINUTE_MS

    def send(producer: Producer, count: int, start_ms: int, step_ms: int) -> None:
        for number in range(count):
            producer.produce(topic, b"x", partition=number % 2, timestamp=start_ms + number * step_ms)
        assert producer.flush(60) == 0

    plain = Producer({"bootstrap.servers": node.server, "linger.ms": 200})
    send(plain, 101, hour_ms, 6_000)
    send(plain, 50, hour_ms + 5 * MINUTE_MS, -1_500)
    send(plain, 20, hour_ms - 6 * 24 * 60 * MINUTE_MS, 10_000)
    for index, commits in enumerate((True, False, True, False)):
        producer = Producer(
            {"bootstrap.servers": node.server, "linger.ms": 200, "transactional.id": f"{topic}-{index}"}
        )
        producer.init_transactions(60)
        producer.begin_transaction()
        send(producer, 40, hour_ms + index * MINUTE_MS, 20_000)
        (producer.commit_transaction if commits else producer.abort_transaction)(60)
    send(plain, 7, now_ms, 0)
    options = RollupOptions(server=node.server, topics=(topic,), groups=False, topic=f"{topic}.rollup", late_s=0)

    def rolled_up() -> tuple[Summary, Counter[int], int]:
        summary = run(options, make_run(spark, tmp_path / "run"))
        rows = read_rollup(spark, options, 0).collect()
        found = Counter[int]()
        for row in rows:
            found[minute_of(row["minute"])] += row["messages"]
        return summary, found, len(rows)

    def minute_of(moment: datetime) -> int:
        return int(moment.timestamp() * 1000) // MINUTE_MS

    def expected() -> Counter[int]:
        messages = read(spark, node, "timestamp timestamp", subscribe=topic).collect()
        return Counter(minute_of(row["timestamp"]) for row in messages)

    sent = expected()
    assert sum(sent.values()) == 101 + 50 + 20 + 2 * 40 + 7
    summary, found, row_count = rolled_up()
    assert found == {minute: sent[minute] for minute in found}
    assert {*sent} - {*found} <= {now_ms // MINUTE_MS}, "only the newest minute may not be over"
    assert row_count == len(found), "each minute is one row"
    still_open = sum(sent.values()) - sum(found.values())
    assert summary.figures["messages in open minutes"] == still_open
    assert any("belong to minutes that are not over" in note for note in summary.notes) == bool(still_open)
    # Nothing more is sent: the clock closes the last minute.
    wait_until(lambda: SystemClock().wall_ms() // MINUTE_MS > now_ms // MINUTE_MS, deadline_s=120, what="it is over")
    summary, found, _ = rolled_up()
    assert (found, summary.figures["messages in open minutes"]) == (sent, 0)
    # Some are sent for minutes that were written.
    send(plain, 30, hour_ms - 2 * MINUTE_MS, 10_000)
    summary, found, row_count = rolled_up()
    assert found == expected()
    assert row_count > len(found), "what came late has rows of its own"
    (line,) = summary.rows
    hours = {minute: count for minute, count in found.items() if minute >= now_ms // MINUTE_MS - 24 * 60}
    assert line[:5] == (topic, None, "sent", len(hours), sum(hours.values()))


def test_a_summary_is_about_the_topics_that_were_named(
    spark: SparkSession, node: NodeProcess, topic: str, tmp_path: Path
) -> None:
    for name in (f"{topic}-a", f"{topic}-b"):
        create(node, name)
        send(node, name, [Outgoing(b"x", timestamp_ms=SystemClock().wall_ms() - 10 * MINUTE_MS)])
        consumer = Consumer({"bootstrap.servers": node.server, "group.id": f"{name}-readers"})
        consumer.commit(offsets=[Place(name, 0, 1)], asynchronous=False)
        consumer.close()
    for name in (f"{topic}-a", f"{topic}-b"):
        options = RollupOptions(server=node.server, topics=(name,), topic=f"{topic}.rollup", late_s=0)
        summary = run(options, make_run(spark, tmp_path / name))
        assert {row[0] for row in summary.rows} == {name}
        assert {*prepare(options).values()} == {name}, "commits of other topics are not counted"


def test_a_topic_that_is_missing_is_named_before_anything_runs(node: NodeProcess) -> None:
    with pytest.raises(UnknownTopicError, match="there is no topic or queue nowhere-1, nowhere-2"):
        prepare(RollupOptions(server=node.server, topics=("nowhere-1", "nowhere-2")))


def test_a_summary_of_nothing_is_a_summary() -> None:
    assert summarise([], hours=1).figures["messages sent"] == 0
