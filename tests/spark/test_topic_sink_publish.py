"""What the driver publishes of what was staged: all at once and only once, whoever else tries and whoever dies."""

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.types import StringType, StructField, StructType
from tests.spark.topic_sink import committed, create_topic, numbers, values
from tests.support.node import NodeProcess, running

from headrace.client.errors import UnreachableError
from headrace.client.stream import StreamClient
from headrace.client.transactional import TransactionalProducer
from headrace.client.values import TopicPartition
from headrace.model.errors import UnknownTopicError
from headrace.spark.arrow.encode import encode_batches
from headrace.spark.errors import TakenOverError
from headrace.spark.sink.checkpoint import is_first_batch
from headrace.spark.sink.option import SinkOptions, read_options
from headrace.spark.sink.publish import Identity, publish, published_version, transaction_timeout_ms
from headrace.spark.sink.staging import Stage, Staged, prepare_staging
from headrace.spark.sink.topic_writer import stream_writer

WAIT_S = 30.0


def options(node: NodeProcess, topic: str, **more: str) -> SinkOptions:
    given = {name.replace("_", "."): value for name, value in more.items()}
    return read_options({"kafka.bootstrap.servers": node.server, "topic": topic, **given})


@pytest.fixture
def stage(tmp_path: Path) -> Callable[[], Stage]:
    return lambda: Stage(prepare_staging(tmp_path / "staging"), "test")


def staged(stage: Stage, topic: str, *texts: str, partition: int = 0) -> Staged:
    """One batch for each text, as a task leaves them."""
    for text in texts:
        (batch,) = encode_batches(None, pa.array([text]), None, 1_700_000_000_000, codec="none", batch_bytes_max=10**6)
        stage.add(TopicPartition(topic, partition), batch)
    return stage.finish(batch=None)


def version_of(node: NodeProcess, name: str) -> int:
    async def main() -> int:
        async with StreamClient(node.server) as client:
            return await published_version(client, name)

    return asyncio.run(main())


class Pause:
    """The first call of a method of the producer waits, before it does anything, until it may go on."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, method: str) -> None:
        self.reached, self.go_on = threading.Event(), threading.Event()
        call = getattr(TransactionalProducer, method)

        async def paused(producer: TransactionalProducer, *arguments: Any) -> Any:
            if not self.reached.is_set():
                self.reached.set()
                assert await asyncio.to_thread(self.go_on.wait, WAIT_S)
            return await call(producer, *arguments)

        monkeypatch.setattr(TransactionalProducer, method, paused)


def test_a_version_is_published_once_however_its_rows_are_split(
    node: NodeProcess, topic: str, stage: Callable[[], Stage]
) -> None:
    create_topic(node, topic, partitions=2, retention_ms="-1")
    given = options(node, topic)
    one = [staged(stage(), topic, "0", "1"), staged(stage(), topic, "2", partition=1)]
    other = [staged(stage(), topic, "0", "1", "2", partition=1), staged(stage(), topic)]
    assert publish(given, Identity(f"{topic}-q", 0), one)
    assert not publish(given, Identity(f"{topic}-q", 0), one)
    assert not publish(given, Identity(f"{topic}-q", 0), other)
    assert publish(given, Identity(f"{topic}-q", 1), [staged(stage(), topic, "3")])
    assert not publish(given, Identity(f"{topic}-q", 0), other)
    assert not publish(given, Identity(f"{topic}-q", 2), [staged(stage(), topic)])
    assert values(node, topic, partitions=2) == numbers(4)
    assert version_of(node, f"{topic}-q") == 1
    # Another query is another's affair, and who has no version is never known again.
    assert publish(given, Identity(f"{topic}-r", 0), [staged(stage(), topic, "4")])
    for text in ("5", "6"):
        assert publish(given, Identity(f"{topic}-{text}", None), [staged(stage(), topic, text)])
    assert values(node, topic, partitions=2) == numbers(7)


@pytest.mark.parametrize("method", ["join", "produce", "commit_offsets", "commit"])
def test_a_driver_that_was_replaced_publishes_nothing(
    node: NodeProcess, topic: str, stage: Callable[[], Stage], monkeypatch: pytest.MonkeyPatch, method: str
) -> None:
    """It had stopped at some step, another one did its batch and the next, and now it goes on."""
    create_topic(node, topic, retention_ms="-1")
    given = options(node, topic)
    first, second = staged(stage(), topic, "0"), staged(stage(), topic, "1")
    pause = Pause(monkeypatch, method)
    with ThreadPoolExecutor(1) as pool:
        zombie = pool.submit(publish, given, Identity(topic, 0), [first])
        assert pause.reached.wait(WAIT_S)
        assert publish(given, Identity(topic, 0), [first])
        assert publish(given, Identity(topic, 1), [second])
        pause.go_on.set()
        with pytest.raises(TakenOverError, match=f"another run writes as {topic} now"):
            zombie.result(WAIT_S)
    assert values(node, topic) == numbers(2)
    assert not publish(given, Identity(topic, 1), [second])


def test_the_node_may_be_killed_in_the_middle(
    tmp_path: Path, stage: Callable[[], Stage], monkeypatch: pytest.MonkeyPatch
) -> None:
    with running(tmp_path / "data") as node:
        create_topic(node, "out", partitions=2, retention_ms="-1")
        given = options(node, "out", kafka_delivery_timeout_ms="60000")
        for version, method in enumerate(("produce", "commit")):
            texts = [str(number) for number in range(version * 100, version * 100 + 100)]
            rows = [staged(stage(), "out", *texts[:50]), staged(stage(), "out", *texts[50:], partition=1)]
            with monkeypatch.context() as patched, ThreadPoolExecutor(1) as pool:
                pause = Pause(patched, method)
                publishing = pool.submit(publish, given, Identity("q", version), rows)
                assert pause.reached.wait(WAIT_S)
                node.kill()
                pause.go_on.set()
                node.start()
                assert publishing.result(60)
            assert not publish(given, Identity("q", version), rows)
        assert values(node, "out", partitions=2) == numbers(200)


@pytest.mark.parametrize("columns", [("value",), ("value", "topic")])
def test_a_query_that_is_under_way_waits_for_a_node_that_restarts_and_one_that_begins_does_not(
    tmp_path: Path, stage: Callable[[], Stage], columns: tuple[str, ...]
) -> None:
    with running(tmp_path / "data") as node:
        create_topic(node, "out", retention_ms="-1")
        checkpoint = tmp_path / "checkpoint"
        given = {"kafka.bootstrap.servers": node.server, "checkpointLocation": str(checkpoint)}
        given |= {} if "topic" in columns else {"topic": "out"}
        schema = StructType([StructField(name, StringType()) for name in columns])
        node.kill()
        checkpoint.mkdir()
        with pytest.raises(UnreachableError, match="no node answers at"):
            stream_writer(given, schema, overwrite=False)
        (checkpoint / "commits").mkdir()
        (checkpoint / "commits" / "0").touch()
        rows = [staged(stage(), "out", "0")]
        with ThreadPoolExecutor(2) as pool:
            planning = pool.submit(stream_writer, given, schema, False)
            # What the tasks have staged is published by a process that has not reached the node before.
            publishing = pool.submit(publish, options(node, "out"), Identity("q", 1), rows)
            node.start()
            assert planning.result(60) is not None
            assert publishing.result(60)
        assert values(node, "out") == numbers(1)


def test_a_checkpoint_tells_whether_a_batch_is_done_where_it_can_be_looked_at(tmp_path: Path) -> None:
    assert is_first_batch(str(tmp_path))
    assert is_first_batch(tmp_path.as_uri())
    assert not is_first_batch(None)
    assert not is_first_batch("hdfs://host/checkpoint")
    assert not is_first_batch(str(tmp_path / "elsewhere"))
    (tmp_path / "commits").mkdir()
    (tmp_path / "commits" / ".0.crc").touch()
    assert is_first_batch(str(tmp_path))
    (tmp_path / "commits" / "0").touch()
    assert not is_first_batch(str(tmp_path))
    assert not is_first_batch(tmp_path.as_uri())


def test_what_fails_in_the_middle_leaves_nothing_and_holds_up_nobody(
    node: NodeProcess, topic: str, stage: Callable[[], Stage]
) -> None:
    create_topic(node, topic, retention_ms="-1")
    given = options(node, topic)
    lost = staged(stage(), topic, *(str(number) * 10_000 for number in range(50)))
    assert lost.file is not None
    Path(lost.file).write_bytes(Path(lost.file).read_bytes()[:-1])
    with pytest.raises(Exception, match="has not what a task wrote"):
        publish(given, Identity(topic, 0), [lost])
    with pytest.raises(UnknownTopicError):
        publish(given, Identity(topic, 0), [staged(stage(), topic, "0"), staged(stage(), topic, "1", partition=9)])
    assert committed(node, topic) == []
    assert publish(given, Identity(f"{topic}-other", 0), [staged(stage(), topic, "0")])
    assert values(node, topic) == numbers(1)


def test_a_transaction_has_time_by_its_size() -> None:
    assert transaction_timeout_ms(0) == 60_000
    assert transaction_timeout_ms(100_000_000) == 160_000
    assert transaction_timeout_ms(10**12) == 15 * 60_000
