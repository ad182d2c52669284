"""A lake against the log that it was archived from.

`rows` are those of the lake: `topic`, `partition`, `offset`, `key`, `value`. What the log still has is compared message
by message: what is missing, there twice, different, or at another's place. Each partition is compared between the first
and the last offset that the lake has of it: what comes after was not archived yet, and what came before was dropped by
the lake's own retention, or never wanted.

Below the log's start there is nobody left to ask. An offset that is missing there may have been a message or the end of
a transaction: it is called unknown.
"""

from typing import TYPE_CHECKING

from pyspark.sql import Window
from pyspark.sql import functions as sf

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
    from pyspark.sql import Column, DataFrame

_PLACE = ("topic", "partition")
_AT = (*_PLACE, "offset")


def spans(rows: "DataFrame") -> "DataFrame":
    """For each partition how many offsets the lake has, and from where to where."""
    return rows.groupBy(*_PLACE).agg(
        sf.count_distinct("offset").alias("rows"), sf.min("offset").alias("first"), sf.max("offset").alias("last")
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


def find_missing(rows: "DataFrame", messages: "DataFrame", known: "DataFrame") -> "DataFrame":
    """Messages of the log that the lake has not, within its spans."""
    within = messages.join(sf.broadcast(known), list(_PLACE)).where("offset between first and last")
    missing = within.select(*_AT).join(rows.select(*_AT), list(_AT), "left_anti")
    return runs(missing, rule="lake", fault=LOST, detail=sf.lit("in the log and not in the lake"))


def find_changed(rows: "DataFrame", messages: "DataFrame") -> "DataFrame":
    """Rows that say something else than the log does at their place; some say what belongs at another one."""
    stored = rows.dropDuplicates([*_AT]).select(*_AT, _content().alias("stored"))
    sent = messages.select(*_AT, _content().alias("sent"))
    wrong = stored.join(sent, list(_AT)).where("stored <> sent")
    elsewhere = sent.groupBy(*_PLACE, sf.col("sent").alias("stored")).agg(sf.min("offset").alias("belongs"))
    return (
        wrong.join(elsewhere, [*_PLACE, "stored"], "left")
        .withColumn("fault", sf.when(sf.col("belongs").isNull(), ALTERED).otherwise(OUT_OF_ORDER))
        .withColumn(
            "detail",
            sf.coalesce(
                sf.format_string("this belongs at offset %d", "belongs"), sf.lit("the log says something else")
            ),
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


def find_unknown(rows: "DataFrame", places: "DataFrame") -> "DataFrame":
    """Gaps of the lake below the log's start, or in topics that there are no more (`start` is null)."""
    by_offset = Window.partitionBy(*_PLACE).orderBy("offset")
    beyond = sf.coalesce("start", sf.lit(2**62))
    return (
        rows.select(*_AT)
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


def _content() -> "Column":
    # Null and empty differ, and so do two pairs whose bytes are the same in a row.
    return sf.xxhash64(sf.struct("key", "value"), sf.col("key").isNull(), sf.col("value").isNull())
