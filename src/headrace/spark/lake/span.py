"""Which offsets a piece of a topic holds, and its rows without those that a table already has. Pure."""

from collections.abc import Iterable, Mapping
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from headrace.spark.errors import ColumnError
from headrace.spark.lake.key import PartitionKey

KEY_COLUMNS = ("topic", "partition", "offset")


class Span(NamedTuple):
    """The offsets of one partition's rows lie between start and end (exclusive). Not every offset need have a row."""

    key: PartitionKey
    start: int
    end: int


def spans_of(table: pa.Table) -> list[Span]:
    """The spans of rows with the columns topic, partition and offset."""
    for name in KEY_COLUMNS:
        if table[name].null_count:
            raise ColumnError(
                f"a row's {name} is null, and with keyedBy offset it says which row that is; drop such rows"
            )
    found = table.select(KEY_COLUMNS).group_by(["topic", "partition"]).aggregate([("offset", "min"), ("offset", "max")])
    return [
        Span(PartitionKey(row["topic"], row["partition"]), row["offset_min"], row["offset_max"] + 1)
        for row in found.to_pylist()
    ]


def joined(spans: Iterable[Span]) -> tuple[Span, ...]:
    """One span for each partition, around all that are given for it."""
    found: dict[PartitionKey, Span] = {}
    for span in spans:
        known = found.get(span.key, span)
        found[span.key] = Span(span.key, min(known.start, span.start), max(known.end, span.end))
    return tuple(found.values())


def without_known(table: pa.Table, spans: Iterable[Span], floors: Mapping[PartitionKey, int]) -> pa.Table:
    """The rows whose offset is not below their partition's floor, in the order they had."""
    for key, start, end in spans:
        floor = floors.get(key, 0)
        if start >= floor:
            continue
        is_of_partition = pc.and_(pc.equal(table["topic"], key.topic), pc.equal(table["partition"], key.partition))
        is_known = pc.and_(is_of_partition, pc.less(table["offset"], min(floor, end)))
        table = table.filter(pc.invert(is_known))
    return table
