"""The pipeline `rollup`: what happened in each minute, by topic or queue and by group.

    journal of the log --> events --> by minute, with watermark --> topic --> Delta table

The journal has a row for each batch and each control entry, so a billion messages are some million rows. Leases and
acknowledgements are entries of the same log as the messages: dwell time is the difference of two times that stand
there, and nothing has to be asked of workers. Commits of groups stand in an internal topic.

A minute is written once, when the watermark has passed it: into a topic, exactly once, for a dashboard and for alerts.
The table is an archive of that topic, keyed by its offsets, so both say the same.
"""

from collections.abc import Callable, Iterator, Mapping
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
from headrace.spark.lake.sink_option import table_path
from headrace.spark.pipeline.asked import check_report, check_servers
from headrace.spark.pipeline.context import Run
from headrace.spark.pipeline.rollup_event import EVENT_SCHEMA, JOURNAL_COLUMNS, Events
from headrace.spark.pipeline.rollup_summary import COLUMNS, lines, summarise
from headrace.spark.pipeline.sent_time import SentTimes
from headrace.spark.pipeline.summary import Summary
from headrace.spark.report.page import write_report
from headrace.spark.report.rollup_page import rollup_page
from headrace.spark.source.reading import Range, ReadSettings, fetch_ranges

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, DataFrameReader, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery
    from pyspark.sql.streaming.readwriter import DataStreamReader

TOPIC_DEFAULT = "headrace.rollup"
PERCENTILES = (0.5, 0.95, 0.99)
VALUE_SCHEMA = (
    "minute timestamp, name string, group string, event string, messages bigint, bytes bigint, "
    "p50_ms double, p95_ms double, p99_ms double, max_ms bigint, unknown bigint, offsets map<string, bigint>"
)
# The last commit of each partition in the minute.
_OFFSETS = (
    "map_from_arrays(array_distinct(commits.place), transform(array_distinct(commits.place), "
    "one -> array_max(filter(commits, it -> it.place = one).offset)))"
)
_NAME = "headrace-rollup"
_LOOK_BYTES = 256 * 1024
_HOURS_MAX = 100 * 366 * 24


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
            table_path(self.table)
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
    log = journal(lambda: spark.readStream, options)
    rows = roll_up(events(log, options.server, topics), late_s=options.late_s)
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
        totals = run.follow(written, _to_table(spark, options, run), step="rollup")
    else:
        totals = run.follow(written, step="rollup")
        if options.table is not None:  # after the other, so that it gets all that the topic has just got
            run.follow(_to_table(spark, options, run), step="table")
    since_ms = SystemClock().wall_ms() - int(options.hours * 3_600_000)
    recent = [row.asDict() for row in read_rollup(spark, options, since_ms).collect()]
    if options.report is not None:
        write_report(options.report, rollup_page(recent, COLUMNS, lines(recent), hours=options.hours))
        run.note(f"The report is in {options.report}.")
    return summarise(recent, hours=options.hours, late=totals.late)


def prepare(options: RollupOptions) -> dict[UUID, str]:
    """Make the topic that is written to, and say which topics there are, by id. Fails here, before anything runs."""
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
            return {id: name for name, id in found.items()}

    try:
        return loop.run(ask())
    finally:
        loop.close()


def journal(reader: "Callable[[], DataFrameReader | DataStreamReader]", options: RollupOptions) -> "DataFrame":
    """The batches and entries of what is to be rolled up, from the earliest on.

    Each source has a reader of its own: one that was used keeps its options for the next.
    """

    def read(how: str, what: str) -> "DataFrame":
        return (
            reader()
            .format(JOURNAL)
            .schema(JOURNAL_COLUMNS)
            .option("kafka.bootstrap.servers", options.server)
            .option(how, what)
            .option("startingOffsets", "earliest")
            # What a queue has done is cleaned away, and no reason to end.
            .option("failOnDataLoss", "false")
            .load()
        )

    if options.topics:
        rows = read("subscribe", ",".join(options.topics))
    else:
        rows = read("subscribePattern", f"(?!{options.topic.replace('.', '[.]')}$).*")
    if options.groups:
        rows = rows.union(read("subscribe", GROUPS_TOPIC))
    return rows


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


def roll_up(happened: "DataFrame", *, late_s: float) -> "DataFrame":
    """One row for each minute, name, group and event, once the watermark has passed the minute."""
    percentiles = sf.percentile("ageMs", sf.array(*map(sf.lit, PERCENTILES)), sf.col("messages"))
    summed = (
        happened.withWatermark("at", f"{round(late_s * 1000)} milliseconds")
        .groupBy(sf.window("at", "1 minute"), "name", "group", "event")
        .agg(
            sf.sum("messages").alias("messages"),
            sf.sum("bytes").alias("bytes"),
            percentiles.alias("ages"),
            sf.max("ageMs").alias("max_ms"),
            sf.sum(sf.when(sf.col("ageMs").isNull(), sf.col("messages"))).alias("without_age"),
            sf.collect_list(
                sf.when(
                    sf.col("offset").isNotNull(), sf.struct(sf.col("partition").cast("string").alias("place"), "offset")
                )
            ).alias("commits"),
        )
    )
    return summed.select(
        sf.col("window.start").alias("minute"),
        "name",
        "group",
        "event",
        "messages",
        "bytes",
        *(sf.col("ages")[index].alias(f"p{round(part * 100)}_ms") for index, part in enumerate(PERCENTILES)),
        "max_ms",
        sf.when(sf.col("event") == "sent", sf.lit(None))
        .otherwise(sf.coalesce("without_age", sf.lit(0)))
        .alias("unknown"),
        sf.when(sf.size("commits") > 0, sf.expr(_OFFSETS)).alias("offsets"),
    )


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
    """The rows of the last hours, out of the topic."""
    source = (
        spark.read.format("headrace")
        .option("kafka.bootstrap.servers", options.server)
        .option("subscribe", options.topic)
        .load()
    )
    return parsed(source).where(sf.col("minute") >= sf.timestamp_millis(sf.lit(since_ms))).orderBy("minute")
