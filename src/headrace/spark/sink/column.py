"""The columns of a write: which there are, and whether their types will do.

They are those of Spark's Kafka sink: `value`, and as they are wanted `key`, `headers`, `topic` and `partition`; beyond
it `timestamp`, and for a queue `priority`, `delay`, `ttl` and `deduplication_id`.

Others are not looked at, as in Spark's Kafka sink, so that rows of a source can be written as they are. For a queue
they are refused: a delay that is misspelt would be a delay that never happens. So are a queue's own columns in a topic,
but for the priority, which the source gives.
"""

from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    DayTimeIntervalType,
    DoubleType,
    FloatType,
    IntegralType,
    StringType,
    StructType,
    TimestampType,
)

from headrace.spark.errors import ColumnError

_TEXT_OR_BINARY = "text or binary"
_TYPES: dict[str, tuple[str, tuple[type[DataType], ...]]] = {
    "value": (_TEXT_OR_BINARY, (StringType, BinaryType)),
    "key": (_TEXT_OR_BINARY, (StringType, BinaryType)),
    "topic": ("text", (StringType,)),
    "partition": ("a whole number", (IntegralType,)),
    "timestamp": ("a timestamp, the message's time; cast it, or drop or rename it", (TimestampType,)),
}
_SPAN = ("seconds or an interval of days to seconds", (IntegralType, FloatType, DoubleType, DayTimeIntervalType))
_QUEUE_TYPES: dict[str, tuple[str, tuple[type[DataType], ...]]] = {
    "priority": ("a whole number", (IntegralType,)),
    "delay": _SPAN,
    "ttl": _SPAN,
    "deduplication_id": ("text", (StringType,)),
}
PROPERTIES = tuple(_QUEUE_TYPES)
# What the source gives and nobody can write: a copy of its rows is not refused for them.
_OF_THE_SOURCE = frozenset(("offset", "timestampType", "id", "attempt", "state"))


def check_columns(schema: StructType, *, has_topic: bool, is_queue: bool) -> frozenset[str]:
    """The names of the columns that will be written. ColumnError says what is wrong with the first that cannot be."""
    types = {field.name: field.dataType for field in schema.fields}
    if "value" not in types:
        raise ColumnError(f"a column value, text or binary, is missing; there are {', '.join(types) or 'none'}")
    if not has_topic and "topic" not in types:
        raise ColumnError("nobody says where to: give the option topic or queue, or a column topic")
    allowed = {**_TYPES, **(_QUEUE_TYPES if is_queue else {})}
    for name in (*allowed, "headers"):
        if schema.fieldNames().count(name) > 1:
            raise ColumnError(f"there is more than one column {name}; drop or rename all but one")
    for name, kind in types.items():
        if name == "headers":
            _check_headers(kind)
        elif name in allowed:
            what, kinds = allowed[name]
            if not isinstance(kind, kinds):
                raise ColumnError(f"the column {name} is {kind.simpleString()}; it must be {what}")
        elif not is_queue and name in _QUEUE_TYPES and name != "priority":
            raise ColumnError(
                f"a message of a topic has no {name}; name a queue by the option queue, or drop the column {name}"
            )
        elif is_queue and name not in _OF_THE_SOURCE:
            known = ", ".join(("value", "key", "headers", "partition", "timestamp", *PROPERTIES))
            raise ColumnError(f"a message of a queue has no {name}; its columns are {known}")
    names = {*types} & {*allowed, "headers"}
    return frozenset(names - {"topic"} if has_topic else names)


def _check_headers(kind: DataType) -> None:
    wanted = "array<struct<key:string,value:binary>>"
    if isinstance(kind, ArrayType) and isinstance(kind.elementType, StructType):
        fields = {field.name: field.dataType for field in kind.elementType.fields}
        if (
            list(fields) == ["key", "value"]
            and isinstance(fields["key"], StringType)
            and isinstance(fields["value"], BinaryType)
        ):
            return
    raise ColumnError(f"the column headers is {kind.simpleString()}; it must be {wanted}")
