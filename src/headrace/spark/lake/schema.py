"""Spark's types as Delta's and Arrow's, and whether the rows of a query fit into a table. Pure.

The Delta log spells types as Spark does, in the same JSON. Every column may be null, as in Spark's own tables: a column
that a later query does not have must be able to be.
"""

import json
from collections.abc import Iterable, Sequence

import pyarrow as pa
from deltalake import Schema
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    DataType,
    DateType,
    IntegralType,
    MapType,
    NumericType,
    StringType,
    StructField,
    StructType,
    TimestampNTZType,
    TimestampType,
)

from headrace.spark.errors import OptionError, SchemaDriftError
from headrace.spark.lake.span import KEY_COLUMNS

_STORABLE = (BinaryType, BooleanType, DateType, NumericType, StringType, TimestampNTZType, TimestampType)


def nullable(struct: StructType) -> StructType:
    """The same columns, each of which may be null, all the way down."""
    return StructType([StructField(field.name, _nullable(field.dataType), True) for field in struct])


def _nullable(kind: DataType) -> DataType:
    match kind:
        case StructType():
            return nullable(kind)
        case ArrayType():
            return ArrayType(_nullable(kind.elementType), True)
        case MapType():
            return MapType(_nullable(kind.keyType), _nullable(kind.valueType), True)
        case _:
            return kind


def delta_schema(struct: StructType) -> Schema:
    """The schema as a Delta table keeps it."""
    for field in struct:
        if not _is_storable(field.dataType):
            kind = field.dataType.simpleString()
            raise OptionError(f"column {field.name} is {kind}, which a Delta table cannot hold; cast it")
    return Schema.from_json(struct.json())


def _is_storable(kind: DataType) -> bool:
    match kind:
        case StructType():
            return all(_is_storable(field.dataType) for field in kind)
        case ArrayType():
            return _is_storable(kind.elementType)
        case MapType():
            return _is_storable(kind.keyType) and _is_storable(kind.valueType)
        case _:
            return isinstance(kind, _STORABLE)


def spark_schema(schema: Schema) -> StructType:
    """The schema of a Delta table as Spark has it."""
    return StructType.fromJson(json.loads(schema.to_json()))


def arrow_schema(struct: StructType) -> pa.Schema:
    """What a file's columns are. Delta's timestamps are microseconds in UTC, whatever the session's time zone."""
    return to_arrow_schema(struct, timezone="UTC")


def check_columns(struct: StructType, *, partition_by: Sequence[str], is_keyed_by_offset: bool) -> None:
    """Refuse rows that no table could take as the options ask."""
    names = struct.names
    lowered = [name.lower() for name in names]
    twice = sorted({name for name in names if lowered.count(name.lower()) > 1})
    if twice:
        raise OptionError(f"columns {' and '.join(twice)} have one name; rename one of them")
    for name in partition_by:
        if name not in names:
            raise OptionError(f"partitionBy names the column {name}, which the rows do not have: {', '.join(names)}")
        if isinstance(struct[name].dataType, (StructType, ArrayType, MapType)):
            raise OptionError(f"partitionBy names {name}, which is nested; partition by a column of single values")
        if isinstance(struct[name].dataType, BinaryType):
            raise OptionError(
                f"partitionBy names {name}, which is binary, and a partition's value is text; partition by hex({name})"
            )
    if len(partition_by) == len(names):
        raise OptionError("partitionBy names every column; leave one that is stored in the files")
    missing = [name for name in KEY_COLUMNS if name not in names]
    if is_keyed_by_offset and missing:
        raise OptionError(
            f"keyedBy offset needs the columns {', '.join(KEY_COLUMNS)}; {', '.join(missing)} is missing. "
            "Keep the source's columns or use keyedBy batch"
        )
    for name in KEY_COLUMNS if is_keyed_by_offset else ():
        kind = struct[name].dataType
        if not isinstance(kind, StringType if name == "topic" else IntegralType):
            raise OptionError(
                f"keyedBy offset needs the source's column {name}, and here it is {kind.simpleString()}; "
                "cast it back or use keyedBy batch"
            )


def added_columns(table: StructType, rows: StructType, *, path: str, merges: bool) -> list[StructField]:
    """The columns that the table lacks, where it may grow; refuses every other difference by name."""
    known = {field.name: field for field in table}
    drifted = [
        f"{field.name} is {known[field.name].dataType.simpleString()} there and {field.dataType.simpleString()} here"
        for field in rows
        if field.name in known and known[field.name].dataType != field.dataType
    ]
    if drifted:
        raise SchemaDriftError(
            f"the rows do not fit the table at {path}: {'; '.join(drifted)}. Cast them or write to another table"
        )
    by_letters = {name.lower(): name for name in known}
    for field in rows:
        if field.name not in known and field.name.lower() in by_letters:
            raise SchemaDriftError(
                f"the rows do not fit the table at {path}: column {field.name} is {by_letters[field.name.lower()]} "
                "there, and Delta does not tell large letters from small ones. Rename it"
            )
    added = [field for field in rows if field.name not in known]
    missing = [field.name for field in table if field.name not in rows.names]
    if (added or missing) and not merges:
        parts = [f"{_named(field.name for field in added)} new here"] if added else []
        parts += [f"{_named(missing)} missing here"] if missing else []
        raise SchemaDriftError(
            f"the rows do not fit the table at {path}: {' and '.join(parts)}. "
            "With the option mergeSchema new columns are added and missing ones are null"
        )
    return added


def _named(names: Iterable[str]) -> str:
    listed = list(names)
    return f"column {listed[0]} is" if len(listed) == 1 else f"columns {', '.join(listed)} are"
