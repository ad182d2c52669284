"""`spark.readStream.format("headrace")`: a shell around `Tail`, in PySpark's words.

PySpark makes a reader in the process that plans for the query, where it lives as long as the query, and another one in
each process that reads, which gets it pickled. Only the first has a tail, made when it is first asked. `commit` comes
one batch late and never for the last, and `stop` never: neither is used.
"""

from collections.abc import Iterator, Sequence
from typing import Any, NoReturn

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    ReadMinRows,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import StructType

from headrace.model.errors import HeadraceError
from headrace.spark.errors import without_stack
from headrace.spark.link import Link
from headrace.spark.option.source import SourceOptions
from headrace.spark.source.mark import read_mark, write_mark
from headrace.spark.source.queue_check import check_queue
from headrace.spark.source.reading import Range
from headrace.spark.source.rows import read_rows
from headrace.spark.source.tail import Tail
from headrace.spark.source.task import Task, make_tasks

Document = dict[str, Any]


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    # Whether a queue's leases and acknowledgements are rows here, and start a batch.
    control_is_news = False

    def __init__(self, schema: StructType, options: SourceOptions) -> None:
        self._schema = schema
        self._options = options
        self._made_tail: Tail | None = None

    def initialOffset(self) -> Document:  # noqa: N802
        with without_stack():
            return write_mark(self._tail.initial())

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        with without_stack():
            self._tail.stop_at_present()

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        if self._options.offsets_per_trigger_max is not None:
            return ReadMaxRows(self._options.offsets_per_trigger_max)
        if self._options.offsets_per_trigger_min is not None:
            return ReadMinRows(self._options.offsets_per_trigger_min)
        return ReadAllAvailable()

    def latestOffset(self, start: Document, limit: ReadLimit) -> Document:  # noqa: N802
        with without_stack():
            # Spark may ask for all that there is whatever the options say.
            least = None if isinstance(limit, ReadAllAvailable) else self._options.offsets_per_trigger_min
            most = limit.max_rows if isinstance(limit, ReadMaxRows) else None
            mark = self._tail.latest(read_mark(start), most=most, least=least)
            # The very same document says that there is nothing new.
            return start if mark is None else write_mark(mark)

    def reportLatestOffset(self) -> Document | None:  # noqa: N802
        with without_stack():
            return self._tail.report()

    def partitions(self, start: Document, end: Document) -> Sequence[InputPartition]:
        with without_stack():
            ranges = self._tail.ranges(read_mark(start), read_mark(end))
            # Uncut, so that a partition's rows stay in order.
            return make_tasks(ranges, self._options, may_cut=False)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        if isinstance(partition, Task):
            with without_stack():
                yield from self._read_ranges(partition.ranges)

    def _read_ranges(self, ranges: Sequence[Range]) -> Iterator[pa.RecordBatch]:
        return read_rows(ranges, self._schema, self._options)

    @property
    def _tail(self) -> Tail:
        if self._made_tail is None:
            link = Link(self._options.servers, self._options.client)
            link.connect()
            check_queue(self._schema, self._options, link)
            self._made_tail = Tail(self._options, link, control_is_news=self.control_is_news)
        return self._made_tail


class RefusedStream(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """A stream that cannot be, and says why as soon as it is asked for anything."""

    def __init__(self, error: HeadraceError) -> None:
        self._error = error

    def initialOffset(self) -> Document:  # noqa: N802
        self._refuse()

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        self._refuse()

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        self._refuse()

    def latestOffset(self, start: Document, limit: ReadLimit) -> Document:  # noqa: N802
        self._refuse()

    def partitions(self, start: Document, end: Document) -> Sequence[InputPartition]:
        self._refuse()

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        self._refuse()

    def _refuse(self) -> NoReturn:
        with without_stack():
            raise self._error
