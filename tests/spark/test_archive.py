"""The pipeline `archive` on a real node: every message of topics and queues once in the table, by topic and day."""

import asyncio
import datetime
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable
from pyspark.sql import SparkSession
from tests.spark.pipeline_run import make_run
from tests.spark.source_data import create, produce, send, transact
from tests.support.node import NodeProcess

from headrace.client.queue.sync import Client
from headrace.client.stream import StreamClient
from headrace.client.values import Outgoing
from headrace.host.clock import SystemClock
from headrace.spark.errors import OptionError
from headrace.spark.lake.reading import read_table
from headrace.spark.pipeline import archive
from headrace.spark.pipeline.archive import ARCHIVE_COLUMNS, ArchiveOptions
from headrace.spark.pipeline.errors import PipelineFailedError
from headrace.spark.pipeline.summary import Summary

DAY_MS = 86_400_000


class Archive:
    """One table, and runs of the pipeline into it."""

    def __init__(self, spark: SparkSession, node: NodeProcess, place: Path) -> None:
        self.spark = spark
        self.node = node
        self.place = place
        self.table = place / "table"

    def run(self, *topics: str, job: str = "job", **options: Any) -> dict[str, dict[str, Any]]:
        """The rows of the summary by topic."""
        rows = self.summary(*topics, job=job, **options).as_json()["rows"]
        return {row["topic"]: row for row in rows}

    def summary(self, *topics: str, job: str = "job", **options: Any) -> Summary:
        settings = ArchiveOptions(
            server=self.node.server, http=self.node.http, table=str(self.table), topics=topics, **options
        )
        return archive.run(self.spark, settings, make_run(self.spark, self.place / job))

    def values(self) -> list[str]:
        return sorted(value.decode() for value in DeltaTable(self.table).to_pyarrow_table()["value"].to_pylist())


@pytest.fixture
def lake(spark: SparkSession, node: NodeProcess, tmp_path: Path) -> Archive:
    return Archive(spark, node, tmp_path)


def test_messages_are_kept_as_they_are_by_topic_and_day(lake: Archive, topic: str) -> None:
    create(lake.node, topic, retention_ms="-1")
    moment_ms = 1_772_409_600_123  # 2 March 2026, 00:00:00.123
    messages = [
        Outgoing(b"\x00one", key=b"a", headers=(("h", b"1"), ("h", None)), timestamp_ms=moment_ms),
        Outgoing(b"two", key=None, timestamp_ms=moment_ms - DAY_MS),
        Outgoing(None, key=b"gone", timestamp_ms=moment_ms),
    ]
    send(lake.node, topic, messages)
    rows = lake.run(topic)
    assert rows[topic]["added"] == rows[topic]["rows"] == 3
    assert rows[topic]["lag"] == 0

    read = read_table(lake.spark, lake.table)
    assert read.columns == list(ARCHIVE_COLUMNS)
    at = datetime.datetime(2026, 3, 2, 0, 0, 0, 123_000)
    first, second, third = (tuple(row) for row in read.orderBy("offset").collect())
    headers = [("h", b"1"), ("h", None)]
    assert first == (topic, 0, 0, at, 0, b"a", b"\x00one", headers, datetime.date(2026, 3, 2))
    assert second[5:] == (None, b"two", None, datetime.date(2026, 3, 1))
    assert third[5:] == (b"gone", None, None, datetime.date(2026, 3, 2))
    assert {str(path.relative_to(lake.table)) for path in lake.table.glob("*/*")} >= {
        f"topic={topic}/day=2026-03-01",
        f"topic={topic}/day=2026-03-02",
    }


def test_a_run_goes_on_where_the_one_before_ended(lake: Archive, topic: str) -> None:
    create(lake.node, topic, partitions=3)
    produce(lake.node, topic, [f"{number:03}" for number in range(100)])
    assert lake.run(topic, batch_rows=40)[topic]["added"] == 100
    produce(lake.node, topic, [f"{number:03}" for number in range(100, 150)])
    assert lake.run(topic, batch_rows=40)[topic]["added"] == 50
    assert lake.values() == [f"{number:03}" for number in range(150)]


def test_nothing_is_doubled_when_the_checkpoint_is_gone(lake: Archive, topic: str) -> None:
    """And only what is new is read: a run without a checkpoint starts where the table ends."""
    create(lake.node, topic, partitions=2)
    produce(lake.node, topic, [f"{number:03}" for number in range(60)])
    lake.run(topic)
    produce(lake.node, topic, [f"{number:03}" for number in range(60, 80)])
    assert lake.run(topic, job="another")[topic]["added"] == 20
    assert lake.values() == [f"{number:03}" for number in range(80)]


def test_what_a_transaction_took_back_is_not_kept_and_control_entries_are_no_lag(lake: Archive, topic: str) -> None:
    create(lake.node, topic)
    transact(lake.node, topic, ["a", "b"], commit=True)
    transact(lake.node, topic, ["c"], commit=False)
    assert lake.run(topic)[topic]["lag"] == 0
    assert lake.values() == ["a", "b"]


def test_a_topic_that_was_made_again_is_archived_from_its_first_message(lake: Archive, topic: str) -> None:
    create(lake.node, topic)
    produce(lake.node, topic, ["old-1", "old-2", "old-3"])
    lake.run(topic)

    async def delete() -> None:
        async with StreamClient(lake.node.server) as client:
            await client.admin.delete_topics([topic])

    asyncio.run(delete())
    create(lake.node, topic)
    produce(lake.node, topic, ["new-1", "new-2"])
    with pytest.raises(PipelineFailedError):
        lake.run(topic)  # the checkpoint is of the old one
    lake.run(topic, job="again")
    assert lake.values() == ["new-1", "new-2", "old-1", "old-2", "old-3"]


def test_a_queues_messages_are_kept_although_workers_are_done_with_them(lake: Archive, topic: str) -> None:
    with Client(lake.node.http) as client:
        queue = client.queue(topic)
        queue.create(partitions=2)
        lake.run(queues=(topic,))  # from now on nothing is cleaned away unread
        queue.send_many(f"{number:02}" for number in range(20))
        received = 0
        while received < 20:
            messages = queue.receive(max=10, wait=5)
            received += len(messages)
            queue.acknowledge_all(messages)
        rows = lake.run(queues=(topic,))
        assert (rows[topic]["added"], rows[topic]["lag"]) == (20, 0)
        assert lake.values() == [f"{number:02}" for number in range(20)]
        assert [reader.name for reader in queue.readers()] == ["archive-test"]


def test_old_days_are_dropped_and_do_not_come_back(lake: Archive, topic: str) -> None:
    create(lake.node, topic, retention_ms="-1")
    now_ms = SystemClock().wall_ms()
    for age in (0, 1, 5):
        send(lake.node, topic, [Outgoing(f"{age}".encode(), timestamp_ms=now_ms - age * DAY_MS)])
    summary = lake.summary(topic, keep_days=3)
    assert summary.figures["rows dropped"] == 1
    assert lake.values() == ["0", "1"]
    lake.run(topic, job="another", keep_days=3)
    assert lake.values() == ["0", "1"]


def test_small_files_are_joined(lake: Archive, topic: str) -> None:
    create(lake.node, topic)
    produce(lake.node, topic, ["a", "b"])
    assert lake.run(topic, compacts=False, batch_rows=1)[topic]["files"] == 2
    assert lake.run(topic)[topic]["files"] == 1
    assert lake.values() == ["a", "b"]


def test_topics_of_a_pattern_are_found(lake: Archive, topic: str) -> None:
    for name in ("a", "b"):
        create(lake.node, f"{topic}-{name}")
        produce(lake.node, f"{topic}-{name}", [name])
    assert {name: row["added"] for name, row in lake.run(pattern=f"{topic}-.*").items()} == {
        f"{topic}-a": 1,
        f"{topic}-b": 1,
    }


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({}, "nothing to archive"),
        ({"topics": ("a",), "pattern": "b.*"}, "twice"),
        ({"topics": ("a",), "queues": ("a",)}, "as a topic and as a queue"),
        ({"topics": ("a b",)}, "--topic a b"),
        ({"pattern": "("}, "no regular expression"),
        ({"topics": ("a",), "batch_rows": 0}, "--batch-rows"),
        ({"topics": ("a",), "keep_days": 0}, "--keep-days"),
        ({"topics": ("a",), "vacuum_hours": 0}, "--vacuum-hours"),
        ({"topics": ("a",), "compact_memory_mb": 63}, "--compact-memory"),
        ({"topics": ("a",), "upkeep_minutes": 0.0}, "--upkeep"),
        ({"topics": ("a",), "table": "s3://lake/x"}, "not on a file system"),
    ],
)
def test_options_that_cannot_be_are_refused_before_spark_starts(options: dict[str, Any], sentence: str) -> None:
    with pytest.raises(OptionError, match=sentence):
        ArchiveOptions(**{"server": "127.0.0.1:1", "table": "/x", **options})
