"""`spark.read.format("headrace")`: everything between two places, planned once, on the driver."""

from collections.abc import Iterable, Iterator, Sequence

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, Filter, InputPartition
from pyspark.sql.types import StructType

from headrace.spark.errors import OptionError, without_stack
from headrace.spark.link import Link
from headrace.spark.option.place import EARLIEST, LATEST, Everywhere
from headrace.spark.option.source import SourceOptions
from headrace.spark.source.pushed import Pushed, keep_keys, read_filters
from headrace.spark.source.queue_check import check_queue
from headrace.spark.source.reading import Range, log_skipped
from headrace.spark.source.rows import read_rows
from headrace.spark.source.survey import Survey
from headrace.spark.source.task import Task, make_tasks


class BatchReader(DataSourceReader):
    def __init__(self, schema: StructType, options: SourceOptions) -> None:
        self._schema = schema
        self._options = options

    def partitions(self) -> Sequence[InputPartition]:
        with without_stack(), Link(self._options.servers, self._options.client) as link:
            ranges = self._ranges(link)
            check_queue(self._schema, self._options, link)
            # The order of rows across tasks is nobody's business in a batch, so a large partition may be cut.
            return make_tasks(ranges, self._options, may_cut=True)

    def _ranges(self, link: Link) -> list[Range]:
        survey = Survey(self._options, link)
        ats = survey.select().ats
        ends = survey.resolve(self._options.ending or Everywhere(LATEST), ats, is_start=False)
        begins = survey.resolve(self._options.starting or Everywhere(EARLIEST), ats, is_start=True)
        # The log's start last: what is gone by then is noticed.
        starts = survey.starts(ats)
        for at in ats:
            # What ends below the log's start is gone, which another option is about.
            is_gone = begins[at] == starts[at] and not self._options.fail_on_data_loss
            if begins[at] > ends[at] and not is_gone:
                raise OptionError(
                    f"{at} would be read from offset {begins[at]} to {ends[at]}, which lies before it; "
                    "check the starting and the ending options"
                )
        wanted, begins = begins, survey.kept(begins, starts)
        for at in ats:
            lost = Range(at.topic, at.partition, wanted[at], min(begins[at], ends[at]))
            if lost.start < lost.end:
                log_skipped(lost, lost.end - lost.start)
        return [Range(at.topic, at.partition, begins[at], ends[at]) for at in ats if begins[at] < ends[at]]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        # Where there is nothing to read, PySpark makes an empty partition of its own.
        if isinstance(partition, Task):
            with without_stack():
                yield from self._read_ranges(partition.ranges)

    def _read_ranges(self, ranges: Sequence[Range]) -> Iterator[pa.RecordBatch]:
        return read_rows(ranges, self._schema, self._options)


class FilteringBatchReader(BatchReader):
    """Reads less where the query's filters say so.

    A class of its own, chosen by an option: PySpark refuses a reader that takes filters in every session whose
    `spark.sql.python.filterPushdown.enabled` is not true. Spark applies all filters again: here they only save work.
    """

    _pushed = Pushed()

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:  # noqa: N802
        self._pushed = read_filters(filters)
        return filters

    def _ranges(self, link: Link) -> list[Range]:
        return self._pushed.narrow(super()._ranges(link), link)

    def _read_ranges(self, ranges: Sequence[Range]) -> Iterator[pa.RecordBatch]:
        return keep_keys(super()._read_ranges(ranges), self._pushed.keys)
