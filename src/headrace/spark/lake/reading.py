"""A Delta table as a DataFrame, with no jar.

The log names the files and Spark reads them as Parquet, with all that it does for Parquet: only the columns and
directories that a query needs. The frame is the table at this moment; what is added later is not in it.
"""

from pathlib import Path
from typing import TYPE_CHECKING

from headrace.spark.lake.schema import spark_schema
from headrace.spark.lake.table import open_table

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def read_table(spark: "SparkSession", path: Path | str) -> "DataFrame":
    """All rows of the table as it is now."""
    place = Path(path).absolute()
    table = open_table(place)
    columns = spark_schema(table.schema())
    files = table.file_uris()
    if not files:
        return spark.createDataFrame([], columns)
    # The files lack the columns by which the table is partitioned; their directories say the values.
    return spark.read.schema(columns).option("basePath", str(place)).parquet(*files).select(*columns.names)
