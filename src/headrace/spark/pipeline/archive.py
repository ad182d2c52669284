"""The pipeline `archive`: topics and queues into one Delta table, partitioned by topic and day, each message once.

    headrace pipeline run archive --topic orders --queue jobs --table /lake/messages --keep-days 365

A row is a message as the log has it: place, time, key, value and headers. What the table has is known by the table
itself, for each partition the offset that it has come to (`lake/commit.py`). So the checkpoint is only a saving:
without one, reading starts where the table ends, and what is read twice is not written twice.

Topics are read by one query, and every queue by one of its own with a named reader, so that what its workers are done
with is not cleaned away before it is here. A reader that nobody moves on holds the queue's log; `--queue` is therefore
a promise to run the archive now and then.
"""

import json
import math
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark.sql import functions as sf

from headrace.client.router import ClientConfig
from headrace.client.settings import DEFAULT_HTTP
from headrace.client.values import TopicInfo, TopicPartition
from headrace.host.clock import SystemClock
from headrace.model.errors import InvalidNameError
from headrace.model.names import check_topic_name
from headrace.spark.errors import OptionError
from headrace.spark.lake.compaction import MEMORY_BYTES_DEFAULT, MEMORY_BYTES_MIN
from headrace.spark.lake.key import PartitionKey, partition_application
from headrace.spark.lake.maintenance import VACUUM_HOURS_DEFAULT, Contents, contents
from headrace.spark.lake.reading import Snapshot
from headrace.spark.lake.sink_option import table_path
from headrace.spark.lake.table import check_place, columns_of, exists, open_table
from headrace.spark.lake.upkeep import Kept, RegularUpkeep, Upkeep, keep_up
from headrace.spark.link import Link
from headrace.spark.option.kafka import READ_COMMITTED, SERVERS
from headrace.spark.pipeline.asked import check_http, check_queues, check_servers, found_topics, reached
from headrace.spark.pipeline.summary import Summary
from headrace.spark.source.reading import Range, ReadSettings, read_ranges

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

    from headrace.spark.pipeline.context import Run

DAY = "day"  # of the message's time, in UTC
ARCHIVE_COLUMNS = ("topic", "partition", "offset", "timestamp", "timestampType", "key", "value", "headers", DAY)
PARTITION_BY = ("topic", DAY)

BATCH_ROWS_DEFAULT = 250_000
UPKEEP_MINUTES_DEFAULT = 60.0
COMPACT_MEMORY_MB_DEFAULT = MEMORY_BYTES_DEFAULT >> 20
COMPACT_MEMORY_MB_MIN = MEMORY_BYTES_MIN >> 20
_EARLIEST = -2
_CLIENT = ClientConfig(client_id="headrace-archive")
_OFFSETS = pa.schema([("offset", pa.int64())])


@dataclass(frozen=True, slots=True, kw_only=True)
class ArchiveOptions:
    server: str
    table: str
    topics: tuple[str, ...] = ()
    queues: tuple[str, ...] = ()
    pattern: str | None = None
    http: str = DEFAULT_HTTP
    batch_rows: int = BATCH_ROWS_DEFAULT
    keep_days: int | None = None
    compacts: bool = True
    compact_memory_mb: int = COMPACT_MEMORY_MB_DEFAULT
    vacuum_hours: int | None = VACUUM_HOURS_DEFAULT
    upkeep_minutes: float = UPKEEP_MINUTES_DEFAULT  # in a continuous run; else once, at the end
    skips_lost: bool = False

    def __post_init__(self) -> None:
        _check_table(self.path)
        check_servers(self.server)
        check_http(self.http)
        if not (self.topics or self.queues or self.pattern):
            raise OptionError("nothing to archive is named; give --topic, --queue or --pattern")
        if self.topics and self.pattern:
            raise OptionError("--topic and --pattern would read some topics twice; give one of them")
        for option, names in (("--topic", self.topics), ("--queue", self.queues)):
            for name in names:
                _check_name(name, option)
        both = sorted({*self.topics} & {*self.queues})
        if both:
            raise OptionError(f"{both[0]} is named as a topic and as a queue; a queue's name alone is enough")
        _check_pattern(self.pattern)
        if self.batch_rows < 1:
            raise OptionError(f"--batch-rows is {self.batch_rows}; a batch has at least one row")
        if self.keep_days is not None and self.keep_days < 1:
            raise OptionError(f"--keep-days is {self.keep_days}; keep one day or more, or leave it out to keep all")
        if self.compact_memory_mb < COMPACT_MEMORY_MB_MIN:
            raise OptionError(
                f"--compact-memory is {self.compact_memory_mb}; joining files takes {COMPACT_MEMORY_MB_MIN} MB or more"
            )
        if self.vacuum_hours is not None and self.vacuum_hours < 1:
            raise OptionError(f"--vacuum-hours is {self.vacuum_hours}; it must be longer than a batch: 1 or more")
        if not 0 < self.upkeep_minutes < math.inf:
            raise OptionError(f"--upkeep is {self.upkeep_minutes:g} minutes; it has to be a number above zero")

    @property
    def path(self) -> Path:
        return table_path(self.table)

    @property
    def upkeep(self) -> Upkeep:
        memory = self.compact_memory_mb << 20 if self.compacts else None
        return Upkeep(keep_days=self.keep_days, compact_memory_bytes=memory, vacuum_hours=self.vacuum_hours)

    def identity(self) -> dict[str, str]:
        named = {"topics": ",".join(self.topics), "queues": ",".join(self.queues), "pattern": self.pattern or ""}
        return {"server": self.server, "table": str(self.path)} | {name: text for name, text in named.items() if text}


def _check_table(path: Path) -> None:
    """Refuse a directory of other files, and a table that is no archive: its upkeep would change rows of others."""
    check_place(path, partition_by=PARTITION_BY)
    if not exists(path):
        return
    table = open_table(path)
    if tuple(columns_of(table).names) != ARCHIVE_COLUMNS or tuple(table.metadata().partition_columns) != PARTITION_BY:
        raise OptionError(f"{path} is a Delta table, but not one of an archive; give another directory")


def _check_name(name: str, option: str) -> None:
    try:
        check_topic_name(name)
    except InvalidNameError as error:
        raise OptionError(f"{option} {name}: {error}") from None


def _check_pattern(pattern: str | None) -> None:
    try:
        re.compile(pattern or "")
    except re.error as error:
        raise OptionError(f"--pattern {pattern!r} is no regular expression: {error}") from None


def check(options: ArchiveOptions, run: "Run") -> None:
    """Ask the node whether all of it is there. Whoever cannot be answered should not wait for a session."""
    with reached(options.server, _CLIENT) as link:
        found_topics(link, options.topics)
        if options.pattern is not None and not _topics(link, Part("pattern", "subscribePattern", options.pattern)):
            later = "is archived once it is there" if run.is_continuous else "is archived by a later run"
            run.note(f"No topic matches {options.pattern!r} yet; what matches it {later}.")
    if options.queues:
        check_queues(options.http, options.queues)


def run(spark: "SparkSession", options: ArchiveOptions, run: "Run") -> Summary:
    before = _contents(options.path)
    clock = SystemClock()
    # Days are UTC's, whatever the session was made with.
    spark.conf.set("spark.sql.session.timeZone", "UTC")
    with reached(options.server, _CLIENT) as link:
        starts = {part: _starts(link, options, part) for part in _parts(options)}
        queries = [_start(spark, options, run, part, offsets) for part, offsets in starts.items()]
        with RegularUpkeep(
            options.path, options.upkeep, every_s=options.upkeep_minutes * 60, clock=clock, note=run.note
        ) as regular:
            totals = run.follow(*queries)
        added = _contents(options.path)
        run.report("compacting")
        kept = regular.kept + keep_up(options.path, options.upkeep, now_ms=clock.wall_ms())
        lags = _lags(link, options)
    return _summary(options, before, added, _contents(options.path), lags, kept, totals.seconds)


# What is read.


@dataclass(frozen=True, slots=True)
class Part:
    """What one query reads."""

    name: str  # of its checkpoint
    option: str
    value: str

    def is_of(self, topic: str) -> bool:
        if self.option == "subscribePattern":
            return re.fullmatch(self.value, topic) is not None
        return topic in self.value.split(",")


def _parts(options: ArchiveOptions) -> Iterator[Part]:
    if options.topics:
        yield Part("topics", "subscribe", ",".join(options.topics))
    if options.pattern is not None:
        yield Part("pattern", "subscribePattern", options.pattern)
    for queue in options.queues:
        yield Part(f"queue-{queue}", "queue", queue)


def _topics(link: Link, part: Part) -> list[TopicInfo]:
    if part.option == "subscribePattern":
        return [topic for topic in link.all_topics() if part.is_of(topic.name)]
    return list(found_topics(link, part.value.split(",")).values())


def _starts(link: Link, options: ArchiveOptions, part: Part) -> str:
    """Where a query begins that has no checkpoint: where the table ends, and at the beginning of what it lacks."""
    offsets = {
        topic.name: {str(at.partition): floor for at, floor in _floors(options.path, topic).items()}
        for topic in _topics(link, part)
    }
    return json.dumps(offsets) if offsets else "earliest"


def _floors(path: Path, topic: TopicInfo) -> dict[TopicPartition, int]:
    """The offset that the table has come to in each partition of a topic; -2, the earliest, where it has none."""
    ats = [TopicPartition(topic.name, one.partition) for one in topic.partitions]
    if not exists(path):
        return dict.fromkeys(ats, _EARLIEST)
    table = open_table(path)
    ids = {topic.name: str(topic.id)}
    known = {at: table.transaction_version(partition_application(PartitionKey(*at), ids)) for at in ats}
    return {at: _EARLIEST if floor is None else floor for at, floor in known.items()}


def _start(spark: "SparkSession", options: ArchiveOptions, run: "Run", part: Part, starting: str) -> "StreamingQuery":
    source = (
        spark.readStream.format("headrace")
        .option(SERVERS, options.server)
        .option(part.option, part.value)
        .option("startingOffsets", starting)
        .option("includeHeaders", "true")
        .option("maxOffsetsPerTrigger", str(options.batch_rows))
        .option("failOnDataLoss", str(not options.skips_lost).lower())
    )
    if part.option == "queue":
        source = source.option("http", options.http).option("reader", f"archive-{run.id}")
    return (
        rows_to_keep(source.load())
        .writeStream.format("headrace_delta")
        .queryName(f"{run.id}-{part.name}")
        .option("keyedBy", "offset")
        .option("partitionBy", ",".join(PARTITION_BY))
        .option(SERVERS, options.server)
        .option("checkpointLocation", run.checkpoint(part.name))
        .trigger(**run.trigger())
        .start(str(options.path))
    )


def rows_to_keep(messages: "DataFrame") -> "DataFrame":
    """The archive's columns of a source's rows."""
    return messages.withColumn(DAY, sf.to_date("timestamp")).select(*ARCHIVE_COLUMNS)


def open_archive(table: str) -> Snapshot:
    """What an archive has written, for who reads it."""
    snapshot = Snapshot(table_path(table))
    missing = [name for name in ARCHIVE_COLUMNS if name not in snapshot.columns.names]
    if missing:
        raise OptionError(f"{table} is no archive: it has no column {missing[0]}")
    return snapshot


# What is said at the end.


def _contents(path: Path) -> dict[str | None, Contents]:
    return contents(path, "topic") if exists(path) else {}


def _lags(link: Link, options: ArchiveOptions) -> dict[str, int]:
    """Offsets of each topic from the first message on that the table does not have."""
    return {topic.name: _lag(link, options, topic) for part in _parts(options) for topic in _topics(link, part)}


def _lag(link: Link, options: ArchiveOptions, topic: TopicInfo) -> int:
    """Known by reading: what lies behind the last message may be control entries, or taken back, and is no lag then."""
    floors = _floors(options.path, topic)
    starts = link.start_offsets(floors)
    ends = link.end_offsets(floors, committed=True)
    settings = ReadSettings(servers=options.server, isolation=READ_COMMITTED, fail_on_data_loss=False, client=_CLIENT)
    lag = 0
    for at, floor in floors.items():
        unread = Range(*at, max(floor, starts[at]), ends[at])
        if unread.start < unread.end:
            batches = read_ranges([unread], _OFFSETS, settings)
            lag += next((unread.end - batch["offset"][0].as_py() for batch in batches if batch.num_rows), 0)
    return lag


def _summary(
    options: ArchiveOptions,
    before: dict[str | None, Contents],
    added: dict[str | None, Contents],
    now: dict[str | None, Contents],
    lags: dict[str, int],
    kept: Kept,
    seconds: float,
) -> Summary:
    none = Contents(row_count=0, size_bytes=0, file_count=0)
    names = sorted({*lags} | {name for name in now if name is not None})
    news = {name: added.get(name, none).row_count - before.get(name, none).row_count for name in names}
    held = {name: now.get(name, none) for name in names}
    total = max(sum(news.values()), 0)
    figures = {
        "rows added": total,
        "rows a second": round(total / seconds) if seconds else 0,
        "rows dropped": kept.dropped_rows,
        "files compacted": kept.compacted_files,
        "files removed": kept.removed_files,
    }
    return Summary(
        title=f"archive {options.path}",
        columns=("topic", "added", "rows", "bytes", "files", "lag"),
        rows=[
            (name, news[name], held[name].row_count, held[name].size_bytes, held[name].file_count, lags.get(name))
            for name in names
        ],
        figures=figures,
    )
