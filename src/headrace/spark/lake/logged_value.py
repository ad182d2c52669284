"""Files of a table whose directories do not say, in Spark's eyes, what the log says of their partition columns.

Delta asks for no names of directories. Writers escape them as URLs, byte by byte in UTF-8, and Spark reads them as Hive
does, character by character: of a value beyond ASCII it would make another. A null and a text that spells Hive's name
for it have one directory, and a time in one is read in the session's zone. What the log says is right in all of these.
"""

import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import pyarrow as pa
from pyspark.sql import functions as sf
from pyspark.sql.types import BooleanType, DateType, DecimalType, IntegralType, StringType, StructField, StructType

from headrace.spark.lake.split import NULL_DIRECTORY, spelled

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

# Of these Spark reads a value as the Delta protocol spells it, whatever the session.
_PLAIN = (BooleanType, DateType, DecimalType, IntegralType, StringType)
_ESCAPED = re.compile("%([0-9A-Fa-f]{2})")
_FILE_NAME = "_headrace_file_name"


class OddFile(NamedTuple):
    path: str
    values: tuple[Any, ...]  # of the partition columns, as the log has them


def odd_files(
    table: Path, files: Sequence[str], actions: pa.Table, columns: StructType, partition_by: Sequence[str]
) -> dict[str, OddFile]:
    """By path. The actions are what the log says of the files, in their order."""
    if not partition_by:
        return {}
    logged = [actions[f"partition.{name}"].to_pylist() for name in partition_by]
    is_plain = all(isinstance(columns[name].dataType, _PLAIN) for name in partition_by)
    found = {}
    for path, values in zip(files, zip(*logged, strict=True), strict=True):
        if not is_plain or _directories(table, path) != list(zip(partition_by, map(spelled, values), strict=True)):
            found[path] = OddFile(path, values)
    return found


def _directories(table: Path, path: str) -> list[tuple[str, str | None]]:
    """Columns and values as Spark reads them from a file's path."""
    pairs = [part.partition("=") for part in Path(path.removeprefix(f"{table}/")).parts[:-1]]
    return [(_unescaped(name), None if text == NULL_DIRECTORY else _unescaped(text)) for name, _, text in pairs]


def _unescaped(text: str) -> str:
    return _ESCAPED.sub(lambda found: chr(int(found[1], 16)), text)


def layers(files: Iterable[OddFile]) -> list[list[OddFile]]:
    """Files of one name apart from each other: one layer, for every writer that we know of."""
    made: list[dict[str, OddFile]] = []
    for file in files:
        name = Path(file.path).name
        layer = next((one for one in made if name not in one), None)
        if layer is None:
            made.append(layer := {})
        layer[name] = file
    return [list(layer.values()) for layer in made]


def by_log(
    spark: "SparkSession", files: Sequence[OddFile], columns: StructType, partition_by: Sequence[str]
) -> "DataFrame":
    """The rows of files, no two of which have one name, each with the values that the log has for its file."""
    partitions = [StructField(name, columns[name].dataType, True) for name in partition_by]
    values = spark.createDataFrame(
        [(Path(file.path).name, *file.values) for file in files],
        StructType([StructField(_FILE_NAME, StringType(), False), *partitions]),
    )
    stored = StructType([field for field in columns if field.name not in partition_by])
    read = spark.read.schema(stored).parquet(*(file.path for file in files))
    rows = read.withColumn(_FILE_NAME, sf.col("_metadata.file_name"))
    return rows.join(sf.broadcast(values), _FILE_NAME).select(*map(named, columns.names))


def named(column: str) -> str:
    """A column's name that is nothing but a name, whatever dots are in it."""
    return f"`{column.replace('`', '``')}`"
