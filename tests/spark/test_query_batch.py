"""A Spark that does not tell tasks their query and batch is refused before anything is written."""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql.datasource import WriterCommitMessage
from pyspark.sql.types import StringType, StructField, StructType
from tests.spark.topic_sink import create_topic, values
from tests.support.node import NodeProcess

from headrace.spark import query_batch as module
from headrace.spark.errors import UnsupportedSparkError
from headrace.spark.lake.data_sink import DeltaDataSink
from headrace.spark.query_batch import QueryBatch, query_batch, query_of
from headrace.spark.source.data_source import HeadraceDataSource

QUERY = "8e7d3f1c-98c2-4f0e-9c7a-0c4d5b1f6a11"
SCHEMA = StructType([StructField("value", StringType())])


class Context:
    """A task's, with the properties that Spark gave it."""

    properties: dict[str, str] = {}

    @classmethod
    def get(cls) -> "Context | None":
        return cls()

    def getLocalProperty(self, name: str) -> str | None:
        return self.properties.get(name)

    def partitionId(self) -> int:
        return 0


class NoContext(Context):
    @classmethod
    def get(cls) -> None:
        return None


@pytest.fixture
def given(monkeypatch: pytest.MonkeyPatch) -> type[Context]:
    monkeypatch.setattr(module, "TaskContext", Context)
    monkeypatch.setattr(Context, "properties", {"sql.streaming.queryId": QUERY, "streaming.sql.batchId": "7"})
    return Context


def untouched() -> Iterator[pa.RecordBatch]:
    pytest.fail("rows were taken")
    yield


def test_a_task_knows_its_batch(given: type[Context]) -> None:
    assert query_batch() == QueryBatch(QUERY, 7)


@pytest.mark.parametrize(
    ("properties", "said"),
    [
        ({"streaming.sql.batchId": "7"}, "sql.streaming.queryId is None"),
        ({"sql.streaming.queryId": "orders", "streaming.sql.batchId": "7"}, "sql.streaming.queryId is 'orders'"),
        ({"sql.streaming.queryId": QUERY}, "streaming.sql.batchId is None"),
        ({"sql.streaming.queryId": QUERY, "streaming.sql.batchId": "-1"}, "streaming.sql.batchId is '-1'"),
    ],
)
def test_a_sink_takes_no_row_without_knowing_its_batch(
    given: type[Context],
    monkeypatch: pytest.MonkeyPatch,
    node: NodeProcess,
    topic: str,
    tmp_path: Path,
    properties: dict[str, str],
    said: str,
) -> None:
    monkeypatch.setattr(given, "properties", properties)
    create_topic(node, topic)
    options = {"kafka.bootstrap.servers": node.server, "topic": topic, "stagingDirectory": str(tmp_path / "staging")}
    to_topic = HeadraceDataSource(options).streamWriter(SCHEMA, False)
    to_table = DeltaDataSink({"path": str(tmp_path / "table")}).streamWriter(SCHEMA, False)
    for writer in (to_topic, to_table):
        with pytest.raises(UnsupportedSparkError, match=said):
            writer.write(untouched())
    assert not (tmp_path / "table").exists()


def test_a_task_without_a_context_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "TaskContext", NoContext)
    with pytest.raises(UnsupportedSparkError, match="without a context"):
        query_batch()


def test_nothing_is_published_of_a_batch_that_spark_and_its_tasks_take_for_different_ones(
    given: type[Context], node: NodeProcess, topic: str, tmp_path: Path
) -> None:
    create_topic(node, topic)
    options = {"kafka.bootstrap.servers": node.server, "topic": topic, "stagingDirectory": str(tmp_path / "staging")}
    to_topic = HeadraceDataSource(options).streamWriter(SCHEMA, False)
    to_table = DeltaDataSink({"path": str(tmp_path / "table")}).streamWriter(SCHEMA, False)
    for writer in (to_topic, to_table):
        messages: list[WriterCommitMessage | None] = [
            writer.write(iter([pa.RecordBatch.from_pydict({"value": ["tea"]})]))
        ]
        with pytest.raises(UnsupportedSparkError, match="has batch 8 committed, which its tasks take for 7"):
            writer.commit(messages, 8)
    assert values(node, topic) == {}
    assert not (tmp_path / "table" / "_delta_log").exists()
    to_topic.commit([to_topic.write(iter([pa.RecordBatch.from_pydict({"value": ["tea"]})]))], 7)
    assert values(node, topic) == {"tea": 1}


@pytest.mark.parametrize("told", [[], [None], [QueryBatch(QUERY, 7), QueryBatch(QUERY, 8)]])
def test_tasks_that_do_not_agree_are_refused(told: list[QueryBatch | None]) -> None:
    with pytest.raises(UnsupportedSparkError):
        query_of(told, 7)


def test_the_check_is_there_without_assertions() -> None:
    script = "from headrace.spark.query_batch import query_batch; query_batch()"
    ended = subprocess.run([sys.executable, "-O", "-c", script], capture_output=True, text=True, check=False)
    assert "UnsupportedSparkError: PySpark" in ended.stderr
