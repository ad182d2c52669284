"""`format("headrace")`: topics and queues as Spark's source and sink, with the options and columns of its Kafka source.

    spark.readStream.format("headrace").option("kafka.bootstrap.servers", "...").option("subscribe", "orders").load()

PySpark finds it through the package `pyspark_headrace` and runs it in processes of its own: one that makes the source
and asks it for its schema, one that plans (and, for a stream, goes on planning as long as the query runs), and the
tasks' own. What travels between them is this object, with the options as the user gave them, and the readers.

The options are checked when the source is made, and again where it is known whether a batch or a stream is read.
Nothing is asked of a node before a query runs.
"""

from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
)
from pyspark.sql.types import StructType

from headrace.model.errors import HeadraceError
from headrace.spark.errors import without_stack
from headrace.spark.option.source import check_batch, check_stream, read_options
from headrace.spark.source.batch import BatchReader, FilteringBatchReader
from headrace.spark.source.column import check_schema, default_schema
from headrace.spark.source.stream import RefusedStream, StreamReader


class HeadraceDataSource(DataSource):
    @classmethod
    def name(cls) -> str:
        return "headrace"

    def schema(self) -> StructType:
        with without_stack():
            return default_schema(read_options(self.options))

    def reader(self, schema: StructType) -> DataSourceReader:
        with without_stack():
            options = check_batch(read_options(self.options))
            kind = FilteringBatchReader if options.push_filters else BatchReader
            return kind(check_schema(schema, options), options)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802
        try:
            options = check_stream(read_options(self.options))
            return StreamReader(check_schema(schema, options), options)
        except HeadraceError as error:
            # PySpark loses an exception that is raised here, and tells of one of its own instead.
            return RefusedStream(error)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        # The sink's modules are looked at by those who write.
        from headrace.spark.sink.topic_writer import batch_writer

        with without_stack():
            return batch_writer(self.options, schema, overwrite)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:  # noqa: N802
        from headrace.spark.sink.topic_writer import stream_writer

        with without_stack():
            return stream_writer(self.options, schema, overwrite)
