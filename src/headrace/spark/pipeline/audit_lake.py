"""A lake against the log that it was archived from.

`rows` are those of the lake: `topic`, `partition`, `offset`, `timestamp`, `timestampType`, `key`, `value`, `headers`.
What the log still has is compared message by message: what is missing, there twice, different, or at another's place.

The table itself says which offsets of a partition were written to it (`lake/key.py`). So rows are missed also at the
end of a partition, at its beginning, and where none is left. What comes behind the mark was not archived yet. A table
without marks was written by something else than an archive: its partitions are compared between the first and the last
offset that it has of each. Days that the lake's own retention has dropped are not missed.

Below the log's start there is nothing left to compare with. An offset that is missing there may have been a message or
the end of a transaction: it is called unknown.
"""

import datetime
from collections.abc import Iterable
from typing import TYPE_CHECKING

from pyspark.sql import Window
from pyspark.sql import functions as sf

from headrace.client.values import TopicInfo
from headrace.spark.lake.key import PartitionKey, Reach
from headrace.spark.lake.reading import Snapshot
from headrace.spark.pipeline import audit_log
from headrace.spark.pipeline.audit_number import (
    ALTERED,
    DOUBLED,
    FINDING_COLUMNS,
    LOST,
    OUT_OF_ORDER,
    UNKNOWN,
    runs,
)

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

_PLACE = ("topic", "partition")
_AT = (*_PLACE, "offset")
_PARTS = ("key", "value", "headers", "timestamp")
_REACHES = "topic string, partition int, begin bigint, reached bigint"


def reaches(snapshot: Snapshot, topics: Iterable[TopicInfo]) -> list[Reach]:
    """What the table says was written to it of these topics."""
    found = (
        snapshot.reach(PartitionKey(topic.name, one.partition), str(topic.id))
        for topic in topics
        for one in topic.partitions
    )
    return [reach for reach in found if reach is not None]


def spans(
    spark: "SparkSession", rows: "DataFrame", reaches: Iterable[Reach], places: "DataFrame", *, is_dropped: bool
) -> "DataFrame":
    """For each partition how many offsets the lake has, its `first` and `last`, and `since` and `until`, between which
    it should have every message. `isDropped` says whether offsets before the first may have been dropped.
    """
    marks = spark.createDataFrame([(*reach.key, reach.begin, reach.end) for reach in reaches], _REACHES)
    present = rows.groupBy(*_PLACE).agg(
        sf.count_distinct("offset").alias("rows"), sf.min("offset").alias("first"), sf.max("offset").alias("last")
    )
    return (
        present.join(marks, list(_PLACE), "full_outer")
        .join(places.select(*_PLACE, "start"), list(_PLACE), "left")
        .select(
            *_PLACE,
            sf.coalesce("rows", sf.lit(0)).alias("rows"),
            "first",
            "last",
            # Where nothing says where the lake began, and no row is left, it had all that the log has.
            sf.coalesce(
                sf.when(sf.col("begin").isNotNull(), sf.least("begin", "first")), "first", "start", sf.lit(0)
            ).alias("since"),
            sf.greatest(sf.col("last"), sf.col("reached") - 1).alias("until"),
            sf.lit(is_dropped).alias("isDropped"),
        )
    )


def find_doubled(rows: "DataFrame") -> "DataFrame":
    return (
        rows.groupBy(*_AT)
        .count()
        .where("count > 1")
        .select(
            *_PLACE,
            sf.lit("lake").alias("rule"),
            sf.lit(DOUBLED).alias("fault"),
            sf.col("offset").alias("firstOffset"),
            sf.col("offset").alias("lastOffset"),
            (sf.col("count") - 1).alias("count"),
            sf.format_string("the lake has it %d times", "count").alias("detail"),
        )
    )


def differences(
    rows: "DataFrame",
    messages: "DataFrame",
    spans: "DataFrame",
    places: "DataFrame",
    dropped_before: datetime.date | None,
) -> "DataFrame":
    """The offsets at which lake and log differ: what is `stored` in the lake, and what was `sent`. One may be null."""
    starts = sf.broadcast(places.select(*_PLACE, "start"))
    stored = rows.join(starts, list(_PLACE)).where("offset >= start").select(*_AT, _content().alias("stored"))
    sent = (
        messages.join(sf.broadcast(spans.select(*_PLACE, "since", "until")), list(_PLACE))
        .where("offset between since and until")
        .select(*_AT, _content().alias("sent"), _is_before(dropped_before).alias("isDropped"))
    )
    is_equal = sf.coalesce(sf.col("stored.whole") == sf.col("sent.whole"), sf.lit(False))
    return sent.join(stored, list(_AT), "full_outer").where(~is_equal)


def find_missing(differences: "DataFrame") -> "DataFrame":
    """Messages of the log that the lake once had, or should have."""
    missing = differences.where("stored is null and not isDropped").select(*_AT)
    return runs(missing, rule="lake", fault=LOST, detail=sf.lit("in the log and not in the lake"))


def find_changed(differences: "DataFrame") -> "DataFrame":
    """Rows that say something else than the log does at their place; some say what belongs at another one."""
    wrong = differences.where("stored is not null and sent is not null")
    # Only what its own place does not have: a message that was written over another is at its own place as well.
    elsewhere = (
        differences.where("sent is not null")
        .groupBy(*_PLACE, sf.col("sent.whole").alias("whole"))
        .agg(sf.min("offset").alias("belongs"))
    )
    others = [sf.when(sf.col(f"stored.{part}") != sf.col(f"sent.{part}"), part) for part in _PARTS]
    altered = sf.concat(sf.lit("the log has another "), sf.concat_ws(", ", *others))
    is_altered = sf.col("belongs").isNull()
    return (
        wrong.withColumn("whole", sf.col("stored.whole"))
        .join(elsewhere, [*_PLACE, "whole"], "left")
        .withColumn("fault", sf.when(is_altered, ALTERED).otherwise(OUT_OF_ORDER))
        .withColumn(
            "detail",
            sf.when(is_altered, altered).otherwise(sf.format_string("this belongs at offset %d", "belongs")),
        )
        .select(
            *_PLACE,
            sf.lit("lake").alias("rule"),
            "fault",
            sf.col("offset").alias("firstOffset"),
            sf.col("offset").alias("lastOffset"),
            sf.lit(1).cast("bigint").alias("count"),
            "detail",
        )
        .select(*FINDING_COLUMNS)
    )


def find_added(differences: "DataFrame", batches: "DataFrame", places: "DataFrame") -> "DataFrame":
    """Rows at offsets that the log says are no messages, or that it never came to."""
    added = differences.where("sent is null").select(*_AT).distinct()
    others = batches.where(
        sf.col("what").isin(audit_log.MARKER, audit_log.ENTRY, audit_log.ABORTED, audit_log.OPEN)
    ).select(*_PLACE, sf.explode(sf.sequence("baseOffset", "lastOffset")).alias("offset"))
    beyond = added.join(sf.broadcast(places.select(*_PLACE, "end")), list(_PLACE)).where("offset >= end").select(*_AT)
    return runs(
        added.join(others, list(_AT), "left_semi"),
        rule="lake",
        fault=ALTERED,
        detail=sf.lit("the log has no message at this offset"),
    ).unionByName(runs(beyond, rule="lake", fault=ALTERED, detail=sf.lit("the log ends before this offset")))


def find_unknown(rows: "DataFrame", spans: "DataFrame", places: "DataFrame") -> "DataFrame":
    """Gaps of the lake below the log's start, or in topics that there are no more (`start` is null)."""
    by_offset = Window.partitionBy(*_PLACE).orderBy("offset")
    beyond = sf.coalesce("start", sf.lit(2**62))
    # Offsets around what there should be, so that what is missing at its ends is a gap too.
    before = spans.where("not isDropped").select(*_PLACE, (sf.col("since") - 1).alias("offset"))
    behind = spans.where("not isDropped or rows > 0").select(*_PLACE, (sf.col("until") + 1).alias("offset"))
    return (
        rows.select(*_AT)
        .unionByName(before)
        .unionByName(behind)
        .distinct()
        .join(sf.broadcast(places.select(*_PLACE, "start")), list(_PLACE), "left")
        .withColumn("previous", sf.lag("offset").over(by_offset))
        .withColumn("firstOffset", sf.col("previous") + 1)
        .withColumn("lastOffset", sf.least(sf.col("offset"), beyond) - 1)
        .where("firstOffset <= lastOffset")
        .withColumns(
            {
                "count": sf.col("lastOffset") - sf.col("firstOffset") + 1,
                "rule": sf.lit("lake"),
                "fault": sf.lit(UNKNOWN),
                "detail": sf.lit("the log has it no more: a message, or the end of a transaction"),
            }
        )
        .select(*FINDING_COLUMNS)
    )


def count_behind(batches: "DataFrame", spans: "DataFrame") -> int:
    """Messages of the log that come after what was archived."""
    behind = (
        batches.where(sf.col("what") == audit_log.MESSAGE)
        .join(sf.broadcast(spans.select(*_PLACE, "until")), list(_PLACE), "left")
        .where("until is null or baseOffset > until")
        .agg(sf.sum("recordCount"))
    )
    return int(behind.first()[0] or 0)  # type: ignore[index]


def _is_before(day: datetime.date | None) -> "Column":
    if day is None:
        return sf.lit(False)
    midnight = datetime.datetime.combine(day, datetime.time(), datetime.UTC)
    is_before = sf.col("timestamp") < sf.timestamp_millis(sf.lit(int(midnight.timestamp() * 1000)))
    return sf.coalesce(is_before, sf.lit(False))


def _content() -> "Column":
    """What a message says, as a hash of each of its parts and one of all."""
    headers = sf.transform(
        sf.coalesce("headers", sf.array().cast("array<struct<key: string, value: binary>>")),
        lambda header: sf.struct(header["key"], header["value"], header["value"].isNull()),
    )
    parts = {
        # Null and empty differ, and so do two pairs whose bytes are the same in a row.
        "key": sf.xxhash64("key", sf.col("key").isNull()),
        "value": sf.xxhash64("value", sf.col("value").isNull()),
        "headers": sf.xxhash64(headers),
        "timestamp": sf.xxhash64("timestamp", "timestampType", sf.col("timestamp").isNull()),
    }
    whole = sf.xxhash64(*parts.values())
    return sf.struct(*(hashed.alias(name) for name, hashed in parts.items()), whole.alias("whole"))
