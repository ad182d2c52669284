"""The pipeline `rollup`: what happened in each minute, by topic or queue and by group.

    journal of the log --> events --> by minute --> topic --> Delta table
                       clock ----------^

The journal has a row for each batch and each control entry, so a billion messages are some million rows. Leases and
acknowledgements are entries of the same log as the messages: dwell time is the difference of two times that stand
there, and nothing has to be asked of workers. Commits of groups stand in an internal topic.

What a transaction sent is read when it has ended, and not at all if it was aborted.

A minute is written when the clock says that it is over (`rollup_minute.py`): into a topic, exactly once, for a
dashboard and for alerts. The table is an archive of that topic, keyed by its offsets, so both say the same.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING
from uuid import UUID

import pyarrow as pa
from pyspark.sql import functions as sf

from headrace.client.portal import BackgroundLoop
from headrace.client.router import ClientConfig
from headrace.client.stream import StreamClient
from headrace.client.values import TopicPartition
from headrace.host.clock import SystemClock
from headrace.model.batch import Buffer
from headrace.model.errors import InvalidNameError, TopicExistsError, UnknownTopicError
from headrace.model.names import GROUPS_TOPIC, check_topic_name
from headrace.spark.errors import OptionError, without_stack
from headrace.spark.journal.data_source import NAME as JOURNAL
from headrace.spark.journal.data_source import register
from headrace.spark.journal.minute import MINUTE_MS
from headrace.spark.lake.sink_option import table_path
from headrace.spark.lake.table import check_place
from headrace.spark.option.kafka import ISOLATION, READ_COMMITTED
from headrace.spark.pipeline import rollup_tick
from headrace.spark.pipeline.asked import check_report, check_servers
from headrace.spark.pipeline.context import Run
from headrace.spark.pipeline.rollup_event import EVENT_SCHEMA, JOURNAL_COLUMNS, SENT, TICK, Events
from headrace.spark.pipeline.rollup_minute import VALUE_SCHEMA, by_minute, set_up
from headrace.spark.pipeline.rollup_summary import COLUMNS, Row, joined, lines, summarise
from headrace.spark.pipeline.rollup_tick import closed_before_ms
from headrace.spark.pipeline.sent_time import SentTimes
from headrace.spark.pipeline.summary import Summary
from headrace.spark.report.page import write_report
from headrace.spark.report.rollup_page import rollup_page
from headrace.spark.source.reading import Range, ReadSettings, fetch_ranges

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, DataFrameReader, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery
    from pyspark.sql.streaming.readwriter import DataStreamReader

    Reader = Callable[[], DataFrameReader | DataStreamReader]

TOPIC_DEFAULT = "headrace.rollup"
_NAME = "headrace-rollup"
_LOOK_BYTES = 256 * 1024
_HOURS_MAX = 100 * 366 * 24
# A continuous run writes a minute this long after it is over, at most.
_TRIGGER_MINUTES_MAX = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class RollupOptions:
    server: str
    topics: tuple[str, ...] = ()  # queues are topics too; none: all but headrace's own
    groups: bool = True
    topic: str = TOPIC_DEFAULT
    table: str | None = None
    late_s: float = 60.0
    report: Path | None = None
    hours: float = 24.0  # of which the summary and the report speak

    def __post_init__(self) -> None:
        check_servers(self.server)
        check_report(self.report)
        if self.table is not None:
            check_place(table_path(self.table), partition_by=())
        for option, name in (("--topic", self.topic), *(("--topics", name) for name in self.topics)):
            try:
                check_topic_name(name)
            except InvalidNameError as error:
                raise OptionError(f"{option}: {error}") from None
        if self.topic in self.topics:
            raise OptionError(f"--topics has {self.topic}, which the rollup itself writes to; leave it out")
        if self.late_s < 0:
            raise OptionError(f"--late {self.late_s:g} is below zero")
        if not 0 < self.hours <= _HOURS_MAX:
            raise OptionError(f"--hours {self.hours:g} has to be above zero, and not more than {_HOURS_MAX:,}")

    @property
    def late_ms(self) -> int:
        return round(self.late_s * 1000)

    def identity(self) -> dict[str, str]:
        return {
            "server": self.server,
            "topics": ",".join(sorted(self.topics)) or "all",
            "groups": "yes" if self.groups else "no",
            "topic": self.topic,
            # From wherever it is named: one checkpoint belongs to one table.
            "table": "none" if self.table is None else str(table_path(self.table)),
        }


def run(options: RollupOptions, run: Run) -> Summary:
    # The node first: who cannot reach it should not wait for a JVM to hear of it.
    topics = prepare(options)
    spark = run.spark()
    register(spark)
    rollup_tick.register(spark)
    set_up(spark)
    began_ms = SystemClock().wall_ms()
    log = journal(lambda: spark.readStream, options)
    happened = events(log, options.server, topics).unionByName(_ticks(spark, options), allowMissingColumns=True)
    rows = by_minute(happened, late_ms=options.late_ms)
    to_topic = (
        messages(rows)
        .writeStream.format("headrace")
        .option("kafka.bootstrap.servers", options.server)
        .option("topic", options.topic)
        .option("checkpointLocation", run.checkpoint("topic"))
        .trigger(**run.trigger())
    )
    written = to_topic.start()
    if options.table is not None and run.is_continuous:
        run.follow(written, _to_table(spark, options, run), step="rollup")
    else:
        run.follow(written, step="rollup")
        if options.table is not None:  # after the other, so that it gets all that the topic has just got
            run.follow(_to_table(spark, options, run), step="table")
    return _told(spark, options, run, began_ms)


def _told(spark: "SparkSession", options: RollupOptions, run: Run, began_ms: int) -> Summary:
    now_ms = SystemClock().wall_ms()
    open_ms = closed_before_ms(began_ms, options.late_ms)
    if run.is_continuous:
        open_ms = max(open_ms, closed_before_ms(now_ms, options.late_ms) - _TRIGGER_MINUTES_MAX * MINUTE_MS)
    since_ms = now_ms - int(options.hours * 3_600_000)
    found = joined(row.asDict() for row in read_rollup(spark, options, min(since_ms, open_ms)).collect())
    recent = [row for row in found if row["minute"].timestamp() * 1000 >= since_ms]
    if options.report is not None:
        write_report(options.report, rollup_page(recent, COLUMNS, lines(recent), hours=options.hours))
        run.note(f"The report is in {options.report}.")
    return summarise(recent, hours=options.hours, still_open=_count_open(spark, options, open_ms, found))


def _ticks(spark: "SparkSession", options: RollupOptions) -> "DataFrame":
    ticks = spark.readStream.format(rollup_tick.NAME).option(rollup_tick.LATE_OPTION, options.late_ms).load()
    return ticks.withColumns({"name": sf.lit(""), "event": sf.lit(TICK)})


def _count_open(spark: "SparkSession", options: RollupOptions, open_ms: int, written: Sequence[Row]) -> int:
    """Messages that were sent in minutes which are not written yet. Those before `open_ms` are."""
    known = {(row["name"], round(row["minute"].timestamp() * 1000)) for row in written if row["event"] == SENT}
    now_ms = SystemClock().wall_ms()
    minute = sf.col("minute.startMs")
    # As the events have it: what has no time, or one to come, is of now.
    at_ms = sf.when((minute < 0) | (minute > now_ms), now_ms // MINUTE_MS * MINUTE_MS).otherwise(minute)
    counted = (
        _batches(lambda: spark.read, options, since_ms=open_ms)
        .select("topic", sf.explode("minutes").alias("minute"))
        .groupBy("topic", sf.coalesce(at_ms, sf.lit(now_ms // MINUTE_MS * MINUTE_MS)).alias("startMs"))
        .agg(sf.sum("minute.messages").alias("messages"))
        .where(sf.col("startMs") >= open_ms)
    )
    return sum(row["messages"] for row in counted.collect() if (row["topic"], row["startMs"]) not in known)


def prepare(options: RollupOptions) -> dict[UUID, str]:
    """Make the topic that is written to, and say which topics are rolled up, by id. Fails before anything runs."""
    loop = BackgroundLoop(name=_NAME)

    async def ask() -> dict[UUID, str]:
        async with StreamClient(options.server, config=ClientConfig(client_id=_NAME)) as client:
            if options.groups:
                # The first question about a group makes the topic of their commits, where there was none. It has to be
                # there from the first run on: a query goes on from its checkpoint only with as many sources.
                await client.groups.committed(_NAME)
            found = {topic.name: topic.id for topic in await client.admin.list_topics()}
            missing = [name for name in options.topics if name not in found]
            if missing:
                raise UnknownTopicError(f"there is no topic or queue {', '.join(missing)}; see `headrace topic list`")
            if options.topic not in found:
                with suppress(TopicExistsError):  # somebody else's rollup may be quicker
                    await client.admin.create_topic(options.topic, partition_count=1)
            return {id: name for name, id in found.items() if name in options.topics or not options.topics}

    try:
        return loop.run(ask())
    finally:
        loop.close()


def journal(reader: "Reader", options: RollupOptions) -> "DataFrame":
    """The batches and entries of what is to be rolled up, from the earliest on.

    Each source has a reader of its own: one that was used keeps its options for the next.
    """
    rows = _batches(reader, options)
    if options.groups:
        rows = rows.union(_read(reader, options, "subscribe", GROUPS_TOPIC).option(*_FROM_EARLIEST).load())
    return rows


_FROM_EARLIEST = ("startingOffsets", "earliest")


def _batches(reader: "Reader", options: RollupOptions, *, since_ms: int | None = None) -> "DataFrame":
    """The journal of topics and queues; since a time, or all of it."""
    if options.topics:
        rows = _read(reader, options, "subscribe", ",".join(options.topics))
    else:
        rows = _read(reader, options, "subscribePattern", f"(?!{options.topic.replace('.', '[.]')}$).*")
    rows = rows.option(ISOLATION, READ_COMMITTED)
    if since_ms is None:
        return rows.option(*_FROM_EARLIEST).load()
    return rows.option("startingTimestamp", since_ms).option("startingOffsetsByTimestampStrategy", "latest").load()


def _read(reader: "Reader", options: RollupOptions, how: str, what: str) -> "DataFrameReader | DataStreamReader":
    return (
        reader()
        .format(JOURNAL)
        .schema(JOURNAL_COLUMNS)
        .option("kafka.bootstrap.servers", options.server)
        .option(how, what)
        # What a queue has done is cleaned away, and no reason to end.
        .option("failOnDataLoss", "false")
    )


def events(rows: "DataFrame", server: str, topics: Mapping[UUID, str]) -> "DataFrame":
    """What happened to messages. Asks the log where an entry speaks of a message that was sent long before."""
    names = {str(id): name for id, name in topics.items()}

    def take(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        with without_stack():
            known = {UUID(id): name for id, name in names.items()}
            taker = Events(SentTimes(_look(server)), known, now_ms=SystemClock().wall_ms())
            for batch in batches:
                yield taker.take(batch)

    return rows.mapInArrow(take, EVENT_SCHEMA)


def _look(server: str) -> Callable[[TopicPartition, int], Buffer]:
    settings = ReadSettings(servers=server, fail_on_data_loss=False, fetch_bytes_max=_LOOK_BYTES)

    def look(at: TopicPartition, offset: int) -> Buffer:
        wanted = Range(at.topic, at.partition, offset, offset + 1)
        try:
            for piece in fetch_ranges([wanted], settings, skipped=lambda one, count: None):
                return piece.fetched.records
        except UnknownTopicError:
            pass  # deleted since
        return b""

    return look


def messages(rows: "DataFrame") -> "DataFrame":
    """Rows as messages of a topic: JSON, under a key by which a compacted topic would keep each once."""
    key = sf.concat_ws(
        "|", "name", sf.coalesce("group", sf.lit("")), "event", sf.date_format("minute", "yyyy-MM-dd'T'HH:mm'Z'")
    )
    return rows.select(key.alias("key"), sf.to_json(sf.struct("*")).alias("value"))


def _to_table(spark: "SparkSession", options: RollupOptions, run: Run) -> "StreamingQuery":
    assert options.table is not None
    source = (
        spark.readStream.format("headrace")
        .option("kafka.bootstrap.servers", options.server)
        .option("subscribe", options.topic)
        .option("startingOffsets", "earliest")
        .load()
    )
    return (
        parsed(source, "topic", "partition", "offset")
        .writeStream.format("headrace_delta")
        .option("path", options.table)
        .option("keyedBy", "offset")
        .option("kafka.bootstrap.servers", options.server)
        .option("checkpointLocation", run.checkpoint("table"))
        .trigger(**run.trigger())
        .start()
    )


def parsed(source: "DataFrame", *more: str) -> "DataFrame":
    """The rows in a rollup topic's messages. What is none of a rollup's is left out."""
    value = sf.from_json(sf.col("value").cast("string"), VALUE_SCHEMA).alias("row")
    return source.select(value, *more).where("row.minute is not null").select("row.*", *more)


def read_rollup(spark: "SparkSession", options: RollupOptions, since_ms: int) -> "DataFrame":
    """The rows of the last hours, out of the topic, which other rollups may write to."""
    source = (
        spark.read.format("headrace")
        .option("kafka.bootstrap.servers", options.server)
        .option("subscribe", options.topic)
        .load()
    )
    rows = parsed(source).where(sf.col("minute") >= sf.timestamp_millis(sf.lit(since_ms))).orderBy("minute")
    return rows.where(sf.col("name").isin(*options.topics)) if options.topics else rows
