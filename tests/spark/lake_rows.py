"""Rows of topics for tests of Delta tables that need no Spark: made, written as a task does, and read back."""

from pathlib import Path

import pyarrow as pa
from deltalake import DeltaTable
from pyspark.sql.types import IntegerType, LongType, StringType, StructField, StructType

from headrace.spark.lake.commit import Plan
from headrace.spark.lake.part_file import PartFile
from headrace.spark.lake.sink_option import parse_options

A_TOPIC = StructType(
    [
        StructField("topic", StringType()),
        StructField("partition", IntegerType()),
        StructField("offset", LongType()),
        StructField("text", StringType()),
    ]
)


def rows_of(topic: str, partition: int, offsets: range) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict(
        {
            "topic": [topic] * len(offsets),
            "partition": pa.array([partition] * len(offsets), pa.int32()),
            "offset": list(offsets),
            "text": [f"{topic}-{partition}-{offset}" for offset in offsets],
        }
    )


def a_plan(path: Path, *, keyed_by: str = "offset", partition_by: str = "topic", **options: str) -> Plan:
    parsed = parse_options({"path": str(path), "keyedBy": keyed_by, "partitionBy": partition_by, **options})
    return Plan(
        options=parsed, columns=A_TOPIC, partition_by=parsed.partition_by or (), topic_ids=None, overwrites=False
    )


def written(plan: Plan, *batches: pa.RecordBatch) -> tuple[PartFile, ...]:
    parts = plan.part_files()
    for batch in batches:
        parts.add(batch)
    return parts.close()


def stored(path: Path) -> list[str]:
    return sorted(DeltaTable(path).to_pyarrow_table()["text"].to_pylist())


def files_in(path: Path) -> set[str]:
    return {str(file.relative_to(path)) for file in path.rglob("*.parquet")}
