"""Reading stored bytes, with long poll."""

import asyncio
import errno

import pytest

from headrace.broker.fetch import Fetch, FetchPart
from headrace.model.batch import read_header
from headrace.model.errors import (
    CorruptLogError,
    FencedEpochError,
    OffsetOutOfRangeError,
    PartitionOfflineError,
    UnknownEpochError,
    UnknownTopicError,
)
from headrace.testing.clock import settle
from headrace.testing.threads import HeldThreads

from .node import Node, batch, fetch, records_of, run


def values(results: list[object]) -> list[list[bytes | None]]:
    return [[record.value for record in records_of(result)] for result in results]  # type: ignore[arg-type]


def test_what_is_there_is_answered_in_the_callers_turn() -> None:
    async def main() -> None:
        node = await Node().start()
        partition = await node.make()
        await partition.append(batch(b"a", b"b"))
        results = node.broker.fetch(fetch(0, wait_ms=1000))
        assert isinstance(results, list)
        assert values(list(results)) == [[b"a", b"b"]]
        assert (results[0].high_watermark, results[0].last_stable_offset, results[0].start_offset) == (2, 2, 0)
        node.abandon()

    run(main())


def test_without_time_to_wait_an_empty_answer_comes_at_once() -> None:
    async def main() -> None:
        node = await Node().start()
        await node.make()
        results = node.broker.fetch(fetch(0))
        assert isinstance(results, list)
        assert values(list(results)) == [[]]
        node.abandon()

    run(main())


def test_a_long_poll_is_answered_when_a_send_is_committed_and_not_before() -> None:
    async def main() -> None:
        threads = HeldThreads()
        node = Node()
        await node.start()
        partition = await node.make()
        node.logs.committer._threads = threads
        waiting = asyncio.ensure_future(node.fetched(fetch(0, wait_ms=1000)))
        await settle()
        sent = partition.append(batch(b"a"))
        await settle()
        assert partition.end_offset == 1
        assert not waiting.done(), "written, and not yet durable"
        assert not sent.done()
        threads.release()
        await settle()
        assert waiting.done()
        assert values(list(await waiting)) == [[b"a"]]
        assert sent.done()
        node.abandon()

    run(main())


def test_a_long_poll_sees_what_is_committed_between_its_look_and_its_wait() -> None:
    async def main() -> None:
        node = await Node().start()
        partition = await node.make(headrace_durability="memory")
        sent = partition.append(batch(b"a"))
        waiting = node.broker.fetch(fetch(0, wait_ms=60_000))
        assert not isinstance(waiting, list)
        await settle()
        assert sent.done()
        assert asyncio.ensure_future(waiting).done(), "it slept through the send"
        assert values(list(await waiting)) == [[b"a"]]
        node.abandon()

    run(main())


def test_a_long_poll_ends_with_its_time() -> None:
    async def main() -> None:
        node = await Node().start()
        partition = await node.make()
        waiting = asyncio.ensure_future(node.fetched(fetch(0, wait_ms=500)))
        await node.clock.elapse(499)
        assert not waiting.done()
        await node.clock.elapse(1)
        assert values(list(await waiting)) == [[]]
        assert partition.waiters == set()
        node.abandon()

    run(main())


def test_a_long_poll_waits_for_its_minimum_over_all_partitions() -> None:
    async def main() -> None:
        node = await Node().start()
        await node.make(partitions=2, headrace_durability="memory")
        size = len(batch(b"x" * 100))
        parts = [FetchPart("t", index, 0, 1 << 20) for index in (0, 1)]
        request = Fetch(parts, bytes_min=3 * size, bytes_max=1 << 20, wait_ms=1000)
        waiting = asyncio.ensure_future(node.fetched(request))
        for index in (0, 1):
            await node.broker.partition("t", index).append(batch(b"x" * 100))
            await settle()
            assert not waiting.done()
        await node.broker.partition("t", 1).append(batch(b"x" * 100))
        await settle()
        assert waiting.done()
        assert [len(found) for found in values(list(await waiting))] == [1, 2]
        node.abandon()

    run(main())


def test_a_long_poll_with_less_than_its_minimum_gives_what_there_is_when_time_is_over() -> None:
    async def main() -> None:
        node = await Node().start()
        partition = await node.make()
        await partition.append(batch(b"little"))
        waiting = asyncio.ensure_future(node.fetched(fetch(0, bytes_min=10_000, wait_ms=300)))
        await node.clock.elapse(299)
        assert not waiting.done()
        await node.clock.elapse(1)
        assert values(list(await waiting)) == [[b"little"]]
        node.abandon()

    run(main())


def test_a_cancelled_long_poll_leaves_nobody_waiting() -> None:
    async def main() -> None:
        node = await Node().start()
        partition = await node.make()
        waiting = node.broker.fetch(fetch(0, wait_ms=1000))
        assert isinstance(waiting, asyncio.Task)
        await settle()
        assert len(partition.waiters) == 1
        waiting.cancel()
        await settle()
        assert partition.waiters == set()
        node.abandon()

    run(main())


def test_the_byte_limit_is_shared_and_the_first_batch_comes_whole() -> None:
    async def main() -> None:
        node = await Node().start()
        await node.make(partitions=3)
        for index in range(3):
            for _ in range(3):
                await node.broker.partition("t", index).append(batch(b"x" * 300))
        size = len(batch(b"x" * 300))
        parts = [FetchPart("t", index, 0, 1 << 20) for index in range(3)]
        for limit, counts in [(1, [1, 0, 0]), (size * 2, [2, 0, 0]), (size * 4, [3, 1, 0]), (size * 9, [3, 3, 3])]:
            results = await node.fetched(Fetch(parts, bytes_min=1, bytes_max=limit, wait_ms=0))
            assert [len(found) for found in values(list(results))] == counts
        results = await node.fetched(Fetch([p._replace(bytes_max=size) for p in parts], 1, 1 << 20, 0))
        assert [len(found) for found in values(list(results))] == [1, 1, 1]
        results = await node.fetched(Fetch([p._replace(bytes_max=size - 1) for p in parts], 1, 1 << 20, 0))
        assert [len(found) for found in values(list(results))] == [1, 0, 0]
        node.abandon()

    run(main())


def test_an_offset_outside_the_log_is_told_with_where_it_begins_and_spoils_no_other_partition() -> None:
    async def main() -> None:
        node = await Node().start()
        await node.make(partitions=2)
        for index in (0, 1):
            await node.broker.partition("t", index).append(batch(b"a", b"b", b"c"))
        await node.broker.partition("t", 0).delete_records(2)  # type: ignore[arg-type]
        for offset in (0, 1, 4, 10**12):
            parts = [FetchPart("t", 0, offset, 100), FetchPart("t", 1, 0, 1000)]
            results = node.broker.fetch(Fetch(parts, 1, 1000, wait_ms=10_000))
            assert isinstance(results, list), "an error is not waited on"
            assert isinstance(results[0].error, OffsetOutOfRangeError)
            assert results[0].start_offset == 2
            assert len(records_of(results[1])) == 3
        for offset in (2, 3):
            (result,) = await node.fetched(fetch(offset))
            assert result.error is None
        node.abandon()

    run(main())


def test_a_topic_or_partition_that_is_not_there_is_told() -> None:
    async def main() -> None:
        node = await Node().start()
        await node.make()
        results = await node.fetched(Fetch([FetchPart("other", 0, 0, 1), FetchPart("t", 5, 0, 1)], 1, 1, 1000))
        assert [type(result.error) for result in results] == [UnknownTopicError, UnknownTopicError]
        node.abandon()

    run(main())


def test_a_reader_who_knows_another_leader_is_told_which_is_older() -> None:
    async def main() -> None:
        node = await Node().start()
        partition = await node.make()
        await partition.append(batch(b"a"))
        await node.restart()
        await node.restart()
        epoch = node.broker.partition("t", 0).epoch
        assert epoch == 2
        errors = []
        for said in (-1, 0, 1, 2, 3):
            (result,) = await node.fetched(Fetch([FetchPart("t", 0, 0, 1000, epoch=said)], 1, 1000, 0))
            errors.append(type(result.error) if result.error else None)
        assert errors == [None, FencedEpochError, FencedEpochError, None, UnknownEpochError]
        node.abandon()

    run(main())


def test_a_reader_whose_log_parted_is_told_where() -> None:
    async def main() -> None:
        node = await Node().start()
        await (await node.make()).append(batch(b"a", b"b"))
        await node.restart()
        await node.broker.partition("t", 0).append(batch(b"c", b"d"))
        await node.restart()
        await node.broker.partition("t", 0).append(batch(b"e"))
        for offset, last_epoch, expected in [(2, 0, None), (3, 0, (0, 2)), (4, 1, None), (5, 1, (1, 4)), (5, 2, None)]:
            request = Fetch([FetchPart("t", 0, offset, 1000, epoch=2, last_fetched_epoch=last_epoch)], 1, 1000, 0)
            (result,) = await node.fetched(request)
            assert result.diverging == expected
            assert result.error is None
        node.abandon()

    run(main())


def test_a_topic_deleted_while_a_reader_waits_ends_the_wait() -> None:
    async def main() -> None:
        node = await Node().start()
        await node.make()
        waiting = asyncio.ensure_future(node.fetched(fetch(0, wait_ms=60_000)))
        await settle()
        await node.broker.delete_topic("t")
        await settle()
        assert waiting.done()
        assert isinstance((await waiting)[0].error, UnknownTopicError)
        node.abandon()

    run(main())


def test_a_topic_deleted_before_a_reader_begins_to_wait_is_an_answer_too() -> None:
    async def main() -> None:
        node = await Node().start()
        await node.make()
        deleting = asyncio.ensure_future(node.broker.delete_topic("t"))
        while "t" in node.catalog.topics:
            waiting = asyncio.ensure_future(node.fetched(fetch(0, wait_ms=60_000)))
            await asyncio.sleep(0)
        await deleting
        await settle()
        assert waiting.done()
        assert isinstance((await waiting)[0].error, UnknownTopicError)
        node.abandon()

    run(main())


def test_cold_bytes_are_read_in_a_thread_while_others_are_served() -> None:
    async def main() -> None:
        threads = HeldThreads()
        node = await Node(read_threads=threads).start()
        await node.make(partitions=2)
        for index in (0, 1):
            await node.broker.partition("t", index).append(batch(b"v%d" % index))
        cold = node.broker.partition("t", 0).log.active.path
        node.disk.make_cold(cold)
        waiting = node.broker.fetch(fetch(0))
        assert not isinstance(waiting, list)
        task = asyncio.ensure_future(waiting)
        await settle()
        assert not task.done()
        assert values(list(await node.fetched(fetch(0, partition=1)))) == [[b"v1"]]
        while not task.done():
            threads.release()
            await settle()
        assert values(list(await task)) == [[b"v0"]]
        node.abandon()

    run(main())


def test_a_segment_that_retention_took_during_a_cold_read_gives_nothing_and_then_the_new_start() -> None:
    async def main() -> None:
        threads = HeldThreads()
        node = await Node(read_threads=threads).start()
        partition = await node.make(segment_bytes="4096")
        for number in range(6):
            await partition.append(batch(b"%d" % number * 1500))
        assert len(partition.log.segments) > 2
        await node.logs.checkpoint(partition.log)
        node.disk.all_cold = True
        task = asyncio.ensure_future(node.fetched(fetch(0)))
        await settle()
        await partition.delete_records(partition.high_watermark)
        await node.logs.maintain(partition.log, floor=partition.high_watermark)
        node.logs.files.close_under(partition.log.directory)
        while not task.done():
            threads.release()
            await settle()
        (result,) = await task
        assert result.error is None or isinstance(result.error, OffsetOutOfRangeError)
        node.disk.all_cold = False
        (result,) = await node.fetched(fetch(0))
        assert isinstance(result.error, OffsetOutOfRangeError)
        assert result.start_offset == 6
        node.abandon()

    run(main())


def test_a_read_that_the_disk_fails_is_told_for_its_partition_only() -> None:
    async def main() -> None:
        for operation in ("pread_cached", "pread"):
            node = await Node().start()
            await node.make(partitions=2)
            for index in (0, 1):
                await node.broker.partition("t", index).append(batch(b"v%d" % index))
            node.disk.all_cold = operation == "pread"
            path = node.broker.partition("t", 0).log.active.path
            node.disk.fail(operation, error=errno.EIO, path_part=path)
            parts = [FetchPart("t", 0, 0, 100), FetchPart("t", 1, 0, 100)]
            results = await node.fetched(Fetch(parts, 1, 1000, 0))
            assert isinstance(results[0].error, PartitionOfflineError)
            assert [record.value for record in records_of(results[1])] == [b"v1"]
            assert await node.values() == [b"v0"], "the disk healed, and the log is still good"
            node.abandon()

    run(main())


def test_damaged_bytes_are_told_and_never_served() -> None:
    async def main() -> None:
        node = await Node().start()
        partition = await node.make()
        await partition.append(batch(b"good"))
        await partition.append(batch(b"damaged"))
        await node.restart()
        partition = node.broker.partition("t", 0)
        node.disk.flip_bit(partition.log.active.path, (partition.log.active.size - 3) * 8)
        (result,) = await node.fetched(fetch(1))
        assert isinstance(result.error, CorruptLogError)
        assert result.buffers == []
        (result,) = await node.fetched(fetch(0, bytes_max=10))
        assert [record.value for record in records_of(result)] == [b"good"]
        node.abandon()

    run(main())


def test_a_damaged_place_is_logged_once_however_many_come_by(caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        node = await Node().start()
        partition = await node.make()
        for value in (b"good", b"damaged", b"better"):
            await partition.append(batch(value))
        await node.restart()
        partition = node.broker.partition("t", 0)
        active = partition.log.active
        node.disk.flip_bit(active.path, (active.size // 3 * 2 - 3) * 8)
        for is_cold in (True, True, False, False):
            node.disk.make_cold(active.path, cold=is_cold)
            (result,) = await node.fetched(fetch(1))
            assert result.buffers == []
        error = result.error
        assert isinstance(error, CorruptLogError)
        (said,) = [record for record in caplog.records if "came by damage" in record.getMessage()]
        fields = (said.file, said.position, said.expected, said.found)  # type: ignore[attr-defined]
        assert fields == (error.file, error.position, error.expected, error.found)
        assert error.file == active.path
        assert node.logs.damage.among(node.logs.logs.values()) == [partition.log]
        (result,) = await node.fetched(fetch(2))
        assert [record.value for record in records_of(result)] == [b"better"]
        await partition.append(batch(b"goes on"))
        node.abandon()

    run(main())


def test_damage_that_a_look_up_by_time_comes_by_is_logged_too(caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        node = await Node().start()
        partition = await node.make()
        await partition.append(batch(b"damaged"))
        await node.restart()
        partition = node.broker.partition("t", 0)
        node.disk.flip_bit(partition.log.active.path, (partition.log.active.size - 3) * 8)
        for _ in range(2):
            with pytest.raises(CorruptLogError):
                await partition.offset_for_time(1)
        assert len([record for record in caplog.records if "came by damage" in record.getMessage()]) == 1
        node.abandon()

    run(main())


def test_batches_go_out_as_they_came_but_for_offset_and_epoch() -> None:
    async def main() -> None:
        node = await Node().start()
        partition = await node.make()
        await node.restart()
        partition = node.broker.partition("t", 0)
        sent = [bytes(batch(b"x" * 40, b"y", codec=codec)) for codec in range(5)]
        for one in sent:
            await partition.append(memoryview(bytearray(one)))
        (result,) = await node.fetched(fetch(0))
        data = b"".join(bytes(buffer) for buffer in result.buffers)
        position = 0
        for number, one in enumerate(sent):
            header = read_header(data, position)
            assert (header.base_offset, header.leader_epoch) == (2 * number, 1)
            assert data[position + 16 : position + header.size] == one[16:]
            position += header.size
        assert position == len(data)
        node.abandon()

    run(main())
