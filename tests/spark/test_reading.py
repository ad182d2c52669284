"""A task's loop: exactly the offsets of its ranges, whatever the partitions hold and whatever happens meanwhile."""

import asyncio
import subprocess
import sys
from collections.abc import Awaitable, Callable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from pathlib import Path
from threading import Thread
from typing import Any, TypeVar

import pyarrow as pa
import pytest
from tests.client.scripted import ScriptedBroker, scripted
from tests.spark.record_rows import records_of
from tests.support.node import NodeProcess, running

from headrace.client.portal import BackgroundLoop
from headrace.client.router import ClientConfig
from headrace.client.stream import StreamClient
from headrace.client.values import Outgoing, TopicPartition
from headrace.model.errors import CorruptBatchError, TimedOutError
from headrace.spark.arrow.schema import FULL_SCHEMA, arrow_schema
from headrace.spark.errors import DataLossError
from headrace.spark.source.reading import Range, ReadSettings, read_ranges
from headrace.wire.kafka.messages.fetch import FetchableTopicResponse, FetchRequest, FetchResponse, PartitionData
from headrace.wire.kafka.records import Record, encode_batch

T = TypeVar("T")

ALL_COLUMNS = arrow_schema(FULL_SCHEMA)
FETCH = 1
OFFSET_OUT_OF_RANGE, NOT_LEADER = 1, 6
HASTY = ClientConfig(deadline_ms=500, retry_pause_ms=5)


def run(node: NodeProcess, work: Callable[[StreamClient], Awaitable[T]]) -> T:
    loop = BackgroundLoop(name="test")

    async def main() -> T:
        async with StreamClient(node.server) as client:
            return await work(client)

    try:
        return loop.run(main())
    finally:
        loop.close()


def fill(node: NodeProcess, topic: str, counts: Sequence[int], *, value: bytes = b"%d", batch: int = 100) -> None:
    """A topic with so many messages in each partition, numbered in their values."""

    async def work(client: StreamClient) -> None:
        await client.admin.create_topic(topic, partition_count=len(counts))
        for partition, count in enumerate(counts):
            for start in range(0, count, batch):
                numbers = range(start, min(start + batch, count))
                await client.produce(topic, [Outgoing(value % n, partition=partition) for n in numbers])

    run(node, work)


def read(
    server: str, ranges: Sequence[Range], *, columns: pa.Schema = ALL_COLUMNS, **settings: Any
) -> list[pa.RecordBatch]:
    return list(read_ranges(ranges, columns, ReadSettings(servers=server, **settings)))


def rows(batches: Sequence[pa.RecordBatch]) -> list[tuple[int, int, bytes]]:
    return [
        (partition, offset, value)
        for batch in batches
        for partition, offset, value in zip(
            *(batch.column(name).to_pylist() for name in ("partition", "offset", "value")), strict=True
        )
    ]


# With a real node.


def test_ranges_of_several_partitions_are_read_exactly_and_each_in_order(node: NodeProcess, topic: str) -> None:
    fill(node, topic, [1000, 50, 0, 700])
    ranges = [Range(topic, 0, 17, 993), Range(topic, 1, 0, 50), Range(topic, 2, 0, 0), Range(topic, 3, 699, 700)]
    found = rows(read(node.server, ranges, fetch_bytes_max=4096))
    expected = [(0, n, b"%d" % n) for n in range(17, 993)]
    expected += [(1, n, b"%d" % n) for n in range(50)] + [(3, 699, b"699")]
    assert sorted(found) == expected
    assert [offset for partition, offset, _ in found if partition == 0] == list(range(17, 993))


def test_pieces_of_one_partition_may_be_read_by_one_task(node: NodeProcess, topic: str) -> None:
    fill(node, topic, [300])
    found = rows(read(node.server, [Range(topic, 0, 200, 250), Range(topic, 0, 0, 120)]))
    assert sorted(offset for _, offset, _ in found) == [*range(120), *range(200, 250)]


def test_little_of_many_partitions_becomes_one_batch(node: NodeProcess, topic: str) -> None:
    fill(node, topic, [10] * 16)
    (batch,) = read(node.server, [Range(topic, partition, 0, 10) for partition in range(16)])
    assert batch.num_rows == 160
    assert batch.schema.equals(ALL_COLUMNS)


def test_much_is_read_in_bounded_pieces(node: NodeProcess, topic: str) -> None:
    fill(node, topic, [3000], value=b"%d" + b"x" * 10_000)
    batches = read(node.server, [Range(topic, 0, 0, 3000)], fetch_bytes_max=1 << 20)
    assert [offset for _, offset, _ in rows(batches)] == list(range(3000))
    assert max(batch.nbytes for batch in batches) < 8 << 20


def test_aborted_transactions_and_markers_at_the_end_of_a_range_are_no_rows(node: NodeProcess, topic: str) -> None:
    async def work(client: StreamClient) -> int:
        at = TopicPartition(topic, 0)
        await client.admin.create_topic(topic, partition_count=1)
        await client.produce(topic, [Outgoing(b"first")])
        producer = client.transactional(f"{topic}-writer")
        await producer.begin()
        for text in (b"kept", b"aborted"):
            await producer.join([at])
            await producer.produce(at, encode_batch([Record(1, None, text)] * 3))
            await (producer.commit() if text == b"kept" else producer.abort())
        return (await client.end_offsets([at]))[at]

    end = run(node, work)
    assert end == 9
    everything = [Range(topic, 0, 0, end)]
    committed = rows(read(node.server, everything, isolation="read_committed"))
    assert [value for _, _, value in committed] == [b"first"] + [b"kept"] * 3
    uncommitted = rows(read(node.server, everything))
    assert [offset for _, offset, _ in uncommitted] == [0, 1, 2, 3, 5, 6, 7]
    assert read(node.server, [Range(topic, 0, 4, 5), Range(topic, 0, 8, 9)]) == []
    assert read(node.server, [Range(topic, 0, 5, 8)], isolation="read_committed") == []


def test_a_task_that_is_given_up_leaves_the_process_fit_for_the_next(node: NodeProcess, topic: str) -> None:
    fill(node, topic, [500])
    settings = ReadSettings(servers=node.server, fetch_bytes_max=2048)
    begun = read_ranges([Range(topic, 0, 0, 500)], ALL_COLUMNS, settings)
    next(begun)
    del begun
    assert len(rows(read(node.server, [Range(topic, 0, 0, 500)]))) == 500


def test_a_topic_that_is_gone_is_told_as_lost_data(node: NodeProcess, topic: str) -> None:
    with pytest.raises(DataLossError, match=f"a topic was deleted while it was read: {topic}"):
        read(node.server, [Range(topic, 0, 0, 10)])


def test_a_topic_that_is_gone_is_passed_over_where_data_may_be_lost(node: NodeProcess, topic: str) -> None:
    fill(node, f"{topic}.kept", [5])
    skipped: list[tuple[str, int]] = []
    settings = ReadSettings(servers=node.server, fail_on_data_loss=False)
    ranges = [Range(f"{topic}.gone", 0, 3, 10), Range(f"{topic}.kept", 0, 0, 5)]
    batches = read_ranges(ranges, ALL_COLUMNS, settings, skipped=lambda one, count: skipped.append((one.topic, count)))
    assert [record.offset for record in records_of(list(batches))] == list(range(5))
    assert skipped == [(f"{topic}.gone", 7)]


def test_a_task_outlives_a_crash_of_the_node(tmp_path: Path) -> None:
    with running(tmp_path / "data") as own:
        fill(own, "orders", [3000], value=b"%d" + b"x" * 1000)
        settings = ReadSettings(servers=own.server, fetch_bytes_max=200_000)
        batches = read_ranges([Range("orders", 0, 0, 3000)], ALL_COLUMNS, settings)
        found = [next(batches)]
        own.kill()
        own.start()
        found += batches
    assert [offset for _, offset, _ in rows(found)] == list(range(3000))


def test_a_forked_process_makes_connections_of_its_own(node: NodeProcess, topic: str) -> None:
    """As Spark's workers are: forked from one process, which may have read before."""
    fill(node, topic, [100])
    program = f"""
import os
from headrace.spark.arrow.schema import BASE_SCHEMA, arrow_schema
from headrace.spark.source.reading import Range, ReadSettings, read_ranges

def count():
    settings = ReadSettings(servers={node.server!r})
    return sum(b.num_rows for b in read_ranges([Range({topic!r}, 0, 0, 100)], arrow_schema(BASE_SCHEMA), settings))

assert count() == 100
child = os.fork()
if not child:
    os._exit(0 if count() == 100 else 1)
assert os.waitpid(child, 0)[1] == 0
assert count() == 100
"""
    subprocess.run([sys.executable, "-c", program], check=True, timeout=60)


# With a broker that answers from a script.


@contextmanager
def broker_of(answer: Callable[[int], PartitionData]) -> Iterator[ScriptedBroker]:
    """A broker of one topic with one partition; the script is given the offset that is asked for."""

    def fetched(request: FetchRequest) -> FetchResponse:
        data = answer(request.topics[0].partitions[0].fetch_offset)
        return FetchResponse(responses=(FetchableTopicResponse(topic="orders", partitions=(data,)),))

    ready: Future[tuple[ScriptedBroker, Callable[[], object]]] = Future()

    async def serve() -> None:
        async with scripted({FETCH: fetched}) as broker:
            loop, over = asyncio.get_running_loop(), asyncio.Event()
            ready.set_result((broker, lambda: loop.call_soon_threadsafe(over.set)))
            await over.wait()

    thread = Thread(target=lambda: asyncio.run(serve()))
    thread.start()
    broker, stop = ready.result(10)
    try:
        yield broker
    finally:
        stop()
        thread.join()


def batch_at(offset: int, *texts: bytes) -> bytes:
    return bytes(encode_batch([Record(1, None, text) for text in texts], base_offset=offset))


def data(records: bytes = b"", *, end: int, start: int = 0, stable: int | None = None) -> PartitionData:
    return PartitionData(
        high_watermark=end,
        last_stable_offset=end if stable is None else stable,
        log_start_offset=start,
        records=records,
    )


def test_what_compaction_took_from_the_end_of_a_range_is_not_waited_for() -> None:
    def answer(offset: int) -> PartitionData:
        return data(batch_at(0, b"a", b"b") if offset < 2 else b"", end=10)

    with broker_of(answer) as broker:
        batches = read(str(broker.address), [Range("orders", 0, 0, 10)])
        assert [record.value for record in records_of(batches)] == [b"a", b"b"]
        assert len(broker.of(FETCH)) == 2


def test_offsets_that_retention_removed_are_told() -> None:
    def answer(offset: int) -> PartitionData:
        if offset < 100:
            return PartitionData(error_code=OFFSET_OUT_OF_RANGE, high_watermark=-1, log_start_offset=100)
        return data(batch_at(100, b"a", b"b"), end=102, start=100)

    with broker_of(answer) as broker:
        server = str(broker.address)
        with pytest.raises(DataLossError, match="orders-0: offsets 40 to 99 are gone, it has those from 100 on"):
            read(server, [Range("orders", 0, 40, 102)])
        skipped: list[int] = []
        settings = ReadSettings(servers=server, fail_on_data_loss=False)
        ranges = [Range("orders", 0, 40, 102)]
        batches = list(read_ranges(ranges, ALL_COLUMNS, settings, skipped=lambda _, count: skipped.append(count)))
        assert [record.offset for record in records_of(batches)] == [100, 101]
        assert skipped == [60]
        ranges = [Range("orders", 0, 40, 60)]
        assert list(read_ranges(ranges, ALL_COLUMNS, settings, skipped=lambda _, count: skipped.append(count))) == []
        assert skipped == [60, 20]


def test_a_partition_that_is_shorter_than_planned_is_lost_data() -> None:
    with broker_of(lambda _: data(end=5)) as broker:
        server = str(broker.address)
        with pytest.raises(DataLossError, match="orders-0 ends at offset 5, and was to be read up to 10"):
            read(server, [Range("orders", 0, 5, 10)], client=HASTY)
        assert read(server, [Range("orders", 0, 5, 10)], client=HASTY, fail_on_data_loss=False) == []


def test_a_transaction_that_stays_open_is_not_waited_for_without_end() -> None:
    with (
        broker_of(lambda _: data(end=10, stable=5)) as broker,
        pytest.raises(TimedOutError, match="orders-0: a transaction that is not over"),
    ):
        read(str(broker.address), [Range("orders", 0, 5, 10)], client=HASTY, isolation="read_committed")


def test_what_comes_late_is_waited_for() -> None:
    asked: list[int] = []

    def answer(offset: int) -> PartitionData:
        asked.append(offset)
        return data(end=5) if len(asked) < 4 else data(batch_at(5, *[b"late"] * 5), end=10)

    with broker_of(answer) as broker:
        assert len(records_of(read(str(broker.address), [Range("orders", 0, 5, 10)]))) == 5


def test_a_leader_that_moved_is_found_again() -> None:
    asked: list[int] = []

    def answer(offset: int) -> PartitionData:
        asked.append(offset)
        if len(asked) in (1, 3):
            return PartitionData(error_code=NOT_LEADER)
        return data(batch_at(offset, b"%d" % offset), end=3)

    with broker_of(answer) as broker:
        batches = read(str(broker.address), [Range("orders", 0, 0, 3)], client=ClientConfig(retry_pause_ms=5))
        assert [record.value for record in records_of(batches)] == [b"0", b"1", b"2"]


def test_later_tasks_of_a_process_use_its_connection() -> None:
    with broker_of(lambda _: data(batch_at(0, b"a"), end=1)) as broker:
        for _ in range(5):
            assert len(records_of(read(str(broker.address), [Range("orders", 0, 0, 1)]))) == 1
        assert broker.connection_count == 1


def test_a_batch_that_never_comes_whole_is_told() -> None:
    with (
        broker_of(lambda _: data(batch_at(0, b"a" * 100)[:-20], end=1)) as broker,
        pytest.raises(CorruptBatchError, match="orders-0 sent a batch at offset 0 that is not whole"),
    ):
        read(str(broker.address), [Range("orders", 0, 0, 1)])
