"""What a task does, in a batch and in a stream alike: its ranges, read into the wanted columns."""

from collections.abc import Iterator, Sequence

import pyarrow as pa
from pyspark.sql.types import StructType

from headrace.spark.arrow.schema import arrow_schema
from headrace.spark.option.source import Queue, SourceOptions
from headrace.spark.source.column import QUEUE_COLUMNS
from headrace.spark.source.queue_columns import read_queue
from headrace.spark.source.reading import Range, read_ranges
from headrace.spark.source.task import read_settings


def read_rows(ranges: Sequence[Range], schema: StructType, options: SourceOptions) -> Iterator[pa.RecordBatch]:
    settings = read_settings(options)
    if not isinstance(options.selection, Queue) or QUEUE_COLUMNS.isdisjoint(schema.fieldNames()):
        return read_ranges(ranges, arrow_schema(schema), settings)
    return read_queue(
        ranges,
        schema,
        http=options.http,
        queue=options.selection.name,
        read=lambda own, columns: read_ranges(own, columns, settings),
    )
