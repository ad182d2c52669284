"""`format("headrace_delta")`: Spark's rows into a Delta table, exactly once, with no jar.

    query = (
        spark.readStream.format("headrace").option("subscribe", "orders").load()
        .writeStream.format("headrace_delta")
        .option("checkpointLocation", "/lake/_checkpoints/orders").option("keyedBy", "offset")
        .start("/lake/orders")
    )

1. On the driver, before a batch runs: the options are read, and the rows' columns held against the table's. Rows that
   do not fit stop here; nothing has been written.
2. In the tasks: rows go into Parquet files inside the table's directory, which are synced. Nobody sees them: a reader
   of a Delta table opens what its log names and nothing else. A task hands the names to the driver.
3. On the driver, when all tasks are done: one entry of the table's log names all files and says which batch, or which
   offsets, they are (`commit.py`). It is there as a whole or not at all.

A driver that is killed before 3 leaves files that no log names, and `vacuum` removes them. One that is killed after 3
and before Spark's own commit runs the batch again, and 3 finds it in the log. Which tasks there are, and which of them
wrote which rows, may differ between the two and is used for nothing.

Spark builds the writer anew for each batch, twice, and calls `abort` after a `commit` that raised.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NoReturn

import pyarrow as pa
from pyspark.sql.datasource import (
    DataSource,
    DataSourceArrowWriter,
    DataSourceReader,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)
from pyspark.sql.types import StructType

from headrace.spark.errors import OptionError, without_stack
from headrace.spark.lake.commit import Plan, add_batch, add_offsets, remove_unknown
from headrace.spark.lake.key import Mark, query_application
from headrace.spark.lake.part_file import PartFile
from headrace.spark.lake.schema import check_columns, delta_schema, nullable
from headrace.spark.lake.sink_option import SinkOptions, parse_options
from headrace.spark.lake.table import check_fit, check_place, exists, open_table, said
from headrace.spark.link import Link
from headrace.spark.query_batch import QueryBatch, query_batch, query_of


@dataclass(frozen=True, slots=True)
class FilesWritten(WriterCommitMessage):
    """What a task tells the driver."""

    files: tuple[PartFile, ...]
    batch: QueryBatch | None  # None outside of streaming queries


class DeltaDataSink(DataSource):
    """The sink. Options: `sink_option.py`."""

    @classmethod
    def name(cls) -> str:
        return "headrace_delta"

    def schema(self) -> StructType:
        return self._unread()

    def reader(self, schema: StructType) -> DataSourceReader:
        """For an entry of a catalogue, which Spark makes by itself for toTable and saveAsTable."""
        return self._unread()

    def _unread(self) -> NoReturn:
        with without_stack():
            path = self.options.get("path")
            raise OptionError(
                "headrace_delta is written to and not read; read the table with "
                f"headrace.spark.lake.reading.read_table(session, {'PATH' if path is None else repr(path)})"
            )

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceArrowWriter:
        with without_stack():
            return BatchWriter(make_plan(parse_options(self.options), schema, overwrites=overwrite))

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamArrowWriter:  # noqa: N802
        with without_stack():
            options = parse_options(self.options)
            if options.job is not None:
                raise OptionError(
                    "a streaming query knows its batches; leave out idempotencyKey, txnAppId and txnVersion"
                )
            return StreamWriter(make_plan(options, schema, overwrites=overwrite))


def make_plan(options: SinkOptions, schema: StructType, *, overwrites: bool) -> Plan:
    """Everything that can be refused before anything is written is refused here."""
    columns = nullable(schema)
    partition_by = options.partition_by or ()
    check_place(options.path, partition_by=partition_by)
    if exists(options.path):
        table = open_table(options.path)
        check_fit(table, columns, path=options.path, partition_by=options.partition_by, merges=options.merges_schema)
        partition_by = tuple(table.metadata().partition_columns)
    is_keyed_by_offset = options.keyed_by == "offset"
    check_columns(columns, partition_by=partition_by, is_keyed_by_offset=is_keyed_by_offset)
    delta_schema(columns)
    if is_keyed_by_offset and overwrites:
        raise OptionError("keyedBy offset adds to what is there; it cannot overwrite it")
    if is_keyed_by_offset and options.job is not None:
        raise OptionError("with keyedBy offset the rows say themselves what is there; leave out the job's key")
    topic_ids = _topic_ids(options) if is_keyed_by_offset else None
    return Plan(options=options, columns=columns, partition_by=partition_by, topic_ids=topic_ids, overwrites=overwrites)


def _topic_ids(options: SinkOptions) -> dict[str, str] | None:
    """The topics' ids as they are now. The source has planned the batch by now, so its topics are among them."""
    if options.servers is None:
        return None
    # The source has just read from them: a node that does not answer now restarts.
    with Link(options.servers, options.client, waits=True) as link:
        return {topic.name: str(topic.id) for topic in link.all_topics()}


def _write(plan: Plan, batches: Iterator[pa.RecordBatch], batch_of_query: QueryBatch | None) -> FilesWritten:
    with without_stack(), said(plan.path):
        parts = plan.part_files()
        try:
            for batch in batches:
                parts.add(batch)
            files = parts.close()
        except BaseException:
            parts.discard()
            raise
    return FilesWritten(files, batch_of_query)


def _files(messages: Sequence[WriterCommitMessage | None]) -> list[PartFile]:
    """The files of all tasks that came to an end; a task that failed has removed its own."""
    return [file for message in messages if isinstance(message, FilesWritten) for file in message.files]


def _mark(messages: Sequence[WriterCommitMessage | None], batch_id: int) -> Mark:
    """The batch's name in the table's log. The query's id is kept in the checkpoint and told to tasks only."""
    told = (message.batch for message in messages if isinstance(message, FilesWritten))
    return Mark(query_application(query_of(told, batch_id)), batch_id)


class BatchWriter(DataSourceArrowWriter):
    """`df.write`: one transaction, which happens once when the job has a key."""

    def __init__(self, plan: Plan) -> None:
        self._plan = plan

    def write(self, iterator: Iterator[pa.RecordBatch]) -> FilesWritten:
        return _write(self._plan, iterator, None)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        with without_stack():
            if self._plan.options.keyed_by == "offset":
                add_offsets(self._plan, _files(messages))
            else:
                add_batch(self._plan, _files(messages), self._plan.options.job)

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        remove_unknown(self._plan, _files(messages))


class StreamWriter(DataSourceStreamArrowWriter):
    """`df.writeStream`: one transaction for each batch, which happens once."""

    def __init__(self, plan: Plan) -> None:
        self._plan = plan

    def write(self, iterator: Iterator[pa.RecordBatch]) -> FilesWritten:
        with without_stack():
            batch = query_batch()
        return _write(self._plan, iterator, batch)

    def commit(self, messages: list[WriterCommitMessage | None], batch_id: int) -> None:
        with without_stack():
            if self._plan.options.keyed_by == "offset":
                add_offsets(self._plan, _files(messages))
            else:
                add_batch(self._plan, _files(messages), _mark(messages, batch_id))

    def abort(self, messages: list[WriterCommitMessage | None], batch_id: int) -> None:
        remove_unknown(self._plan, _files(messages))
