"""A driver that streams numbers into a topic, and may be made to stop in the middle of it. See test_topic_sink_kill."""

import sys
from collections.abc import Awaitable, Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import DataSourceStreamWriter, WriterCommitMessage
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.types import StructType
from tests.spark.killed_driver import stop_here

from headrace.client.transactional import TransactionalProducer
from headrace.spark import session
from headrace.spark.sink.plan import Plan
from headrace.spark.sink.staging import Staged
from headrace.spark.sink.topic_writer import StreamWriter
from headrace.spark.source.data_source import HeadraceDataSource

ROWS = 200

STAGING = "while tasks stage"
STAGED = "before anything is published"
OPEN = "when the batches are written, and not the number of the batch"
UNDECIDED = "when everything is written and nothing decided"
DECIDED = "when the commit is decided, before anybody hears of it"
PUBLISHED = "when it is published, before Spark writes that down"
POINTS = (STAGING, STAGED, OPEN, UNDECIDED, DECIDED, PUBLISHED)


class StoppingWriter(StreamWriter):
    """Stops at a point. Product code is wrapped in this process alone, which does not live on."""

    def __init__(self, plan: Plan, point: str, marker: Path) -> None:
        super().__init__(plan)
        self._point = point
        self._marker = marker

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Staged:
        staged = super().write(iterator)
        if self._point == STAGING:
            stop_here(self._marker)
        return staged

    def commit(self, messages: list[WriterCommitMessage | None], batch_id: int) -> None:
        if self._point == STAGED:
            stop_here(self._marker)
        elif self._point in (OPEN, UNDECIDED, DECIDED):
            name = "commit_offsets" if self._point == OPEN else "commit"
            setattr(TransactionalProducer, name, self._stopping(getattr(TransactionalProducer, name)))
        super().commit(messages, batch_id)
        if self._point == PUBLISHED:
            stop_here(self._marker)

    def _stopping(self, call: Callable[..., Awaitable[None]]) -> Callable[..., Awaitable[None]]:
        async def stopping(*arguments: Any) -> None:
            if self._point == DECIDED:
                await call(*arguments)
            stop_here(self._marker)

        return stopping


class StoppingSink(HeadraceDataSource):
    @classmethod
    def name(cls) -> str:
        return "stopping_headrace"

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:
        point, marker = self.options.pop("point"), Path(self.options.pop("marker"))
        writer = super().streamWriter(schema, overwrite)
        assert isinstance(writer, StreamWriter)
        return StoppingWriter(writer._plan, point, marker)


def rows(spark: SparkSession) -> DataFrame:
    """Numbers without end, some of them in each batch, the same when a batch is run again."""
    source = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", str(ROWS)).option("numPartitions", "2")
    return source.load().selectExpr("cast(value AS string) AS key", "cast(value AS string) AS value")


def start(
    frame: DataFrame, server: str, topic: str, checkpoint: str, options: Mapping[str, str] | None = None
) -> StreamingQuery:
    writer = frame.writeStream.format("stopping_headrace" if options else "headrace").options(**options or {})
    return (
        writer.option("kafka.bootstrap.servers", server)
        .option("topic", topic)
        .option("checkpointLocation", checkpoint)
        .start()
    )


def main(server: str, topic: str, checkpoint: str, point: str, marker: str) -> None:
    spark = session("topic-sink-driver", master="local[2]")
    spark.dataSource.register(StoppingSink)
    options = {"point": point, "marker": marker} if point else None
    start(rows(spark), server, topic, checkpoint, options).awaitTermination()


if __name__ == "__main__":
    # By its name and not as __main__: workers import what they unpickle.
    from tests.spark import topic_sink_driver

    topic_sink_driver.main(*sys.argv[1:])
