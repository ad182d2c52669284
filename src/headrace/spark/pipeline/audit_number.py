"""Numbers that should follow one another: which are missing, which come twice, which come late.

Offsets of a partition, sequences of a producer and numbers that an application gives are one question. A row has its
scope (whose numbers these are), the numbers from `first` to `last` that it stands for, and the place at which it is
found. Two orders are looked at:

    by number   a gap is a loss, an overlap is a double: the one that is found later
    by place    a row that is no double, and comes after a larger number, is out of order

So a pair that changed places is one finding and no loss, and a message that comes twice is not out of order as well.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from pyspark.sql import Window
from pyspark.sql import functions as sf

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

LOST, DOUBLED, OUT_OF_ORDER = "lost", "doubled", "out of order"
# Not found by numbers: acknowledged by somebody who never had it; and what nothing that is still there can tell.
UNDELIVERED, ALTERED, UNKNOWN = "undelivered", "altered", "unknown"

FINDING = (
    "topic string, partition int, rule string, fault string, firstOffset bigint, lastOffset bigint, count bigint, "
    "detail string"
)
FINDING_COLUMNS = ("topic", "partition", "rule", "fault", "firstOffset", "lastOffset", "count", "detail")


def find_faults(
    rows: "DataFrame", *, rule: str, scope: Sequence[str], whose: "Column", is_gapless: "Column"
) -> "DataFrame":
    """Findings among rows with `topic`, `partition`, `offset`, `endOffset`, `first`, `last` and the scope's columns.

    `whose` says in words whose numbers these are; only where they are gapless is a missing one a loss.
    """
    by_number = Window.partitionBy(*scope).orderBy("first", "partition", "offset")
    by_place = Window.partitionBy(*scope).orderBy("partition", "offset")
    so_far = (Window.unboundedPreceding, -1)
    looked_at = rows.select(
        "*",
        sf.max("last").over(by_number.rowsBetween(*so_far)).alias("below"),
        sf.max("last").over(by_place.rowsBetween(*so_far)).alias("before"),
    )
    first, last, below, before = sf.col("first"), sf.col("last"), sf.col("below"), sf.col("before")
    is_doubled, is_lost = first <= below, first > below + 1
    is_late = ~sf.coalesce(is_doubled, sf.lit(False)) & (first < before)
    doubled = sf.struct(
        sf.lit(DOUBLED).alias("fault"),
        (sf.least(last, below) - first + 1).alias("count"),
        _said(whose, first, sf.least(last, below), "there before"),
    )
    lost = sf.struct(
        sf.lit(LOST).alias("fault"),
        (first - below - 1).alias("count"),
        _said(whose, below + 1, first - 1, "nowhere"),
    )
    late = sf.struct(
        sf.lit(OUT_OF_ORDER).alias("fault"),
        sf.lit(1).cast("bigint").alias("count"),
        sf.concat(whose, sf.lit(": "), first.cast("string"), sf.lit(" comes after "), before.cast("string")).alias(
            "detail"
        ),
    )
    faults = [sf.when(is_doubled, doubled), sf.when(is_late, late), sf.when(is_lost & is_gapless, lost)]
    return (
        looked_at.select("*", sf.explode(sf.array_compact(sf.array(*faults))).alias("found"))
        .withColumns({"rule": sf.lit(rule), "firstOffset": sf.col("offset"), "lastOffset": sf.col("endOffset")})
        .select("topic", "partition", "rule", "found.fault", "firstOffset", "lastOffset", "found.count", "found.detail")
    )


def _said(whose: "Column", first: "Column", last: "Column", how: str) -> "Column":
    span = sf.when(first == last, first.cast("string")).otherwise(
        sf.concat(first.cast("string"), sf.lit(" to "), last.cast("string"))
    )
    return sf.concat(whose, sf.lit(": "), span, sf.lit(f" {'is' if how == 'nowhere' else 'was'} {how}")).alias("detail")


def runs(rows: "DataFrame", *, rule: str, fault: str, detail: "Column") -> "DataFrame":
    """Findings for rows with `topic`, `partition` and `offset`, of which neighbours are one finding."""
    by_offset = Window.partitionBy("topic", "partition").orderBy("offset")
    return (
        rows.withColumn("run", sf.col("offset") - sf.row_number().over(by_offset))
        .groupBy("topic", "partition", "run")
        .agg(sf.min("offset").alias("firstOffset"), sf.max("offset").alias("lastOffset"), sf.count("*").alias("count"))
        .withColumns({"rule": sf.lit(rule), "fault": sf.lit(fault), "detail": detail})
        .select(*FINDING_COLUMNS)
    )
