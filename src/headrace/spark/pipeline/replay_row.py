"""Rows of an archive as what a condition may speak of, and as what is sent. Pure DataFrame code."""

from typing import TYPE_CHECKING

from pyspark.sql import functions as sf

from headrace.model.message import HEADER_PREFIX, PRIORITY_HEADER

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

# What a condition in SQL may speak of.
CONDITION_COLUMNS = (
    "topic",
    "partition",
    "offset",
    "timestamp",
    "day",
    "key",  # as text
    "body",  # the value as text
    "value",  # the value's bytes
    "headers",  # a map of text
)

# What a replayed message has in its headers besides its own.
JOB_HEADER = "replay-job"
TOPIC_HEADER = "replay-topic"
PARTITION_HEADER = "replay-partition"
OFFSET_HEADER = "replay-offset"
TIME_HEADER = "replay-timestamp-ms"


def condition_view(archive: "DataFrame") -> "DataFrame":
    """The columns of conditions, and the row as it is in the column `message`."""
    names = "array_distinct(transform(headers, h -> h.key))"
    value = "make_valid_utf8(cast(get(filter(headers, h -> h.key = name), 0).value as string))"
    derived = {
        "key": sf.expr("make_valid_utf8(cast(key as string))"),
        "body": sf.expr("make_valid_utf8(cast(value as string))"),
        "headers": sf.expr(f"map_from_arrays({names}, transform({names}, name -> {value}))"),
    }
    row = sf.struct(*archive.columns).alias("message")
    return archive.select(row, *(derived.get(name, sf.col(name)).alias(name) for name in CONDITION_COLUMNS))


def outgoing(rows: "DataFrame", *, job: str, keeps_partitions: bool, keeps_times: bool, is_queue: bool) -> "DataFrame":
    """The columns of the sink. Headers say where a message comes from; those of an earlier replay go."""
    columns: list[Column | str] = [
        "key",
        "value",
        _headers(job, is_queue=is_queue, keeps_times=keeps_times).alias("headers"),
    ]
    if keeps_partitions:
        columns.append("partition")
    if keeps_times:
        columns.append("timestamp")
    return rows.select(*columns)


def _headers(job: str, *, is_queue: bool, keeps_times: bool) -> "Column":
    added = {
        JOB_HEADER: sf.lit(job),
        TOPIC_HEADER: sf.col("topic"),
        PARTITION_HEADER: sf.col("partition").cast("string"),
        OFFSET_HEADER: sf.col("offset").cast("string"),
    }
    if not keeps_times:
        added[TIME_HEADER] = sf.unix_millis("timestamp").cast("string")
    news = sf.array(
        *(sf.struct(sf.lit(name).alias("key"), text.cast("binary").alias("value")) for name, text in added.items())
    )
    own = sf.coalesce(sf.col("headers"), sf.expr("array()").cast("array<struct<key:string,value:binary>>"))
    return sf.concat(sf.filter(own, lambda header: ~_is_stale(header["key"], is_queue=is_queue)), news)


def _is_stale(name: "Column", *, is_queue: bool) -> "Column":
    """Headers of an earlier replay; and for a queue what was meant for the first way through one.

    A delay, a time to live or a deduplication id of then would hold back, drop or hide the message now.
    """
    is_old = name.isin(JOB_HEADER, TOPIC_HEADER, PARTITION_HEADER, OFFSET_HEADER, TIME_HEADER)
    if not is_queue:
        return is_old
    return is_old | (name.startswith(HEADER_PREFIX) & (name != PRIORITY_HEADER))
