"""The columns of a message, named and typed as Spark's Kafka source does it, so that a job moves by one word."""

import pyarrow as pa
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

HEADERS_TYPE = ArrayType(StructType([StructField("key", StringType()), StructField("value", BinaryType())]))

BASE_SCHEMA = StructType(
    [
        StructField("key", BinaryType()),
        StructField("value", BinaryType()),
        StructField("topic", StringType()),
        StructField("partition", IntegerType()),
        StructField("offset", LongType()),
        StructField("timestamp", TimestampType()),
        StructField("timestampType", IntegerType()),
    ]
)
FULL_SCHEMA = StructType([*BASE_SCHEMA.fields, StructField("headers", HEADERS_TYPE)])


def arrow_schema(schema: StructType) -> pa.Schema:
    """The types that Spark expects of a Python source's batches. It compares them exactly, and only the first."""
    return to_arrow_schema(schema, timezone="UTC")
