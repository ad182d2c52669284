"""`format("headrace_journal")`: the batches of topics and queues as rows, in a batch or as a stream.

    register(spark)
    spark.read.format("headrace_journal").option("subscribe", "orders").load()

It takes the options of `format("headrace")` and plans as that does; only what a row is differs. Everything in the log
is shown, whatever its transaction's end, unless `kafka.isolation.level` is read_committed: then what aborted
transactions sent is left out, and a transaction that is not over holds up what is behind it.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader
from pyspark.sql.types import StructType

from headrace.model.errors import HeadraceError
from headrace.spark.errors import OptionError, without_stack
from headrace.spark.journal.entry import ARROW_SCHEMA, SCHEMA, entries
from headrace.spark.option.kafka import ISOLATION
from headrace.spark.option.source import SourceOptions, check_batch, check_stream, read_options
from headrace.spark.source.batch import BatchReader
from headrace.spark.source.reading import READ_UNCOMMITTED, Range, fetch_ranges
from headrace.spark.source.stream import RefusedStream, StreamReader
from headrace.spark.source.task import read_settings

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

NAME = "headrace_journal"

_BATCH_ROWS_MIN = 1_000  # smaller ones cost Spark more than their rows do


class JournalDataSource(DataSource):
    @classmethod
    def name(cls) -> str:
        return NAME

    def schema(self) -> str:
        return SCHEMA

    def reader(self, schema: StructType) -> DataSourceReader:
        with without_stack():
            return JournalReader(_checked(schema), check_batch(_options(self.options)))

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802 - as PySpark calls it
        try:
            return JournalStreamReader(_checked(schema), check_stream(_options(self.options)))
        except HeadraceError as error:
            # PySpark loses an exception that is raised here, and tells of one of its own instead.
            return RefusedStream(error)


class JournalReader(BatchReader):
    def _read_ranges(self, ranges: Sequence[Range]) -> Iterator[pa.RecordBatch]:
        return read_journal(ranges, self._schema, self._options, has_rest=True)


class JournalStreamReader(StreamReader):
    control_is_news = True

    def _read_ranges(self, ranges: Sequence[Range]) -> Iterator[pa.RecordBatch]:
        # An earlier micro-batch may have had the batch in which the log starts now.
        return read_journal(ranges, self._schema, self._options, has_rest=False)


def register(spark: "SparkSession") -> None:
    """Make the format known to a session."""
    spark.dataSource.register(JournalDataSource)


def read_journal(
    ranges: Sequence[Range], schema: StructType, options: SourceOptions, *, has_rest: bool
) -> Iterator[pa.RecordBatch]:
    """The batches of some ranges, those of a partition in order; `has_rest`: what is left of one at the log's start."""
    names = schema.fieldNames()
    waiting: list[pa.RecordBatch] = []
    for one, start, fetched in fetch_ranges(ranges, read_settings(options)):
        found, _ = entries(
            fetched.records,
            topic=one.topic,
            partition=one.partition,
            start=start,
            end=one.end,
            aborted=fetched.aborted,
            counts_minutes="minutes" in names,
            is_log_start=has_rest and start == fetched.start_offset,
        )
        waiting.append(found.select(names))
        if sum(batch.num_rows for batch in waiting) >= _BATCH_ROWS_MIN:
            yield pa.concat_batches(waiting)
            waiting = []
    if waiting:
        yield pa.concat_batches(waiting)


def _options(given: Mapping[str, str]) -> SourceOptions:
    options = read_options(given)
    is_said = any(name.lower() == ISOLATION for name in given)
    return options if is_said else replace(options, isolation=READ_UNCOMMITTED)


def _checked(schema: StructType) -> StructType:
    for field in schema.fields:
        if field.name not in ARROW_SCHEMA.names:
            raise OptionError(f"the journal has no column {field.name}; there are {', '.join(ARROW_SCHEMA.names)}")
    return schema
