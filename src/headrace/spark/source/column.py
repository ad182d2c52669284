"""Which columns a read has: those of Spark's Kafka source, headers and a queue's own on request.

A schema that the user gives names the columns that are wanted, in the wanted order, and only those are decoded.
"""

from difflib import get_close_matches

from pyspark.sql.types import IntegerType, StringType, StructField, StructType

from headrace.spark.arrow.schema import BASE_SCHEMA, FULL_SCHEMA
from headrace.spark.errors import OptionError
from headrace.spark.option.source import Queue, SourceOptions

ID, PRIORITY, ATTEMPT, STATE = "id", "priority", "attempt", "state"

# As a worker sees it: its id, 0 to 9, how often it was handed out, and where it is now.
QUEUE_FIELDS = (
    StructField(ID, StringType()),
    StructField(PRIORITY, IntegerType()),
    StructField(ATTEMPT, IntegerType()),
    StructField(STATE, StringType()),
)
QUEUE_COLUMNS = frozenset(field.name for field in QUEUE_FIELDS)


def default_schema(options: SourceOptions) -> StructType:
    """The columns of a read without a schema of the user's."""
    if options.include_queue_columns and not isinstance(options.selection, Queue):
        raise OptionError("the option includeQueueColumns is for queues; say queue instead of a topic, or leave it out")
    base = FULL_SCHEMA if options.include_headers else BASE_SCHEMA
    return StructType([*base.fields, *(QUEUE_FIELDS if options.include_queue_columns else ())])


def check_schema(schema: StructType, options: SourceOptions) -> StructType:
    """The same, once every column is one that there is, with its type."""
    fields = {field.name: field for field in FULL_SCHEMA.fields}
    if isinstance(options.selection, Queue):
        fields |= {field.name: field for field in QUEUE_FIELDS}
    for name in schema.fieldNames():
        if schema.fieldNames().count(name) > 1:
            raise OptionError(
                f"the schema names the column {name} more than once; name it once, and copy it afterwards"
            )
    for field in schema.fields:
        known = fields.get(field.name)
        if known is None:
            raise OptionError(f"there is no column {field.name}{_hint(field.name, list(fields))}")
        if known.dataType != field.dataType:
            wanted, found = known.dataType.simpleString(), field.dataType.simpleString()
            raise OptionError(
                f"the column {field.name} is {wanted} and not {found}; name it so, and cast it afterwards"
            )
    return schema


def _hint(name: str, known: list[str]) -> str:
    if name in QUEUE_COLUMNS:
        return " in a topic; only a queue has it"
    near = get_close_matches(name, known, n=1, cutoff=0.6)
    return f"; did you mean {near[0]}?" if near else f"; there are {', '.join(known)}"
