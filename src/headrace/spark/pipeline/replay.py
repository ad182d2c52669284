"""The pipeline `replay`: messages of an archive back into a topic or a queue, chosen by time, key or SQL, each once.

    headrace pipeline run replay --table /lake/messages --topic orders --from 2026-03-01 --until 2026-03-02 \\
        --where "headers['country'] = 'DE' and body like '%refund%'" --to orders-again

A replay is a job, and its id is its idempotency key. It goes through the archive by offset, in all partitions at once,
a piece after the other; each piece is one transaction of the sink, which writes down at the broker up to which offset
the job has come (`sink/publish.py`). A run that was killed asks the broker and goes on from there: nothing is sent
twice and nothing is left out, whatever became of files, checkpoints and the machine that it ran on. What a job is about
is fixed when it begins, and kept at the broker as well (`replay_job.py`): messages that are archived later belong to
another one.

Messages of one key keep their order: a key has one partition, and a partition is sent by offset. So does a whole
partition with `--keep-partitions`, which sends each message to the partition that it came from.
"""

import threading
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from pyspark.errors import AnalysisException
from pyspark.sql import functions as sf

from headrace.client.settings import DEFAULT_HTTP
from headrace.host.clock import Clock, SystemClock
from headrace.model.errors import InvalidNameError
from headrace.model.names import check_topic_name
from headrace.spark.errors import OptionError, sentence_of
from headrace.spark.lake.reading import Snapshot
from headrace.spark.lake.sink_option import table_path
from headrace.spark.lake.table import exists
from headrace.spark.option.kafka import SERVERS
from headrace.spark.pipeline.archive import ARCHIVE_COLUMNS, open_archive
from headrace.spark.pipeline.asked import check_http, check_servers, reached
from headrace.spark.pipeline.replay_job import End, ReplayJob
from headrace.spark.pipeline.replay_row import CONDITION_COLUMNS, condition_view, outgoing
from headrace.spark.pipeline.summary import Summary

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from headrace.spark.pipeline.context import Run

PIECE_ROWS_DEFAULT = 100_000
# Of a piece, when there is a rate: what is sent at once should be little beside what is sent in a second.
_PIECE_SECONDS = 2
_BUCKET_OFFSETS_MAX = 10_000
_JOB_LENGTH_MAX = 100
_LOOK_S = 0.25


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayOptions:
    server: str
    table: str
    to: str
    is_queue: bool = False
    http: str = DEFAULT_HTTP
    topics: tuple[str, ...] = ()  # of the archive; none: all
    from_ms: int | None = None
    until_ms: int | None = None
    keys: tuple[str, ...] = ()
    where: str | None = None
    job: str | None = None  # None: the run's id
    rate: int | None = None  # messages a second
    piece_rows: int = PIECE_ROWS_DEFAULT
    keeps_partitions: bool = False
    keeps_times: bool | None = None  # None: in topics, and not in queues
    is_dry: bool = False

    def __post_init__(self) -> None:
        table_path(self.table)
        check_servers(self.server)
        check_http(self.http)
        for option, name in (("--to", self.to), *(("--topic", topic) for topic in self.topics)):
            try:
                check_topic_name(name)
            except InvalidNameError as error:
                raise OptionError(f"{option} {name}: {error}") from None
        if self.from_ms is not None and self.until_ms is not None and self.from_ms >= self.until_ms:
            raise OptionError("--until is not after --from; no message lies between them")
        if self.rate is not None and self.rate < 1:
            raise OptionError(f"--rate is {self.rate}; send at least one message a second")
        if self.piece_rows < 1:
            raise OptionError(f"--piece-rows is {self.piece_rows}; a piece has at least one message")
        if self.job is not None and not 0 < len(self.job) <= _JOB_LENGTH_MAX:
            raise OptionError(f"--job has {len(self.job)} characters; give it up to {_JOB_LENGTH_MAX}")
        if self.keeps_partitions and self.is_queue:
            raise OptionError("--keep-partitions is for topics; a queue places messages by their keys")
        if not exists(table_path(self.table)):
            raise OptionError(
                f"--table {self.table}: there is no Delta table; `headrace pipeline run archive` makes one"
            )

    @property
    def piece_size(self) -> int:
        return self.piece_rows if self.rate is None else min(self.piece_rows, self.rate * _PIECE_SECONDS)

    def identity(self) -> dict[str, str]:
        said = {
            "server": self.server,
            "table": str(table_path(self.table)),
            "to": self.to,
            "topics": ",".join(self.topics),
            "from": "" if self.from_ms is None else str(self.from_ms),
            "until": "" if self.until_ms is None else str(self.until_ms),
            "keys": ",".join(self.keys),
            "where": self.where or "",
            "job": self.job or "",
        }
        return {name: text for name, text in said.items() if text}

    def selection(self) -> dict[str, object]:
        """Which messages of the table, by the names of the options."""
        said: dict[str, object] = {
            "--topic": sorted(set(self.topics)) or None,
            "--from": self.from_ms,
            "--until": self.until_ms,
            "--key": sorted(set(self.keys)) or None,
            "--where": self.where,
        }
        return {name: value for name, value in said.items() if value is not None}


class Piece(NamedTuple):
    """Offsets of all partitions that are sent at once."""

    start: int
    end: int
    row_count: int


def check(options: ReplayOptions) -> None:
    """What can be known without a session: that the table is an archive, and that a node is there to send to."""
    open_archive(options.table)
    if not options.is_dry:
        with reached(options.server):
            pass


def run(spark: "SparkSession", options: ReplayOptions, run: "Run") -> Summary:
    snapshot = open_archive(options.table)
    if options.is_dry:
        return _count(options, chosen(snapshot.frame(spark), options))
    job = ReplayJob(
        options.job or run.id,
        _target(options),
        selection=options.selection(),
        table_id=snapshot.id,
        clock=SystemClock(),
    )
    run.report("looking at the archive")
    archived = chosen(snapshot.frame(spark), options)
    ends = job.find()
    if ends is None:
        ends = _ends(archived)
    if not ends:
        # A job without a message has not begun.
        return _summary(options, job.name, 0, 0, had_begun=False)
    ends = job.begin(ends)
    before = job.sent_offset()
    pieces = list(cut(_buckets(within(spark, archived, ends), before, options.piece_size), options.piece_size))
    sent = _send(spark, options, run, snapshot, ends, pieces, job)
    return _summary(options, job.name, sent, sum(piece.row_count for piece in pieces), had_begun=before > 0)


# Which messages.


def chosen(archive: "DataFrame", options: ReplayOptions) -> "DataFrame":
    """The messages that the options mean, with the archive's columns."""
    frame = archive
    if options.topics:
        frame = frame.where(sf.col("topic").isin(*options.topics))
    for bound_ms, is_lower in ((options.from_ms, True), (options.until_ms, False)):
        if bound_ms is None:
            continue
        moment = sf.timestamp_millis(sf.lit(bound_ms))
        after = sf.col("timestamp") >= moment
        # The day says the same more roughly, and spares Spark the other days' files.
        frame = frame.where(after if is_lower else ~after)
        frame = frame.where(sf.col("day") >= sf.to_date(moment) if is_lower else sf.col("day") <= sf.to_date(moment))
    if options.keys:
        frame = frame.where(sf.col("key").isin(*(sf.lit(key.encode()) for key in options.keys)))
    return frame if options.where is None else _where(frame, options.where)


def _where(frame: "DataFrame", condition: str) -> "DataFrame":
    view = condition_view(frame)
    try:
        found = view.where(condition)
        found.schema  # noqa: B018 - a Connect server says here what is wrong with the condition
    except AnalysisException as error:
        raise OptionError(
            f"--where {condition!r} is no condition over messages: {sentence_of(error)}; "
            f"the columns are {', '.join(CONDITION_COLUMNS)}"
        ) from None
    return found.select("message.*")


def within(spark: "SparkSession", frame: "DataFrame", ends: list[End]) -> "DataFrame":
    """Only what the archive had when the job began."""
    bounds = spark.createDataFrame(ends, "topic string, partition int, end long")
    joined = frame.join(sf.broadcast(bounds), ["topic", "partition"])
    return joined.where(sf.col("offset") < sf.col("end")).select(*ARCHIVE_COLUMNS)


def _ends(frame: "DataFrame") -> list[End]:
    """Where a job ends that begins now."""
    found = frame.groupBy("topic", "partition").agg((sf.max("offset") + 1).alias("end")).collect()
    return sorted(End(row["topic"], row["partition"], row["end"]) for row in found)


# In which pieces.


def _buckets(frame: "DataFrame", before: int, piece_size: int) -> list[Piece]:
    """How many messages are still to be sent at which offsets, roughly enough to be held by the driver."""
    width = min(piece_size, _BUCKET_OFFSETS_MAX)
    bucket = sf.floor((sf.col("offset") - before) / sf.lit(width)).alias("bucket")
    counted = frame.where(sf.col("offset") >= before).groupBy(bucket).count().orderBy("bucket").collect()
    return [
        Piece(before + row["bucket"] * width, before + (row["bucket"] + 1) * width, row["count"]) for row in counted
    ]


def cut(buckets: list[Piece], piece_size: int) -> Iterator[Piece]:
    """Neighbouring buckets as pieces of about this many messages. Every piece has some."""
    piece: Piece | None = None
    for bucket in buckets:
        piece = bucket if piece is None else Piece(piece.start, bucket.end, piece.row_count + bucket.row_count)
        if piece.row_count >= piece_size:
            yield piece
            piece = None
    if piece is not None:
        yield piece


# Sending.


def _target(options: ReplayOptions) -> dict[str, str]:
    target = {"queue": options.to, "http": options.http} if options.is_queue else {"topic": options.to}
    return {SERVERS: options.server, **target}


def _send(
    spark: "SparkSession",
    options: ReplayOptions,
    run: "Run",
    snapshot: Snapshot,
    ends: list[End],
    pieces: list[Piece],
    job: ReplayJob,
) -> int:
    total = sum(piece.row_count for piece in pieces)
    pace = Pace(options.rate, SystemClock())
    sent = 0
    for piece in pieces:
        if run.is_stopping:
            run.note("The replay was asked to end; the same command goes on from here.")
            break
        rows = chosen(snapshot.between(spark, "offset", piece.start, piece.end), options)
        messages = outgoing(
            _in_order(within(spark, rows, ends)),
            job=job.name,
            keeps_partitions=options.keeps_partitions,
            keeps_times=not options.is_queue if options.keeps_times is None else options.keeps_times,
            is_queue=options.is_queue,
        )
        # The version is the offset behind the piece: what is below it has been sent.
        messages.write.format("headrace").options(**job.settings, txnVersion=str(piece.end)).mode("append").save()
        sent += piece.row_count
        run.report("sending", rows=sent, of=total)
        job.keep(ends)
        pace.wait(sent, lambda: run.is_stopping)
    return sent


def _in_order(rows: "DataFrame") -> "DataFrame":
    """A partition's rows one after another in one task: the sink keeps the order of a task's rows."""
    return rows.repartition("topic", "partition").sortWithinPartitions("topic", "partition", "offset")


class Pace:
    """Waits so that not more is sent than a rate allows, counted from the start."""

    def __init__(self, rate: int | None, clock: Clock) -> None:
        self._rate = rate
        self._clock = clock
        self._began_ms = clock.monotonic_ms()

    def left_ms(self, sent: int) -> float:
        """How long to wait until so many may have been sent."""
        if self._rate is None:
            return 0.0
        return self._began_ms + sent * 1000 / self._rate - self._clock.monotonic_ms()

    def wait(self, sent: int, is_stopping: Any) -> None:
        pause = threading.Event()
        while not is_stopping() and (left_ms := self.left_ms(sent)) > 0:
            pause.wait(min(left_ms / 1000, _LOOK_S))


# What is said at the end.


def _count(options: ReplayOptions, frame: "DataFrame") -> Summary:
    found = (
        frame.groupBy("topic", "partition")
        .agg(
            sf.count("*").alias("messages"),
            sf.min("offset").alias("first"),
            sf.max("offset").alias("last"),
            sf.date_format(sf.min("timestamp"), "yyyy-MM-dd HH:mm:ss").alias("from"),
            sf.date_format(sf.max("timestamp"), "yyyy-MM-dd HH:mm:ss").alias("until"),
        )
        .orderBy("topic", "partition")
        .collect()
    )
    columns = ("topic", "partition", "messages", "first", "last", "from", "until")
    return Summary(
        title=f"replay to {options.to}, not sent",
        columns=columns,
        rows=[tuple(row[column] for column in columns) for row in found],
        figures={"messages": sum(row["messages"] for row in found)},
    )


def _summary(options: ReplayOptions, job: str, sent: int, wanted: int, *, had_begun: bool) -> Summary:
    notes = []
    if had_begun and not wanted:
        notes.append(f"The job {job} was done before; give another --job to send the messages again.")
    elif had_begun:
        notes.append(f"The job {job} had begun before; this is what was left of it.")
    return Summary(
        title=f"replay to {options.to}",
        figures={"job": job, "sent": sent, "left": wanted - sent},
        notes=notes,
    )
