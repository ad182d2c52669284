"""One process for (n): make an archive's table of small files, or join them and say what that took.

python -m benchmarks.compact_table make PATH --gigabytes 1
python -m benchmarks.compact_table join PATH --memory-mb 256
"""

import argparse
import datetime
import json
import resource
import time
from pathlib import Path

import numpy as np
import psutil
import pyarrow as pa
from pyspark.sql.types import DateType, StructField, StructType

from headrace.host.clock import SystemClock
from headrace.spark.arrow.schema import FULL_SCHEMA
from headrace.spark.lake.commit import Plan, add_batch
from headrace.spark.lake.compaction import compact
from headrace.spark.lake.schema import arrow_schema
from headrace.spark.lake.sink_option import parse_options
from headrace.spark.lake.table import open_table
from headrace.spark.pipeline.archive import ARCHIVE_COLUMNS, DAY, PARTITION_BY

FILE_ROWS = 20_000
VALUE_BYTES = 1024
_SEED = 7
_COLUMNS = StructType([StructField(DAY, DateType()) if name == DAY else FULL_SCHEMA[name] for name in ARCHIVE_COLUMNS])
_DAY = datetime.datetime(2026, 3, 1, tzinfo=datetime.UTC)


def make(path: Path, gigabytes: float) -> None:
    options = parse_options({"path": str(path), "partitionBy": ",".join(PARTITION_BY)})
    plan = Plan(options=options, columns=_COLUMNS, partition_by=PARTITION_BY, topic_ids=None, overwrites=False)
    random = np.random.default_rng(_SEED)
    written = offset = 0
    while written < gigabytes * 1e9:
        parts = plan.part_files()
        parts.add(_rows(random, offset).cast(arrow_schema(_COLUMNS)))
        files = parts.close()
        add_batch(plan, files, None)
        written += sum(file.size_bytes for file in files)
        offset += FILE_ROWS


def _rows(random: np.random.Generator, offset: int) -> pa.RecordBatch:
    values = np.zeros((FILE_ROWS, VALUE_BYTES), dtype=np.uint8)
    values[:, : VALUE_BYTES // 2] = random.integers(0, 256, (FILE_ROWS, VALUE_BYTES // 2), dtype=np.uint8)
    ends = np.arange(0, (FILE_ROWS + 1) * VALUE_BYTES, VALUE_BYTES, dtype=np.int32)
    value = pa.Array.from_buffers(pa.binary(), FILE_ROWS, [None, pa.py_buffer(ends), pa.py_buffer(values)])
    numbers = np.arange(offset, offset + FILE_ROWS)
    header = pa.struct([("key", pa.string()), ("value", pa.binary())])
    return pa.RecordBatch.from_pydict(
        {
            "topic": pa.repeat("orders", FILE_ROWS),
            "partition": pa.repeat(pa.scalar(0, pa.int32()), FILE_ROWS),
            "offset": numbers,
            "timestamp": pa.array(numbers * 1000 + int(_DAY.timestamp()) * 10**6, pa.timestamp("us", tz="UTC")),
            "timestampType": pa.repeat(pa.scalar(0, pa.int32()), FILE_ROWS),
            "key": pa.array(numbers.astype("S")),
            "value": value,
            "headers": pa.nulls(FILE_ROWS, pa.list_(header)),
            "day": pa.repeat(_DAY.date(), FILE_ROWS),
        }
    )


def join(path: Path, memory_mb: int) -> dict[str, float]:
    size = sum(pa.table(open_table(path).get_add_actions())["size_bytes"].to_pylist())
    before = psutil.Process().memory_info().rss
    begun = time.monotonic()
    taken, made = compact(path, now_ms=SystemClock().wall_ms(), memory_bytes=memory_mb << 20)
    return {
        "table_bytes": size,
        "memory_mb": memory_mb,
        "files": taken,
        "joined": made,
        "seconds": time.monotonic() - begun,
        "before_bytes": before,
        "peak_bytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
    }


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("what", choices=("make", "join"))
    parser.add_argument("path", type=Path)
    parser.add_argument("--gigabytes", type=float, default=1.0)
    parser.add_argument("--memory-mb", type=int, default=256)
    given = parser.parse_args()
    if given.what == "make":
        make(given.path, given.gigabytes)
    else:
        print(json.dumps(join(given.path, given.memory_mb)))


if __name__ == "__main__":
    main()
