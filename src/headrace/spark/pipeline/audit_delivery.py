"""Queues: messages that were acknowledged and never handed out.

A queue's log has a lease before every acknowledgement, except where the guarantee is at most once: there the
acknowledgement is the hand-out. Which guarantee holds is in the log too, as the queue's configuration.

Cleaning takes leases away together with what they were about. So an acknowledgement is judged only where nothing is
missing between its message and itself; how many could not be judged is counted.
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING

import msgspec
import pyarrow as pa
from pyspark.sql import Window
from pyspark.sql import functions as sf

from headrace.model.queue import Guarantee, QueueConfig
from headrace.spark.pipeline.audit_log import ENTRY
from headrace.spark.pipeline.audit_number import UNDELIVERED, runs
from headrace.wire.queue_entry import HEAD, EntryKind, read_entry

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_PLACE = ("topic", "partition")
_WHOSE = (*_PLACE, "subscription")
# One row for each message that an entry speaks of; a configuration speaks of none.
_SCHEMA = (
    "topic string, partition int, at bigint, whole bigint, kind int, subscription string, offset bigint, "
    "guarantee string"
)
_ARROW = pa.schema(
    [
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("at", pa.int64()),
        ("whole", pa.int64()),
        ("kind", pa.int32()),
        ("subscription", pa.string()),
        ("offset", pa.int64()),
        ("guarantee", pa.string()),
    ]
)
_READ = (EntryKind.LEASED, EntryKind.ACKED, EntryKind.TXN_ACKED, EntryKind.CONFIGURED)


def told(batches: "DataFrame") -> "DataFrame":
    """What a queue's entries say: `kind` of the message at `offset`, said at `at`. `batches` is as `with_gaps`.

    From `whole` on, nothing is missing up to the entry.
    """
    by_offset = Window.partitionBy(*_PLACE).orderBy("baseOffset")
    behind_gap = sf.when(sf.col("gap") > 0, sf.col("baseOffset"))
    entries = (
        batches.withColumn("whole", sf.coalesce(sf.max(behind_gap).over(by_offset), "start"))
        .where((sf.col("what") == ENTRY) & sf.col("controlKind").isin(*map(int, _READ)))
        .select(*_PLACE, sf.col("baseOffset").alias("at"), "whole", "controlKind", "controlValue")
    )
    return entries.mapInArrow(_read, _SCHEMA)


def _read(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        rows: list[dict[str, object]] = []
        for row in batch.to_pylist():
            kind, value = row.pop("controlKind"), row.pop("controlValue")
            entry = read_entry(kind, value)
            assert entry is not None
            row |= {"kind": kind, "subscription": entry.subscription.hex}
            if entry.kind is EntryKind.CONFIGURED:
                config = msgspec.json.decode(value[HEAD.size :], type=QueueConfig)
                rows.append({**row, "guarantee": config.guarantee.value})
            rows += [{**row, "offset": offset} for offset in entry.offsets]
        yield pa.RecordBatch.from_pylist(rows, schema=_ARROW)


def judge(entries: "DataFrame") -> "DataFrame":
    """Every acknowledgement with `isJudged` and `isDelivered`. `entries` is as `told`."""
    by_place = Window.partitionBy(*_WHOSE).orderBy("at")
    acked = (
        entries.withColumn("guarantee", sf.last("guarantee", ignorenulls=True).over(by_place))
        .where(sf.col("kind").isin(int(EntryKind.ACKED), int(EntryKind.TXN_ACKED)))
        .select(*_WHOSE, "at", "whole", "offset", "guarantee")
    )
    leased = (
        entries.where(sf.col("kind") == int(EntryKind.LEASED))
        .groupBy(*_WHOSE, "offset")
        .agg(sf.min("at").alias("leasedAt"))
    )
    is_whole = (sf.col("offset") >= sf.col("whole")) & sf.col("guarantee").isNotNull()
    at_most_once = sf.col("guarantee") == Guarantee.AT_MOST_ONCE.value
    return acked.join(leased, [*_WHOSE, "offset"], "left").select(
        *_PLACE,
        "offset",
        is_whole.alias("isJudged"),
        (at_most_once | sf.coalesce(sf.col("leasedAt") < sf.col("at"), sf.lit(False))).alias("isDelivered"),
    )


def find_undelivered(judged: "DataFrame") -> "DataFrame":
    wrong = judged.where("isJudged and not isDelivered").select(*_PLACE, "offset").distinct()
    return runs(
        wrong, rule="acknowledgement", fault=UNDELIVERED, detail=sf.lit("acknowledged, and no lease was written before")
    )
