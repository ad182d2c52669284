"""A driver that streams files into a Delta table, and may be made to stop around a commit. See test_delta_sink_kill."""

import sys
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import DataSourceStreamArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType
from tests.spark.killed_driver import stop_here

from headrace.spark import session
from headrace.spark.lake.commit import Plan
from headrace.spark.lake.data_sink import DeltaDataSink, StreamWriter

BEFORE, AFTER = "before", "after"


class StoppingWriter(StreamWriter):
    """Stops before or after it has added a batch, once: the marker says that it did."""

    def __init__(self, plan: Plan, point: str, marker: Path) -> None:
        super().__init__(plan)
        self._point = point
        self._marker = marker

    def commit(self, messages: list[WriterCommitMessage | None], batch_id: int) -> None:
        if self._point == BEFORE:
            stop_here(self._marker)
        super().commit(messages, batch_id)
        if self._point == AFTER:
            stop_here(self._marker)


class StoppingSink(DeltaDataSink):
    @classmethod
    def name(cls) -> str:
        return "stopping_delta"

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamArrowWriter:
        point, marker = self.options.pop("point"), Path(self.options.pop("marker"))
        writer = super().streamWriter(schema, overwrite)
        assert isinstance(writer, StreamWriter)
        return StoppingWriter(writer._plan, point, marker)


def rows(spark: SparkSession, source: Path) -> DataFrame:
    return spark.readStream.schema("id long").option("maxFilesPerTrigger", "1").json(str(source))


def write(frame: DataFrame, table: Path, checkpoint: Path, *, point: str = "", marker: str = "") -> None:
    """All that is there, into the table."""
    writer = frame.writeStream.format("stopping_delta" if point else "headrace_delta")
    if point:
        writer = writer.option("point", point).option("marker", marker)
    query = writer.option("checkpointLocation", str(checkpoint)).trigger(availableNow=True).start(str(table))
    query.awaitTermination()


def main(source: str, table: str, checkpoint: str, point: str, marker: str) -> None:
    spark = session("delta-sink-driver", master="local[2]")
    spark.dataSource.register(StoppingSink)
    write(rows(spark, Path(source)), Path(table), Path(checkpoint), point=point, marker=marker)


if __name__ == "__main__":
    # By its name and not as __main__: workers import what they unpickle.
    from tests.spark import delta_sink_driver

    delta_sink_driver.main(*sys.argv[1:])
