"""The audit while messages come in: findings as they occur, into a table or a topic.

    headrace pipeline run audit --continuous --topic orders --to alerts

Two streams become rows with numbers: the journal (offsets of partitions, sequences of producers) and, where
applications number their messages, the messages. Spark keeps one `Follower` for each scope in RocksDB, in its
checkpoint: a run that was killed goes on where it was, with the gaps that it was waiting for. A scope of which nothing
came for a day is forgotten.

Findings are written exactly once. What is late within `patience_s` is out of order; what has not come by then is lost.
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from pyspark.sql import Row
from pyspark.sql import functions as sf
from pyspark.sql.streaming.stateful_processor import StatefulProcessor, StatefulProcessorHandle

from headrace.model.batch import SEQUENCE_LIMIT
from headrace.spark.journal.data_source import NAME as JOURNAL
from headrace.spark.journal.data_source import register
from headrace.spark.pipeline.asked import reached
from headrace.spark.pipeline.audit_follow import Fault, Follower, Gap, Seen
from headrace.spark.pipeline.audit_id import whose_numbers, with_value
from headrace.spark.pipeline.audit_number import FINDING, FINDING_COLUMNS
from headrace.spark.pipeline.summary import Summary

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession
    from pyspark.sql.streaming.readwriter import DataStreamReader

    from headrace.spark.pipeline.audit import AuditOptions
    from headrace.spark.pipeline.context import Run

PATIENCE_S = 60.0

_DAY_MS = 24 * 3600 * 1000
_OFFSETS_PER_BATCH = 250_000
_GAP = "struct<first: bigint, last: bigint, since_ms: bigint, partition: int, offset: bigint>"
_STATE = f"lowest bigint, highest bigint, gaps array<{_GAP}>"
_PROVIDER = "spark.sql.streaming.stateStore.providerClass"
_ROCKSDB = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
_CHANGELOG = "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled"
_NO_DATA_BATCHES = "spark.sql.streaming.noDataMicroBatches.enabled"


def run_live(spark: "SparkSession", options: "AuditOptions", run: "Run") -> Summary:
    """Follow the topics until the run is stopped."""
    spark.conf.set(_PROVIDER, _ROCKSDB)
    spark.conf.set(_CHANGELOG, "true")
    # A loss is found in a batch without rows. A rollup in the same session turns such batches off.
    spark.conf.set(_NO_DATA_BATCHES, "true")
    found = find_live(numbered(spark, options), patience_ms=int(options.patience_s * 1000))
    findings = found.withColumn("foundAt", sf.current_timestamp())
    if options.to is not None:
        written = findings.select(
            sf.concat_ws("-", "topic", "partition").alias("key"),
            sf.to_json(sf.struct(*FINDING_COLUMNS, "foundAt")).alias("value"),
        )
        writer = written.writeStream.format("headrace").option("kafka.bootstrap.servers", options.server)
        writer = writer.option("topic", options.to)
    else:
        assert options.findings is not None
        writer = findings.writeStream.format("headrace_delta").option("path", options.findings)
    started = writer.option("checkpointLocation", run.checkpoint()).trigger(**run.trigger()).start()
    totals = run.follow(started, step="following")
    return Summary(
        title=f"Live audit of {', '.join(options.names)}",
        figures={"rows": totals.rows, "batches": totals.batches},
        notes=[f"Findings are in {options.to or options.findings}."],
    )


def find_live(rows: "DataFrame", *, patience_ms: int) -> "DataFrame":
    """Findings among rows as `numbered` makes them."""
    return rows.groupBy("topic", "rule", "scope").transformWithState(
        FollowingProcessor(patience_ms), FINDING, outputMode="Append", timeMode="ProcessingTime"
    )


class FollowingProcessor(StatefulProcessor):
    """Spark's side of a `Follower`: its state in a store, its patience as a timer."""

    def __init__(self, patience_ms: int) -> None:
        self._patience_ms = patience_ms

    def init(self, handle: StatefulProcessorHandle) -> None:
        self._handle = handle
        self._state = handle.getValueState("numbers", _STATE, ttlDurationMs=_DAY_MS)

    def handleInputRows(self, key: Any, rows: Iterator[Row], timerValues: Any) -> Iterator[Row]:  # noqa: N802, N803 - PySpark's names
        now_ms = timerValues.getCurrentProcessingTimeInMs()
        follower = self._load()
        for row in sorted(map(_seen, rows), key=lambda one: (one.partition, one.offset)):
            for fault in follower.see(row, now_ms=now_ms):
                yield _finding(key, fault)
        self._save(follower)

    def handleExpiredTimer(self, key: Any, timerValues: Any, expiredTimerInfo: Any) -> Iterator[Row]:  # noqa: N802, N803 - PySpark's names
        follower = self._load()
        for fault in follower.give_up(before_ms=timerValues.getCurrentProcessingTimeInMs() - self._patience_ms):
            yield _finding(key, fault)
        self._save(follower, expired_ms=expiredTimerInfo.getExpiryTimeInMs())

    def close(self) -> None:
        pass

    def _load(self) -> Follower:
        # Asking for a value that is not there has Spark write a warning each time.
        known = self._state.get() if self._state.exists() else None
        if known is None:
            return Follower()
        lowest, highest, gaps = known
        return Follower(lowest, highest, [Gap(*gap) for gap in gaps])

    def _save(self, follower: Follower, *, expired_ms: int | None = None) -> None:
        self._state.update((follower.lowest, follower.highest, [Row(**gap._asdict()) for gap in follower.gaps]))
        # Spark lists an expired timer until its handler has returned, although it does not fire again.
        if follower.oldest_ms is not None and not set(self._handle.listTimers()) - {expired_ms}:
            self._handle.registerTimer(follower.oldest_ms + self._patience_ms)


def _seen(row: Row) -> Seen:
    return Seen(
        row["partition"],
        row["offset"],
        row["endOffset"],
        row["first"],
        row["last"],
        row["isGapless"],
        row["wrapsAt"],
    )


def _finding(key: Any, fault: Fault) -> Row:
    topic, rule, scope = key
    return Row(
        topic=topic,
        partition=fault.partition,
        rule=rule,
        fault=fault.fault,
        firstOffset=fault.offset,
        lastOffset=fault.end_offset,
        count=fault.amount,
        detail=f"{scope}: {fault.detail}",
    )


# What is followed.


def numbered(spark: "SparkSession", options: "AuditOptions") -> "DataFrame":
    """The streams as rows with numbers, one for each rule that a batch or a message falls under."""
    rows = _journal_rows(spark, options)
    if options.unique is not None or options.rising is not None:
        rows = rows.unionByName(_application_rows(spark, options))
    return rows


def _journal_rows(spark: "SparkSession", options: "AuditOptions") -> "DataFrame":
    register(spark)
    is_cleaned = sf.col("topic").isin(*options.queues, *_compacted(options), "")
    base, last, sequence = sf.col("baseOffset"), sf.col("lastOffset"), sf.col("baseSequence").cast("bigint")
    offsets = _rule("offset", sf.format_string("partition %d", "partition"), base, last, ~is_cleaned)
    producer = sf.format_string("partition %d, producer %d epoch %d", "partition", "producerId", "producerEpoch")
    sequences = _rule(
        "producer sequence", producer, sequence, sequence + last - base, ~is_cleaned, wraps_at=SEQUENCE_LIMIT
    )
    rules = sf.array(offsets, sf.when(sf.col("producerId").isNotNull() & sequence.isNotNull(), sequences))
    journal = _stream(spark, options, JOURNAL).load()
    return journal.select(
        "topic", "partition", base.alias("offset"), last.alias("endOffset"), sf.inline(sf.array_compact(rules))
    )


def _application_rows(spark: "SparkSession", options: "AuditOptions") -> "DataFrame":
    messages = _stream(spark, options, "headrace").option("includeHeaders", "true").load()
    rules = []
    if options.unique is not None:
        # The same id twice is the same number twice, in a scope of its own.
        messages = with_value(messages, "id", options.unique, "--unique")
        zero = sf.lit(0).cast("bigint")
        rules.append(sf.when(sf.col("id").isNotNull(), _rule("id", sf.col("id"), zero, zero, sf.lit(False))))
    if options.rising is not None:
        messages = with_value(messages, "whose", options.of, "--of")
        messages = with_value(messages, "number", options.rising, "--rising")
        scope = whose_numbers("whose")
        number = sf.expr("try_cast(number as bigint)")
        rule = _rule("number", scope, number, number, sf.lit(options.is_gapless))
        rules.append(sf.when(number.isNotNull(), rule))
    return messages.select(
        "topic",
        "partition",
        "offset",
        sf.col("offset").alias("endOffset"),
        sf.inline(sf.array_compact(sf.array(*rules))),
    )


def _rule(
    name: str, scope: "Column", first: "Column", last: "Column", is_gapless: "Column", *, wraps_at: int | None = None
) -> "Column":
    return sf.struct(
        sf.lit(name).alias("rule"),
        scope.alias("scope"),
        first.alias("first"),
        last.alias("last"),
        is_gapless.alias("isGapless"),
        sf.lit(wraps_at).cast("bigint").alias("wrapsAt"),
    )


def _stream(spark: "SparkSession", options: "AuditOptions", format: str) -> "DataStreamReader":
    return (
        spark.readStream.format(format)
        .option("kafka.bootstrap.servers", options.server)
        .option("subscribe", ",".join(options.names))
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", str(_OFFSETS_PER_BATCH))
        # What is gone before it was read is a gap, and found like any other.
        .option("failOnDataLoss", "false")
    )


def _compacted(options: "AuditOptions") -> list[str]:
    with reached(options.server) as link:
        return [name for name in options.topics if "compact" in (link.topic_setting(name, "cleanup.policy") or "")]
