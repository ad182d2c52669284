"""The Delta sink of a driver that is to be killed at a placed point: it stops around a commit of the table, and stays.

Registered under the sink's own name, so that what is tested need not know of it. Where it stops comes by the
environment, which the driver hands on to the processes in which its writers run.
"""

import os
from collections.abc import Mapping
from pathlib import Path

from pyspark.sql import SparkSession
from pyspark.sql.datasource import DataSourceStreamArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType
from tests.spark.killed_driver import stop_here

from headrace.spark.lake.data_sink import DeltaDataSink, StreamWriter

BEFORE, AFTER = "before", "after"
_POINT, _MARKER = "STOPPING_SINK_POINT", "STOPPING_SINK_MARKER"


def stopping_at(point: str, marker: Path) -> Mapping[str, str]:
    """The environment of a driver that stops; without a point it does not."""
    return {_POINT: point, _MARKER: str(marker)} if point else {}


def register_if_asked(spark: SparkSession) -> None:
    if os.environ.get(_POINT):
        spark.dataSource.register(StoppingSink)


class StoppingWriter(StreamWriter):
    def commit(self, messages: list[WriterCommitMessage | None], batch_id: int) -> None:
        point, marker = os.environ[_POINT], Path(os.environ[_MARKER])
        if point == BEFORE:
            stop_here(marker)
        super().commit(messages, batch_id)
        stop_here(marker)


class StoppingSink(DeltaDataSink):
    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamArrowWriter:
        writer = super().streamWriter(schema, overwrite)
        assert isinstance(writer, StreamWriter)
        return StoppingWriter(writer._plan)
