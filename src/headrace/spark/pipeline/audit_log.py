"""What the log itself tells: what each of its offsets is, what is missing, and whether producers' numbers follow.

`journal` has one row a batch (`headrace.spark.journal`). `places` has one row a partition: `topic`, `partition`, the
log's `start` and `end`, and `isCleaned`, which is whether something may have been taken out of its middle: it is
compacted, or a queue whose acknowledged messages go.

What an offset is:

    message    a reader gets it
    aborted    part of a transaction that was aborted: readers of committed messages do not get it
    open       part of a transaction that has not ended: nobody knows yet
    marker     the end of a transaction
    entry      a queue's own: a lease, an acknowledgement, …
    cleaned    taken out, in a partition that is cleaned
    lost       nowhere, and nothing says why
"""

from typing import TYPE_CHECKING

from pyspark.sql import Window
from pyspark.sql import functions as sf

from headrace.model.batch import SEQUENCE_LIMIT
from headrace.spark.pipeline.audit_number import FINDING_COLUMNS, LOST, find_faults
from headrace.wire.kafka.marker import ABORT_KIND, COMMIT_KIND

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

MESSAGE, ABORTED, OPEN, MARKER, ENTRY, CLEANED = "message", "aborted", "open", "marker", "entry", "cleaned"
EXPLAINED = (MARKER, ENTRY, ABORTED, OPEN, CLEANED)

_PLACE = ("topic", "partition")


def named(journal: "DataFrame") -> "DataFrame":
    """The journal with `what` each batch is."""
    is_marker = sf.col("isControl") & sf.col("controlKind").isin(ABORT_KIND, COMMIT_KIND)
    of_producer = Window.partitionBy(*_PLACE, "producerId").orderBy("baseOffset")
    ending = sf.first(sf.when(is_marker, sf.col("controlKind")), ignorenulls=True).over(
        of_producer.rowsBetween(Window.currentRow, Window.unboundedFollowing)
    )
    return journal.withColumn("ending", sf.when(sf.col("isTransactional"), ending)).withColumn(
        "what",
        sf.when(is_marker, MARKER)
        .when(sf.col("isControl") & (sf.col("recordCount") == 0), CLEANED)
        .when(sf.col("isControl"), ENTRY)
        .when(sf.col("ending") == ABORT_KIND, ABORTED)
        .when(sf.col("isTransactional") & sf.col("ending").isNull(), OPEN)
        .otherwise(MESSAGE),
    )


def with_gaps(journal: "DataFrame", places: "DataFrame") -> "DataFrame":
    """Named batches, each with the offsets that are missing `gap` before it and `thinned` in it, and `isCleaned`.

    Whoever asks for a topic gets a queue's entries too: a partition that has some is a queue's, and is cleaned.
    """
    by_offset = Window.partitionBy(*_PLACE).orderBy("baseOffset")
    everything = Window.partitionBy(*_PLACE)
    before = sf.lag("lastOffset").over(by_offset)
    offsets = sf.col("lastOffset") - sf.col("baseOffset") + 1
    return (
        named(journal)
        .join(sf.broadcast(places), list(_PLACE))
        .withColumn("isCleaned", sf.col("isCleaned") | sf.max(sf.col("what") == ENTRY).over(everything))
        .withColumn("previous", sf.coalesce(before, sf.col("start") - 1))
        .withColumn("gap", sf.greatest(sf.col("baseOffset") - sf.col("previous") - 1, sf.lit(0)))
        .withColumn("thinned", sf.when(sf.col("isControl"), 0).otherwise(offsets - sf.col("recordCount")))
    )


def count_kinds(batches: "DataFrame") -> "DataFrame":
    """For each partition how many offsets are what, and the first and last message. `batches` is as `with_gaps`."""

    def counted(what: str) -> "Column":
        count = sf.col("recordCount") if what in (MESSAGE, ABORTED, OPEN) else sf.lit(1)
        return sf.sum(sf.when(sf.col("what") == what, count).otherwise(0)).alias(what)

    whole = sf.col("lastOffset") - sf.col("baseOffset") + 1
    taken_out = sf.when(sf.col("isCleaned"), sf.col("gap") + sf.col("thinned")).otherwise(0)
    emptied = sf.when(sf.col("what") == CLEANED, whole).otherwise(0)
    is_message = (sf.col("what") == MESSAGE) & (sf.col("recordCount") > 0)
    return batches.groupBy(*_PLACE).agg(
        *(counted(what) for what in (MESSAGE, MARKER, ENTRY, ABORTED, OPEN)),
        sf.sum(taken_out + emptied).alias(CLEANED),
        sf.min(sf.when(is_message, sf.col("baseOffset"))).alias("first"),
        sf.max(sf.when(is_message, sf.col("lastOffset"))).alias("last"),
    )


def find_holes(batches: "DataFrame", places: "DataFrame") -> "DataFrame":
    """Offsets that are nowhere, in partitions from which nothing is taken out."""
    whole = batches.where(~sf.col("isCleaned"))
    between = whole.where("gap > 0").select(
        *_PLACE, (sf.col("previous") + 1).alias("firstOffset"), (sf.col("baseOffset") - 1).alias("lastOffset")
    )
    ends = batches.groupBy(*_PLACE).agg(sf.max("lastOffset").alias("reached"), sf.max("isCleaned").alias("cleaned"))
    at_end = (
        places.join(ends, list(_PLACE), "left")
        .withColumn("reached", sf.coalesce("reached", sf.col("start") - 1))
        .where(~sf.coalesce("cleaned", "isCleaned") & (sf.col("reached") + 1 < sf.col("end")))
        .select(*_PLACE, (sf.col("reached") + 1).alias("firstOffset"), (sf.col("end") - 1).alias("lastOffset"))
    )
    holes = between.unionByName(at_end).withColumns(
        {"count": sf.col("lastOffset") - sf.col("firstOffset") + 1, "detail": sf.lit("nothing in the log says why")}
    )
    thinned = whole.where("thinned > 0").select(
        *_PLACE,
        sf.col("baseOffset").alias("firstOffset"),
        "lastOffset",
        sf.col("thinned").cast("bigint").alias("count"),
        sf.lit("a batch has fewer messages than offsets").alias("detail"),
    )
    found = holes.unionByName(thinned)
    return found.withColumns({"rule": sf.lit("offset"), "fault": sf.lit(LOST)}).select(*FINDING_COLUMNS)


def find_overlaps(batches: "DataFrame") -> "DataFrame":
    """Offsets that two batches claim."""
    rows = batches.select(
        *_PLACE,
        sf.col("baseOffset").alias("offset"),
        sf.col("lastOffset").alias("endOffset"),
        sf.col("baseOffset").alias("first"),
        sf.col("lastOffset").alias("last"),
    )
    return find_faults(rows, rule="offset", scope=_PLACE, whose=sf.lit("offsets"), is_gapless=sf.lit(False))


def find_sequence_faults(batches: "DataFrame") -> "DataFrame":
    """Producers' sequences that are missing, doubled or out of order, by producer and epoch.

    Where batches were taken out, the sequences that are missing went with them: nothing can be said about losses.
    Sequences wrap at 2^31: they are counted on from there.
    """
    scope = (*_PLACE, "producerId", "producerEpoch")
    of_epoch = Window.partitionBy(*scope).orderBy("baseOffset")
    sent = batches.where("producerId is not null and baseSequence is not null")
    has_wrapped = sf.lag("baseSequence").over(of_epoch) - sf.col("baseSequence") > SEQUENCE_LIMIT // 2
    base = sf.col("baseSequence") + sf.col("wraps") * sf.lit(SEQUENCE_LIMIT)
    rows = (
        sent.withColumn("wrapped", sf.coalesce(has_wrapped, sf.lit(False)).cast("int"))
        .withColumn("wraps", sf.sum("wrapped").over(of_epoch))
        .select(
            *scope,
            "isCleaned",
            sf.col("baseOffset").alias("offset"),
            sf.col("lastOffset").alias("endOffset"),
            base.alias("first"),
            (base + sf.col("lastOffset") - sf.col("baseOffset")).alias("last"),
        )
    )
    whose = sf.concat(
        sf.lit("producer "),
        sf.col("producerId").cast("string"),
        sf.lit(" epoch "),
        sf.col("producerEpoch").cast("string"),
    )
    return find_faults(rows, rule="producer sequence", scope=scope, whose=whose, is_gapless=~sf.col("isCleaned"))
