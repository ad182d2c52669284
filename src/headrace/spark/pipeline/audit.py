"""The pipeline `audit`: lost, doubled and out-of-order messages, over all history.

    headrace pipeline run audit --topic orders
    headrace pipeline run audit --lake /data/lake --rising json:$.number --of key

Four questions, each asked of what can answer it:

    the log        are all offsets there, and is each that is not a message explained? (`audit_log`)
                   do the producers' sequences follow one another? (`audit_log`)
    a queue's log  was everything that was acknowledged handed out? (`audit_delivery`)
    a lake         does it have every message of the log once, and as it is in the log? (`audit_lake`)
    applications   are their ids there once, do their numbers rise? (`audit_id`); asked of the lake where one is given

What is found is one row of `audit_number.FINDING` each. The log is read as it is now, up to an end that is fixed when
the audit begins.
"""

import json
import math
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from functools import reduce
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyspark.sql import functions as sf

from headrace.client.values import TopicPartition
from headrace.model.errors import InvalidNameError
from headrace.model.names import check_topic_name
from headrace.spark.errors import OptionError
from headrace.spark.journal.data_source import NAME as JOURNAL
from headrace.spark.journal.data_source import register
from headrace.spark.lake.key import Reach
from headrace.spark.lake.reading import Snapshot
from headrace.spark.lake.sink_option import table_path
from headrace.spark.lake.table import check_place
from headrace.spark.pipeline import audit_delivery, audit_id, audit_lake, audit_log
from headrace.spark.pipeline.archive import open_archive
from headrace.spark.pipeline.asked import check_servers, found_topics, reached
from headrace.spark.pipeline.audit_live import PATIENCE_S, run_live
from headrace.spark.pipeline.audit_number import DOUBLED, LOST, OUT_OF_ORDER, UNKNOWN
from headrace.spark.pipeline.summary import Summary

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, DataFrameReader, SparkSession

    from headrace.spark.pipeline.context import Run

_PLACE = ["topic", "partition"]
_PLACES = "topic string, partition int, start bigint, end bigint, isCleaned boolean"
_SHOWN_MAX = 10  # findings in the summary; all of them are in the table of --findings
_COMPACT = "compact"


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditOptions:
    server: str
    topics: tuple[str, ...] = ()
    queues: tuple[str, ...] = ()  # neither topics nor queues: those of the lake
    lake: str | None = None
    unique: str | None = None  # where a message says its id; see `audit_id`
    rising: str | None = None  # where it says its number
    of: str = "key"  # whose number that is
    is_gapless: bool = False
    is_strict: bool = False  # what nothing can tell counts as found
    findings: str | None = None  # a Delta table for everything that was found
    to: str | None = None  # or a topic, where messages are followed as they come
    is_live: bool = False
    patience_s: float = PATIENCE_S  # live: what has not come after so long is lost

    def __post_init__(self) -> None:
        check_servers(self.server)
        if not self.names and self.lake is None:
            raise OptionError("say what to look at: --topic or --queue, --lake, or both")
        for name in (*self.names, *(() if self.to is None else (self.to,))):
            try:
                check_topic_name(name)
            except InvalidNameError as error:
                raise OptionError(str(error)) from None
        self._check_rules()
        if self.findings is not None:
            check_place(table_path(self.findings), partition_by=())
        if self.lake is not None and not Path(table_path(self.lake), "_delta_log").is_dir():
            raise OptionError(f"--lake {self.lake} is no Delta table; name what an archive has written")
        if self.is_live:
            self._check_live()
        elif self.to is not None:
            raise OptionError("--to belongs to --continuous; --findings takes what is found otherwise")

    def _check_rules(self) -> None:
        for option, text in (("--unique", self.unique), ("--rising", self.rising), ("--of", self.of)):
            if text is not None and not text.strip():
                raise OptionError(f"{option} is empty; say key, header:NAME, json:$.path or an expression")
        if self.rising is None and (self.is_gapless or self.of != "key"):
            raise OptionError("--of and --gapless belong to --rising; say where a message has its number")

    def _check_live(self) -> None:
        if self.lake is not None:
            raise OptionError("--lake is looked at as a whole; leave --continuous out, or follow --topic and --queue")
        if (self.to is None) == (self.findings is None):
            raise OptionError("say where findings go as they occur: --to TOPIC or --findings DIR")
        if self.to in self.names:
            raise OptionError(f"--to {self.to} is followed too; findings need a topic of their own")
        if not 0 < self.patience_s < math.inf:
            raise OptionError(f"--patience is a number above 0 seconds, not {self.patience_s}")

    @property
    def names(self) -> tuple[str, ...]:
        return (*self.topics, *self.queues)

    @property
    def _findings_path(self) -> Path | None:
        return None if self.findings is None else table_path(self.findings)

    def identity(self) -> dict[str, str]:
        return {
            "server": self.server,
            "topics": ",".join(sorted(self.names)),
            "lake": "" if self.lake is None else str(table_path(self.lake)),
            "live": f"to {self.to or self._findings_path}" if self.is_live else "",
            "rules": " ".join(filter(None, (self.unique, self.rising, self.of))),
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Log:
    """What the log says, read once."""

    batches: "DataFrame"  # as `audit_log.with_gaps`
    messages: "DataFrame"  # the committed ones
    places: "DataFrame"


@dataclass(frozen=True, slots=True, kw_only=True)
class Lake:
    """What the table has, and what it says that it once had."""

    snapshot: Snapshot
    rows: "DataFrame"
    reaches: list[Reach]
    topics: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Compared:
    """A lake beside its log."""

    rows: "DataFrame"
    spans: "DataFrame"  # as `audit_lake.spans`
    differences: "DataFrame"  # as `audit_lake.differences`


def check(options: AuditOptions) -> None:
    """What can be known without a session: the lake is an archive, a node answers, and the topics are there.

    Topics that are in a lake may be gone.
    """
    if options.lake is not None:
        open_archive(options.lake)
    with reached(options.server) as link:
        if options.lake is None:
            found_topics(link, options.names)


def run(spark: "SparkSession", options: AuditOptions, run: "Run") -> Summary:
    if options.is_live:
        return run_live(spark, options, run)
    with ExitStack() as kept:
        return _run(spark, options, run, kept)


def _run(spark: "SparkSession", options: AuditOptions, run: "Run", kept: ExitStack) -> Summary:
    lake = None if options.lake is None else _open_lake(spark, options)
    run.report("reading the log")
    log = _read_log(spark, options, options.names if lake is None else lake.topics, kept)
    run.report("comparing")
    compared = None if lake is None else _compare(spark, log, lake, kept)
    judged = _keep(kept, audit_delivery.judge(audit_delivery.told(log.batches)))
    findings = _keep(kept, _find(log, judged, compared, options))
    shown = findings.orderBy("topic", "partition", "firstOffset").limit(_SHOWN_MAX).collect()
    if options.findings is not None:
        dated = findings.withColumn("foundAt", sf.current_timestamp())
        dated.write.format("headrace_delta").mode("append").option("path", options.findings).save()
        run.note(f"The findings are in {options.findings}.")
    counted = _counted(log, compared, findings).collect()
    behind = 0 if compared is None else audit_lake.count_behind(log.batches, compared.spans)
    run.report("compared", rows=sum(row["rows"] for row in counted))
    return _summary(options, counted, shown, unjudged=judged.where("not isJudged").count(), behind=behind)


def _keep(kept: ExitStack, frame: "DataFrame") -> "DataFrame":
    """Made once, for all who look at it."""
    kept.callback(frame.unpersist)
    return frame.persist()


def _compare(spark: "SparkSession", log: Log, lake: Lake, kept: ExitStack) -> Compared:
    dropped_before = lake.snapshot.dropped_before
    spans = audit_lake.spans(spark, lake.rows, lake.reaches, log.places, is_dropped=dropped_before is not None)
    spans = _keep(kept, spans)
    different = audit_lake.differences(lake.rows, log.messages, spans, log.places, dropped_before)
    return Compared(rows=lake.rows, spans=spans, differences=_keep(kept, different))


def _find(log: Log, judged: "DataFrame", compared: Compared | None, options: AuditOptions) -> "DataFrame":
    found = [
        audit_log.find_holes(log.batches, log.places),
        audit_log.find_overlaps(log.batches),
        audit_log.find_sequence_faults(log.batches),
        audit_delivery.find_undelivered(judged),
    ]
    messages = log.messages
    if compared is not None:
        found += [
            audit_lake.find_doubled(compared.rows),
            audit_lake.find_missing(compared.differences),
            audit_lake.find_changed(compared.differences),
            audit_lake.find_added(compared.differences, log.batches, log.places),
            audit_lake.find_unknown(compared.rows, compared.spans, log.places),
        ]
        messages = compared.rows.dropDuplicates([*_PLACE, "offset"])
    if options.unique is not None:
        found.append(audit_id.find_doubled_ids(messages, options.unique))
    if options.rising is not None:
        found.append(
            audit_id.find_number_faults(messages, options.rising, key=options.of, is_gapless=options.is_gapless)
        )
    return reduce(lambda one, other: one.unionByName(other), found)


# What is read.


def _read_log(spark: "SparkSession", options: AuditOptions, topics: tuple[str, ...], kept: ExitStack) -> Log:
    with reached(options.server) as link:
        known = found_topics(link, topics) if options.lake is None else link.topics(topics)
        ats = [TopicPartition(topic.name, one.partition) for topic in known.values() for one in topic.partitions]
        cleaned = {
            name: name in options.queues or _COMPACT in (link.topic_setting(name, "cleanup.policy") or "")
            for name in known
        }
        if not ats:
            return _no_log(spark)
        ends, stable_ends = link.end_offsets(ats, committed=False), link.end_offsets(ats, committed=True)
        register(spark)
        journal = _keep(kept, _reader(spark, options, JOURNAL, ends).load())
        journal.count()
        # Asked after the reading: what retention removed meanwhile is not taken for a hole.
        starts = link.start_offsets(ats)
    places = spark.createDataFrame(
        [(at.topic, at.partition, starts[at], ends[at], cleaned[at.topic]) for at in ats], _PLACES
    )
    messages = _reader(spark, options, "headrace", stable_ends).option("includeHeaders", "true").load()
    return Log(batches=_keep(kept, audit_log.with_gaps(journal, places)), messages=messages, places=places)


def _reader(
    spark: "SparkSession", options: AuditOptions, format: str, ends: Mapping[TopicPartition, int]
) -> "DataFrameReader":
    offsets: dict[str, dict[str, int]] = {}
    for at, end in ends.items():
        offsets.setdefault(at.topic, {})[str(at.partition)] = end
    return (
        spark.read.format(format)
        .option("kafka.bootstrap.servers", options.server)
        .option("subscribe", ",".join(offsets))
        .option("endingOffsets", json.dumps(offsets))
        .option("failOnDataLoss", "false")
    )


def _no_log(spark: "SparkSession") -> Log:
    """Of a lake whose topics are all gone."""
    from headrace.spark.arrow.schema import FULL_SCHEMA
    from headrace.spark.journal.entry import SCHEMA

    places = spark.createDataFrame([], _PLACES)
    batches = audit_log.with_gaps(spark.createDataFrame([], SCHEMA), places)
    return Log(batches=batches, messages=spark.createDataFrame([], FULL_SCHEMA), places=places)


def _open_lake(spark: "SparkSession", options: AuditOptions) -> Lake:
    assert options.lake is not None
    snapshot = open_archive(options.lake)
    rows = snapshot.frame(spark)
    if options.names:
        rows = rows.where(sf.col("topic").isin(*options.names))
    present = {row["topic"] for row in rows.select("topic").distinct().collect()}
    with reached(options.server) as link:
        # A topic of which the lake has lost every row is among those of the node.
        every = [] if options.names else link.all_topics()
        known = {topic.name: topic for topic in every} | link.topics(options.names or present)
    reaches = audit_lake.reaches(snapshot, known.values())
    archived = present | {reach.key.topic for reach in reaches}
    unknown = [name for name in options.names if name not in archived]
    if unknown:
        # To find nothing in it would be taken for an answer.
        raise OptionError(
            f"--lake {options.lake} has no message of {unknown[0]}, so nothing can be said about it; "
            "archive it first, or leave out --lake"
        )
    return Lake(snapshot=snapshot, rows=rows, reaches=reaches, topics=tuple(sorted(archived)))


# What is said.


def _counted(log: Log, compared: Compared | None, findings: "DataFrame") -> "DataFrame":
    """One row a partition: what was there, what is explained, what was found."""
    kinds = audit_log.count_kinds(log.batches)
    faults = findings.groupBy(*_PLACE).agg(
        *(sf.sum(sf.when(sf.col("fault") == fault, sf.col("count")).otherwise(0)).alias(fault) for fault in _FAULTS),
        sf.sum(sf.when(~sf.col("fault").isin(*_FAULTS), sf.col("count")).otherwise(0)).alias("other"),
    )
    if compared is None:
        seen = kinds.withColumnRenamed("message", "rows")
    else:
        seen = _explained_in_lake(log, compared.spans, findings)
    return seen.join(faults, _PLACE, "left").na.fill(0, [*_FAULTS, "other"]).orderBy(*_PLACE)


def _explained_in_lake(log: Log, spans: "DataFrame", findings: "DataFrame") -> "DataFrame":
    """The lake's spans, and what the log says about the offsets within them that are no rows."""
    spans = spans.withColumn("from", sf.coalesce("first", "since"))
    ranges = sf.broadcast(spans.select(*_PLACE, "from", "until"))
    within = log.batches.join(ranges, _PLACE).where("baseOffset between from and until")
    kinds = audit_log.count_kinds(within.drop("from", "until")).drop("message", "first", "last", audit_log.CLEANED)
    missing = (
        findings.where((sf.col("rule") == "lake") & sf.col("fault").isin(LOST, UNKNOWN))
        .join(ranges, _PLACE)
        .where("firstOffset >= from")
        .groupBy(*_PLACE)
        .agg(sf.sum("count").alias("missing"))
    )
    is_cleaned = log.batches.groupBy(*_PLACE).agg(sf.max("isCleaned").alias("isCleaned"))
    others = ("missing", audit_log.MARKER, audit_log.ENTRY, audit_log.ABORTED, audit_log.OPEN)
    left = sf.col("until") - sf.col("from") + 1 - sf.col("rows")
    for name in others:
        left = left - sf.col(name)
    return (
        spans.join(kinds, _PLACE, "left")
        .join(missing, _PLACE, "left")
        .join(is_cleaned, _PLACE, "left")
        .na.fill(0, list(others))
        .withColumn(audit_log.CLEANED, sf.when(sf.col("isCleaned"), sf.greatest(left, sf.lit(0))).otherwise(0))
        .drop("missing", "isCleaned", "from", "since", "until", "isDropped")
    )


_FAULTS = (LOST, DOUBLED, OUT_OF_ORDER, UNKNOWN)
_COLUMNS = ("topic", "partition", "rows", "first", "last", *audit_log.EXPLAINED, *_FAULTS, "other")


def _summary(options: AuditOptions, counted: list[Any], found: list[Any], *, unjudged: int, behind: int) -> Summary:
    totals = {fault: sum(row[fault] for row in counted) for fault in (*_FAULTS, "other")}
    wrong = sum(count for fault, count in totals.items() if fault != UNKNOWN or options.is_strict)
    notes = [_sentence(finding) for finding in found]
    if totals[UNKNOWN] and not options.is_strict:
        notes.append("What is unknown lies where the log has nothing any more; --strict counts it as found.")
    if unjudged:
        notes.append(f"{unjudged:,} acknowledgements lie behind cleaned parts of the log and could not be judged.")
    if behind:
        notes.append(f"{behind:,} messages of the log come after what was archived, and were not compared.")
    return Summary(
        title=f"Audit of {options.lake or ', '.join(options.names)}",
        columns=_COLUMNS,
        rows=[[row[column] for column in _COLUMNS] for row in counted],
        figures={"messages": sum(row["rows"] for row in counted), "found": wrong},
        notes=notes,
        is_found=wrong > 0,
    )


def _sentence(finding: Any) -> str:
    first, last = finding["firstOffset"], finding["lastOffset"]
    where = f"{finding['topic']}-{finding['partition']} at {first}" + (f" to {last}" if last != first else "")
    return f"{where}: {finding['count']:,} {finding['fault']}, by {finding['rule']}: {finding['detail']}"
