"""Sends: one write for each turn, answered when they are durable, retried without doubling."""

import asyncio
import errno
import random

import pytest

from headrace.broker.config import BrokerConfig
from headrace.broker.pending import Appended
from headrace.model.errors import (
    CorruptBatchError,
    DiskFailedError,
    DiskFullError,
    DuplicateSequenceError,
    OffsetOutOfRangeError,
    OutOfOrderSequenceError,
    PartitionOfflineError,
    ProducerFencedError,
    UnknownTopicError,
)
from headrace.model.ids import Offset
from headrace.testing.clock import settle
from headrace.testing.threads import HeldThreads
from headrace.wire.kafka.marker import Marker
from headrace.wire.kafka.records import Record, encode_batch

from .node import Node, batch, fetch, gathered, produced, run

DAY_MS = 24 * 60 * 60 * 1000


def offsets(answers: list[Appended | BaseException]) -> list[tuple[int, int]]:
    found: list[tuple[int, int]] = []
    for answer in answers:
        assert isinstance(answer, Appended), answer
        found.append((answer.base_offset, answer.last_offset))
    return found


def in_transaction(value: bytes) -> memoryview:
    records = [Record(1_700_000_000_000, None, value)]
    return memoryview(
        bytearray(encode_batch(records, producer_id=7, producer_epoch=0, base_sequence=0, is_transactional=True))
    )


def test_sends_of_one_turn_are_one_write_and_one_sync_in_order_of_arrival() -> None:
    async def main() -> None:
        node = await Node().start()
        partition = await node.make()
        node.disk.calls.clear()
        sends = [partition.append(batch(b"%d" % number, b"more")) for number in range(10)]
        answers = await gathered(sends)
        assert offsets(answers) == [(2 * number, 2 * number + 1) for number in range(10)]
        assert (node.disk.calls["pwritev"], node.disk.calls["fdatasync"]) == (1, 1), (
            "the journal; the segment follows when somebody reads"
        )
        assert len(await node.values()) == 20
        node.abandon()

    run(main())


def test_a_bad_send_spoils_none_of_its_turn() -> None:
    async def main() -> None:
        node = await Node().start()
        partition = await node.make()
        bad = batch(b"bad")
        bad[-1] ^= 1
        answers = await gathered([partition.append(batch(b"a")), partition.append(bad), partition.append(batch(b"b"))])
        assert isinstance(answers[1], CorruptBatchError)
        assert offsets([answers[0], answers[2]]) == [(0, 0), (1, 1)]
        assert await node.values() == [b"a", b"b"]
        node.abandon()

    run(main())


@pytest.mark.parametrize("durability", ["memory", "replicated", "fsync"])
def test_a_send_is_answered_when_its_topics_durability_says_so(durability: str) -> None:
    async def main() -> None:
        node = await Node().start()
        partition = await node.make(headrace_durability=durability)
        held = HeldThreads()
        node.logs.committer._threads = held
        sent = partition.append(batch(b"a"))
        await settle()
        assert sent.done() == (durability != "fsync")
        assert partition.high_watermark == int(durability != "fsync")
        assert len(held) == (durability == "fsync")
        held.release()
        await settle()
        assert sent.done()
        node.abandon()

    run(main())


def test_all_of_a_send_is_stored_or_nothing() -> None:
    async def main() -> None:
        node = await Node().start()
        partition = await node.make()
        both = memoryview(bytearray(bytes(produced(b"a", sequence=0)) + bytes(produced(b"c", sequence=2))))
        (answer,) = await gathered([partition.append(both)])
        assert isinstance(answer, OutOfOrderSequenceError)
        assert partition.end_offset == 0
        both = memoryview(bytearray(bytes(produced(b"a", sequence=0)) + bytes(produced(b"b", sequence=1))))
        answers = await gathered([partition.append(both)])
        assert offsets(answers) == [(0, 1)]
        node.abandon()

    run(main())


def test_a_retry_is_answered_with_the_first_offset_and_stored_once() -> None:
    async def main() -> None:
        node = await Node().start()
        partition = await node.make()
        first = await partition.append(produced(b"a", b"b", sequence=0))
        await partition.append(produced(b"other", producer_id=9, sequence=0))
        again = await partition.append(produced(b"a", b"b", sequence=0))
        assert (again.base_offset, again.last_offset) == (first.base_offset, first.last_offset) == (0, 1)
        assert await node.values() == [b"a", b"b", b"other"]
        node.abandon()

    run(main())


def test_a_retry_in_the_same_turn_is_stored_once() -> None:
    async def main() -> None:
        node = await Node().start()
        partition = await node.make()
        await partition.append(batch(b"before"))
        sends = [
            partition.append(produced(b"a", sequence=0)),
            partition.append(produced(b"a", sequence=0)),
            partition.append(produced(b"b", sequence=1)),
            partition.append(produced(b"a", sequence=0)),
        ]
        assert offsets(await gathered(sends)) == [(1, 1), (1, 1), (2, 2), (1, 1)]
        assert await node.values() == [b"before", b"a", b"b"]
        node.abandon()

    run(main())


def test_a_retry_is_not_answered_before_the_first_try_is_durable() -> None:
    async def main() -> None:
        node = await Node().start()
        partition = await node.make()
        held = HeldThreads()
        node.logs.committer._threads = held
        first = partition.append(produced(b"a", sequence=0))
        await settle()
        again = partition.append(produced(b"a", sequence=0))
        await settle()
        assert not first.done()
        assert not again.done()
        held.release()
        await settle()
        assert first.result() == again.result()
        node.abandon()

    run(main())


def test_a_retry_of_what_a_failed_sync_left_in_doubt_is_not_acknowledged() -> None:
    async def main() -> None:
        node = await Node().start()
        partition = await node.make()
        node.disk.fail("fdatasync", path_part=".journal")
        first = partition.append(produced(b"a", sequence=0))
        await settle()
        again = partition.append(produced(b"a", sequence=0))
        answers = await gathered([first, again])
        assert [type(answer) for answer in answers] == [PartitionOfflineError, PartitionOfflineError]
        with pytest.raises(PartitionOfflineError):
            node.broker.partition("t", 0)
        node.abandon()

    run(main())


def test_sequences_with_a_gap_from_an_old_epoch_or_long_stored_are_refused() -> None:
    async def main() -> None:
        node = await Node().start()
        partition = await node.make()
        for sequence in range(7):
            await partition.append(produced(b"%d" % sequence, sequence=sequence, epoch=3))
        for send, error in [
            (produced(b"gap", sequence=8, epoch=3), OutOfOrderSequenceError),
            (produced(b"old", sequence=7, epoch=2), ProducerFencedError),
            (produced(b"0", sequence=0, epoch=3), DuplicateSequenceError),
        ]:
            with pytest.raises(error):
                await partition.append(send)
        assert len(await node.values()) == 7
        await partition.append(produced(b"7", sequence=7, epoch=3))
        await partition.append(produced(b"new", sequence=0, epoch=4))
        node.abandon()

    run(main())


def test_a_write_that_failed_leaves_the_producers_as_they_were() -> None:
    async def main() -> None:
        node = await Node().start()
        partition = await node.make(headrace_durability="memory")
        await partition.append(produced(b"a", sequence=0))
        node.disk.fail("pwritev", error=errno.ENOSPC, path_part=".log")
        answers = await gathered(
            [partition.append(produced(b"b", sequence=1)), partition.append(produced(b"c", sequence=2))]
        )
        assert [type(answer) for answer in answers] == [DiskFullError, DiskFullError]
        with pytest.raises(OutOfOrderSequenceError):
            await partition.append(produced(b"c", sequence=2))
        assert (await partition.append(produced(b"b", sequence=1))).base_offset == 1
        node.abandon()

    run(main())


@pytest.mark.parametrize("ending", ["clean", "killed", "power", "without snapshot", "damaged snapshot"])
def test_what_is_known_of_producers_survives_a_restart(ending: str) -> None:
    async def main() -> None:
        node = await Node().start()
        partition = await node.make()
        for sequence in range(4):
            await partition.append(produced(b"%d" % sequence, sequence=sequence))
        await node.logs.checkpoint(partition.log)
        for sequence in range(4, 8):
            await partition.append(produced(b"%d" % sequence, sequence=sequence))
        if ending in ("clean", "without snapshot", "damaged snapshot"):
            await node.logs.stop()
        node.abandon()
        for path, data in node.disk.files().items():
            if path.endswith(".snapshot") and ending == "without snapshot":
                node.disk.remove(path)
            elif path.endswith(".snapshot") and ending == "damaged snapshot":
                node.disk.overwrite(path, data[:-3] + b"\0" + data[-2:])
        if ending == "power":
            node.disk.crash(random.Random(4))
        await node.start()
        partition = node.broker.partition("t", 0)
        assert partition.producer_count == 1
        for sequence in range(3, 8):
            again = await partition.append(produced(b"%d" % sequence, sequence=sequence))
            assert again.base_offset == sequence
        with pytest.raises(DuplicateSequenceError):
            await partition.append(produced(b"1", sequence=1))
        with pytest.raises(OutOfOrderSequenceError):
            await partition.append(produced(b"9", sequence=9))
        assert (await partition.append(produced(b"8", sequence=8))).base_offset == 8
        assert len(await node.values()) == 9
        node.abandon()

    run(main())


def test_a_snapshot_with_any_bit_wrong_is_not_used() -> None:
    async def main() -> None:
        node = await Node().start()
        partition = await node.make()
        for sequence in range(3):
            await partition.append(produced(b"%d" % sequence, sequence=sequence))
        await node.logs.stop()
        node.abandon()
        disk = node.disk.copy()
        (path,) = [path for path in disk.files() if path.endswith(".snapshot")]
        for bit in range(0, len(disk.files()[path]) * 8, 3):
            node.disk = disk.copy()
            node.disk.flip_bit(path, bit)
            await node.start()
            partition = node.broker.partition("t", 0)
            assert (await partition.append(produced(b"2", sequence=2))).base_offset == 2
            assert (await partition.append(produced(b"3", sequence=3))).base_offset == 3
            node.abandon()

    run(main())


def test_a_silent_producer_is_forgotten_in_time() -> None:
    async def main() -> None:
        node = await Node(config=BrokerConfig(producer_expiry_ms=3000)).start()
        partition = await node.make()
        await partition.append(produced(b"a", sequence=0))
        await node.clock.elapse(node.config.producer_expiry_ms - 1)
        await partition.append(produced(b"b", producer_id=8, sequence=0))
        node.broker.expire_producers()
        assert partition.producer_count == 2
        await node.clock.elapse(1)
        node.broker.expire_producers()
        assert partition.producer_count == 1
        node.abandon()

    run(main())


@pytest.mark.parametrize("jump_ms", [2 * DAY_MS, -2 * DAY_MS])
@pytest.mark.parametrize("is_believed", [False, True])
@pytest.mark.parametrize("comes_back", ["running", "restarted", "killed"])
def test_no_jump_of_the_wall_clock_makes_a_retry_a_second_message(
    jump_ms: int, is_believed: bool, comes_back: str
) -> None:
    async def main() -> None:
        node = await Node(config=BrokerConfig(producer_expiry_ms=3000)).start()
        await (await node.make()).append(produced(b"a", sequence=0))
        node.clock.jump_wall(jump_ms, is_believed=is_believed)
        node.broker.expire_producers()
        if comes_back == "restarted":
            await node.restart()
        elif comes_back == "killed":
            await node.kill()
        node.broker.expire_producers()
        retry = await node.broker.partition("t", 0).append(produced(b"a", sequence=0))
        assert retry.base_offset == 0
        assert await node.values() == [b"a"]
        await node.clock.elapse(node.config.producer_expiry_ms)
        node.broker.expire_producers()
        assert node.broker.partition("t", 0).producer_count == 0, "it is forgotten when the time has passed"
        node.abandon()

    run(main())


@pytest.mark.parametrize("jump_ms", [2 * DAY_MS, -2 * DAY_MS])
def test_a_clock_that_is_not_believed_gives_no_message_a_time_in_the_past(jump_ms: int) -> None:
    async def main() -> None:
        node = await Node().start()
        partition = await node.make(message_timestamp_type="LogAppendTime")
        trusted_ms = node.clock.trusted_ms()
        node.clock.jump_wall(jump_ms, is_believed=False)
        sent = await partition.append(batch(b"a"))
        assert sent.append_time_ms == trusted_ms + max(jump_ms, 0)
        node.abandon()

    run(main())


def test_a_disk_below_its_reserve_refuses_sends_while_reads_and_deletes_go_on() -> None:
    async def main() -> None:
        node = await Node().start()
        partition = await node.make(segment_bytes="4096")
        for number in range(6):
            await partition.append(batch(b"%d" % number * 1500))
        used = sum(map(len, node.disk.files().values()))
        node.disk.capacity_bytes = used + node.log_config.disk_reserve_bytes - 1
        await node.clock.elapse(node.log_config.disk_check_interval_ms)
        assert node.logs.is_full
        with pytest.raises(DiskFullError, match="reserve"):
            await partition.append(batch(b"refused"))
        assert len(await node.values()) == 6
        await partition.delete_records(Offset(5))
        await node.clock.elapse(node.log_config.maintenance_interval_ms)
        assert not node.logs.is_full, "the deleted records made room"
        assert (await partition.append(batch(b"taken"))).base_offset == 6
        node.disk.capacity_bytes = 1
        await node.clock.elapse(node.log_config.disk_check_interval_ms)
        assert node.logs.is_full
        await node.broker.delete_topic("t")
        node.abandon()

    run(main())


def test_deleted_records_stay_deleted_after_a_crash() -> None:
    async def main() -> None:
        for seed in range(5):
            node = await Node().start()
            partition = await node.make()
            await partition.append(batch(b"a", b"b", b"c"))
            await partition.append(batch(b"d"))
            assert await partition.delete_records(Offset(2)) == 2
            assert await partition.delete_records(Offset(1)) == 2, "what is gone stays gone"
            node.abandon()
            node.disk.crash(random.Random(seed))
            await node.start()
            partition = node.broker.partition("t", 0)
            assert partition.start_offset == 2
            assert await node.values() == [b"c", b"d"]
            assert await partition.delete_records(Offset(-1)) == 4
            assert await node.values() == []
            for outside in (-2, 5):
                with pytest.raises(OffsetOutOfRangeError):
                    await partition.delete_records(Offset(outside))
            assert (await partition.append(batch(b"e"))).start_offset == 4
            node.abandon()

    run(main())


def test_records_whose_deletion_could_not_be_written_down_are_not_said_to_be_deleted() -> None:
    async def main() -> None:
        node = await Node().start()
        partition = await node.make()
        await partition.append(batch(b"a", b"b", b"c"))
        node.disk.fail("pwritev", error=errno.ENOSPC, path_part="checkpoint")
        with pytest.raises(DiskFullError):
            await partition.delete_records(Offset(2))
        assert await partition.delete_records(Offset(2)) == 2, "a retry writes it down"
        node.abandon()
        node.disk.crash(random.Random(0))
        await node.start()
        assert node.broker.partition("t", 0).start_offset == 2
        node.abandon()

    run(main())


def test_a_deletion_that_a_broken_disk_refuses_is_not_called_lack_of_space() -> None:
    async def main() -> None:
        node = await Node().start()
        partition = await node.make()
        await partition.append(batch(b"a", b"b"))
        node.disk.fail("pwritev", error=errno.EIO, path_part="checkpoint")
        with pytest.raises(DiskFailedError, match="Input/output error"):
            await partition.delete_records(Offset(1))
        node.abandon()

    run(main())


def test_a_turn_that_finds_no_space_refuses_its_sends_and_writes_what_ends_a_transaction() -> None:
    async def main() -> None:
        node = await Node().start()
        partition = await node.make(headrace_durability="memory")
        await partition.append(in_transaction(b"a"), is_verified=True)
        node.disk.fail("pwritev", error=errno.ENOSPC, path_part=".log")
        send = partition.append(batch(b"refused"))
        ended = partition.end_transaction(7, 0, Marker(is_commit=True, coordinator_epoch=0))
        with pytest.raises(DiskFullError):
            await send
        assert (await ended).base_offset == 1
        assert (await partition.append(batch(b"b"))).base_offset == 2
        node.abandon()

    run(main())


def test_a_topic_deleted_under_load_answers_every_send() -> None:
    async def main() -> None:
        node = await Node().start()
        partition = await node.make()
        held = HeldThreads()
        node.logs.committer._threads = held
        sends = [partition.append(batch(b"on its way to the disk"))]
        await settle()
        sends.append(partition.append(batch(b"gathering")))
        await settle()
        deleting = asyncio.ensure_future(node.broker.delete_topic("t"))
        sends.append(partition.append(batch(b"in this turn")))
        await settle()
        sends.append(partition.append(batch(b"too late")))
        while not deleting.done():
            held.release()
            await settle()
        answers = await gathered(sends)
        assert [type(answer) for answer in answers] == [UnknownTopicError] * 4
        assert not any(partition.log.directory in path for path in node.disk.files())
        await node.make("other")
        sent = node.broker.partition("other", 0).append(batch(b"fine"))
        while not sent.done():
            await settle()
            held.release()
        assert (await sent).base_offset == 0
        node.abandon()

    run(main())


def test_settings_are_obeyed_from_the_next_send_on() -> None:
    async def main() -> None:
        node = await Node().start()
        partition = await node.make()
        await partition.append(batch(b"a"))
        await node.broker.alter_config(
            "t", {"headrace.durability": "memory", "message.timestamp.type": "LogAppendTime"}
        )
        node.disk.calls.clear()
        answer = await partition.append(batch(b"b"))
        assert (answer.base_offset, answer.append_time_ms) == (1, node.clock.wall_ms())
        assert node.disk.calls["fdatasync"] == 0
        await node.broker.alter_config("t", {})
        answer = await partition.append(batch(b"c"))
        assert answer.append_time_ms == -1
        assert partition.log.durable_offset == 3, "the unsynced one before it is durable with it"
        (result,) = await node.fetched(fetch(0))
        assert result.high_watermark == 3
        node.abandon()

    run(main())


def test_an_error_that_no_rule_expected_stops_the_partition_and_everybody_is_told(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def main() -> None:
        node = await Node().start()
        partition = await node.make(partitions=2)
        beside = node.broker.partition("t", 1)
        await partition.append(batch(b"a"))

        def fall_over(*_: object, **__: object) -> None:
            raise KeyError("a bug")

        with monkeypatch.context() as patched:
            patched.setattr(partition._producers, "apply", fall_over)
            sends = [partition.append(batch(b"b")), partition.append(batch(b"c"))]
            answers = await gathered(sends)
        assert all(isinstance(answer, PartitionOfflineError) for answer in answers)
        # Nobody knows how much of it was done, so it stays offline when the bug does not show again.
        (later,) = await gathered([partition.append(batch(b"d"))])
        assert isinstance(later, PartitionOfflineError)
        assert "partition stopped on an unexpected error" in caplog.text
        assert isinstance((await gathered([beside.append(batch(b"e"))]))[0], Appended)
        await node.kill()
        assert (await node.values())[0] == b"a"
        node.abandon()

    run(main())


def test_no_more_files_are_held_open_than_allowed_however_many_partitions_are_written() -> None:
    async def main() -> None:
        node = await Node().start()
        count = 3 * node.log_config.open_files_max
        await node.make(partitions=count, headrace_durability="memory")
        for _ in range(2):
            sends = [node.broker.partition("t", index).append(batch(b"%d" % index)) for index in range(count)]
            await settle()
            assert len(node.logs.files) <= node.log_config.open_files_max
            answers = await gathered(sends)
            assert all(isinstance(answer, Appended) for answer in answers)
        for index in range(0, count, 7):
            assert await node.values(partition=index) == [b"%d" % index] * 2
        node.abandon()

    run(main())


def test_a_retry_is_told_the_time_that_the_first_copy_was_given() -> None:
    async def main() -> None:
        node = await Node().start()
        partition = await node.make(message_timestamp_type="LogAppendTime")
        (first,) = await gathered([partition.append(produced(b"a", sequence=0))])
        assert isinstance(first, Appended)
        assert first.append_time_ms == node.clock.wall_ms()
        node.clock.advance(5000)
        for is_killed in (False, True):
            if is_killed:
                await node.kill()
                partition = node.broker.partition("t", 0)
            (again,) = await gathered([partition.append(produced(b"a", sequence=0))])
            assert again == first
        assert (await partition.offset_for_time(0)) == (0, first.append_time_ms)
        node.abandon()

    run(main())
