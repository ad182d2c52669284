"""A Delta table as a DataFrame, with no jar.

The log names the files and Spark reads them as Parquet, with all that it does for Parquet: only the columns and
directories that a query needs. A snapshot is the table at one moment; what is added later is not in it.
"""

from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from headrace.spark.lake.schema import spark_schema
from headrace.spark.lake.table import open_table, said

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def read_table(spark: "SparkSession", path: Path | str) -> "DataFrame":
    """All rows of the table as it is now."""
    return Snapshot(Path(path)).frame(spark)


class Snapshot:
    """The files of a table at one moment. They stay until a vacuum that comes after they were replaced."""

    def __init__(self, path: Path) -> None:
        self._path = path.absolute()
        table = open_table(self._path)
        with said(self._path):
            self.columns = spark_schema(table.schema())
            self._files = pa.array(table.file_uris(), pa.string())
            # In the order of the files: what the log says of each.
            self._actions = pa.table(table.get_add_actions(flatten=True))

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
        # The files lack the columns by which the table is partitioned; their directories say the values.
        read = spark.read.schema(self.columns).option("basePath", str(self._path)).parquet(*files)
        return read.select(*self.columns.names)
