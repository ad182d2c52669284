"""Records as rows of a RecordBatch, for comparing what was decoded with what was sent."""

from collections.abc import Iterable

import pyarrow as pa

from headrace.wire.kafka.records import Record


def records_of(batches: Iterable[pa.RecordBatch]) -> list[Record]:
    """The records that some batches with all columns hold."""
    found = []
    for batch in batches:
        times_us = batch.column("timestamp").cast(pa.int64()).to_pylist()
        for row, time_us in zip(batch.to_pylist(), times_us, strict=True):
            headers = tuple((header["key"], header["value"]) for header in row["headers"] or ())
            found.append(Record(time_us // 1000, row["key"], row["value"], headers, row["offset"]))
    return found
