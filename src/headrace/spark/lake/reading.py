"""A Delta table as a DataFrame, with no jar.

The log names the files and Spark reads them as Parquet, with all that it does for Parquet: only the columns and
directories that a query needs. A snapshot is the table at one moment; what is added later is not in it.

What a file's partition columns are is said by the log. Where its directories say the same in Spark's eyes, Spark takes
the values from there and leaves out directories that a query does not need; elsewhere the log's word is put beside the
rows (`logged_value.py`).
"""

import datetime
import functools
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from headrace.spark.lake.key import (
    DROPPED_APPLICATION,
    PartitionKey,
    Reach,
    begin_application,
    partition_application,
)
from headrace.spark.lake.logged_value import by_log, layers, named, odd_files
from headrace.spark.lake.schema import spark_schema
from headrace.spark.lake.sink_option import table_path
from headrace.spark.lake.table import file_paths, open_table, said

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def read_table(spark: "SparkSession", path: Path | str) -> "DataFrame":
    """All rows of the table as it is now; a path or a file: address, as the sink takes it."""
    return Snapshot(table_path(str(path))).frame(spark)


class Snapshot:
    """The files of a table at one moment. They stay until a vacuum that comes after they were replaced."""

    def __init__(self, path: Path) -> None:
        self._path = path.absolute()
        table = open_table(self._path)
        with said(self._path):
            self.id = str(table.metadata().id)
            self.columns = spark_schema(table.schema())
            self._files = pa.array([f"{self._path}/{file}" for file in file_paths(table)], pa.string())
            # In the order of the files: what the log says of each.
            self._actions = pa.table(table.get_add_actions(flatten=True))
            self._partition_by = tuple(table.metadata().partition_columns)
        self._table = table
        self._odd = odd_files(self._path, self._files.to_pylist(), self._actions, self.columns, self._partition_by)

    def reach(self, key: PartitionKey, topic_id: str) -> Reach | None:
        """The offsets of a partition that were written to the table; None where none were, or no writer marked them."""
        for ids in ({key.topic: topic_id}, None):  # a sink that was not told the servers knows no ids
            end = self._table.transaction_version(partition_application(key, ids))
            if end is not None:
                return Reach(key, self._table.transaction_version(begin_application(key, ids)), end)
        return None

    @property
    def dropped_before(self) -> datetime.date | None:
        """The day up to which the table's retention has dropped rows; None where it has dropped none."""
        day = self._table.transaction_version(DROPPED_APPLICATION)
        return None if day is None else datetime.date.fromordinal(day)

    def frame(self, spark: "SparkSession") -> "DataFrame":
        return self._frame(spark, self._files.to_pylist())

    def between(self, spark: "SparkSession", column: str, start: int, end: int) -> "DataFrame":
        """The rows whose number in a column is from start on and below end; files without any are not opened."""
        files = self._files
        least, greatest = f"min.{column}", f"max.{column}"
        if least in self._actions.column_names:
            is_outside = pc.or_(pc.greater_equal(self._actions[least], end), pc.less(self._actions[greatest], start))
            # A file of which nothing is known may have such rows.
            files = files.filter(pc.invert(pc.fill_null(is_outside, False)))
        frame = self._frame(spark, files.to_pylist())
        return frame.where((frame[column] >= start) & (frame[column] < end))

    def _frame(self, spark: "SparkSession", files: list[str]) -> "DataFrame":
        if not files:
            return spark.createDataFrame([], self.columns)
        plain = [file for file in files if file not in self._odd]
        odd = [self._odd[file] for file in files if file in self._odd]
        frames = [self._by_directory(spark, plain)] if plain else []
        frames += [by_log(spark, layer, self.columns, self._partition_by) for layer in layers(odd)]
        return functools.reduce(lambda one, other: one.unionByName(other), frames)

    def _by_directory(self, spark: "SparkSession", files: list[str]) -> "DataFrame":
        # The files lack the columns by which the table is partitioned; their directories say the values.
        read = spark.read.schema(self.columns).option("basePath", str(self._path)).parquet(*files)
        return read.select(*map(named, self.columns.names))
