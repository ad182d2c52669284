"""A driver that streams files into a Delta table. See test_delta_sink_kill."""

import sys
from pathlib import Path

from pyspark.sql import SparkSession
from tests.spark.killed_driver import quick_session
from tests.spark.stopping_sink import register_if_asked


def write_all(spark: SparkSession, source: Path, table: Path, checkpoint: Path) -> None:
    """All files that there are, a batch for each."""
    rows = spark.readStream.schema("id long").option("maxFilesPerTrigger", "1").json(str(source))
    writer = rows.writeStream.format("headrace_delta").option("checkpointLocation", str(checkpoint))
    writer.trigger(availableNow=True).start(str(table)).awaitTermination()


if __name__ == "__main__":
    made = quick_session("delta-sink-driver")
    register_if_asked(made)
    write_all(made, *map(Path, sys.argv[1:]))
