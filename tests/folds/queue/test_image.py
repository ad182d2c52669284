"""Snapshots: the same state gives the same bytes, and what a queue costs in memory."""

import sys
import tracemalloc
from random import Random
from uuid import UUID

import msgspec
import pytest
from tests.folds.queue.script import NAME, Script

from headrace.folds.queue.arrival import Properties
from headrace.folds.queue.fold import QueueFold
from headrace.folds.queue.image import fold_name, freeze, restore, snapshot
from headrace.folds.queue.instant import Instant
from headrace.folds.queue.op import Op
from headrace.folds.snapshot import joined
from headrace.log import snapshots
from headrace.model.errors import CorruptLogError
from headrace.model.queue import SPAN_MS_MAX, Backoff, QueueConfig
from headrace.testing.disk import SimulatedDisk

LEASE_BYTES_MAX = 200
RESERVE_BYTES = 50  # of that for what a process holds beside what it has allocated
WAITING_BYTES_MAX = 1_000_000


def test_a_subscription_s_snapshots_are_found_by_its_name_among_those_of_others() -> None:
    disk = SimulatedDisk()
    disk.make_directory("folds")
    names = [fold_name(UUID(int=number << 96)) for number in (0xC0FFEE, 1, 0xFFFFFFFF)]
    assert names[0] == NAME
    for name in names:
        snapshots.save(disk, "folds", snapshots.Snapshot(name, 17, name.encode()))
    assert list(snapshots.load(disk, "folds", NAME, upto=17)) == [(NAME, 17, NAME.encode())]


@pytest.mark.parametrize("count", [2_000, 300_000])
def test_sets_that_were_made_in_different_ways_give_the_same_bytes(count: int) -> None:
    rand = Random(count)
    gone = [offset for offset in range(count) if rand.random() < 0.5]
    one, other = Script(), Script()
    one.send(count=count)
    other.send(count=count // 2)
    other.send(count=count // 2)
    one.fold.acknowledge(gone, now=one.now)
    rand.shuffle(gone)
    for start in range(0, len(gone), 1000):
        other.fold.acknowledge(gone[start : start + 1000], now=other.now)
    data = snapshot(one.fold, NAME)
    assert data == snapshot(other.fold, NAME)
    assert data == snapshot(restore(data, name=NAME), NAME)


def test_a_snapshot_of_another_subscription_or_with_a_flipped_bit_is_refused() -> None:
    script = Script()
    script.send(count=3)
    data = snapshot(script.fold, NAME)
    with pytest.raises(CorruptLogError):
        restore(data, name="queue-deadbeef")
    with pytest.raises(CorruptLogError):
        restore(data[:-1] + bytes([data[-1] ^ 1]), name=NAME)


@pytest.mark.parametrize(("sent_ms", "state"), [(-1, "visible"), (-(2**63), "dying"), (2**63 - 1, "delayed")])
def test_any_timestamp_that_a_producer_may_write_can_be_kept(sent_ms: int, state: str) -> None:
    script = Script(QueueConfig(delay_ms=100, ttl_ms=1000))
    own = Properties(due_ms=sent_ms + 10, expires_ms=sent_ms + SPAN_MS_MAX, deduplication_id=b"x")
    script.fold.arrive(0, 2, sent_ms=sent_ms, properties={0: own})
    before = snapshot(script.fold, NAME)
    script.restart()
    assert snapshot(script.fold, NAME) == before
    script.fold.advance(script.now)
    assert script.states([0]) == [state]


def test_a_replay_that_knows_nothing_of_the_moments_in_between_ends_in_the_same_bytes() -> None:
    script = Script(QueueConfig(max_deliveries=2))
    script.send(count=6)
    ops: list[Op] = []
    for _ in range(3):
        handout = script.fold.lease(2, 100, upto=6, now=script.now)
        assert handout is not None
        ops.append(handout.op)
        for _ in range(5):
            script.wait(15)
    script.wait(1000)
    replayed = QueueFold(script.fold.config)
    replayed.arrive(0, 6, sent_ms=1_000_000)
    for op in ops:
        replayed.apply(op)
    replayed.advance(script.now)
    assert snapshot(replayed, NAME) == snapshot(script.fold, NAME)


def test_ten_million_waiting_messages_cost_kilobytes() -> None:
    tracemalloc.start()
    try:
        fold = QueueFold()
        for start in range(0, 10_000_000, 1000):
            fold.arrive(start, 1000, sent_ms=start)
        used = tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()
    data = snapshot(fold, NAME)
    print(f"ten million waiting: {used} bytes of Python, a snapshot of {len(data)} bytes")
    assert used < WAITING_BYTES_MAX
    assert len(data) < 1000
    # The sets' own memory is not Python's: what they would be written as is a measure of it.
    assert len(fold.live.serialize()) < WAITING_BYTES_MAX


def test_a_million_leases_cost_at_most_two_hundred_bytes_each() -> None:
    count = 1_000_000
    fold = QueueFold()
    fold.arrive(0, count, sent_ms=0)
    for moment_ms in range(count // 100):
        fold.lease(100, 30_000_000, upto=count, now=Instant(moment_ms, 1_700_000_000_000 + moment_ms))
    assert fold.leased_count == count
    values, agenda = fold.leases.values, fold.leases._agenda
    # As if each had been taken alone, and so had a number of its own.
    used = sys.getsizeof(values) + sum(map(allocated, values)) + sum(map(allocated, values.values()))
    used += sys.getsizeof(agenda._heap) + sum(map(allocated, agenda._heap))
    used += sum(sys.getsizeof(column) for line in agenda._lines for stretch in line.stretches for column in stretch)
    print(f"a million leases: {used / count:.0f} bytes each")
    assert used / count <= LEASE_BYTES_MAX - RESERVE_BYTES
    for elsewhere in (fold.attempts, fold.rests.values, fold.lives.values, fold.dying_reasons):
        assert not elsewhere


def test_a_snapshot_is_made_in_pieces_and_takes_little_beside_what_was_taken_down() -> None:
    script = Script()
    script.send(count=200_000)
    for _ in range(2000):
        script.receive(100)
    encode = freeze(script.fold, NAME)
    tracemalloc.start()
    try:
        largest = max(len(data) for _, data in encode())
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    print(f"200,000 leases: pieces of {largest} bytes at most, {peak} beside them")
    assert largest < 128 * 1024
    assert peak < 1024 * 1024


def test_leases_that_were_taken_together_share_what_is_kept_of_them_after_a_restart_too() -> None:
    script = Script()
    script.send(count=10_000)
    for _ in range(10):
        script.receive(1000)
        script.wait(1)
    script.restart()
    assert len({id(value) for value in script.fold.leases.values.values()}) == 10


def allocated(number: int) -> int:
    """What an integer takes of the heap, whose blocks are of 16 bytes."""
    return -(-sys.getsizeof(number) // 16) * 16


def test_leases_that_come_and_go_leave_nothing_behind() -> None:
    script = Script()
    script.send(count=50_000)
    for _ in range(5000):
        handout = script.fold.lease(10, 30_000, upto=50_000, now=script.now)
        assert handout is not None
        script.fold.acknowledge(handout.op.offsets, now=script.now)
    assert script.fold.leases._agenda.count <= 1024


def test_a_waiting_message_of_an_ordered_queue_costs_a_few_bytes() -> None:
    script = Script(QueueConfig(ordered=True))
    script.send_keys("a" * 10)
    tracemalloc.start()
    try:
        for _ in range(20):
            script.send_keys("a" * 1000)
        used = tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()
    print(f"waiting behind a key: {used / 20_000:.0f} bytes each")
    assert used / 20_000 < 16


@pytest.mark.parametrize("kind", ["plain", "ordered", "fair"])
def test_a_snapshot_is_of_the_moment_at_which_it_was_taken_however_late_it_is_encoded(kind: str) -> None:
    config = QueueConfig(history_ms=1000, backoff=Backoff(), max_deliveries=2, delay_ms=10, ttl_ms=90_000)
    script = Script(msgspec.structs.replace(config, ordered=kind == "ordered", fair=kind == "fair"))
    wishes = [
        Properties(key=b"%d" % (at % 3), priority=at % 10, deduplication_id=b"%d" % at, move_id=b"m%d" % at)
        for at in range(120)
    ]
    script.send(*wishes)
    script.wait(100)
    script.release(*script.receive(3), delay_ms=500)
    script.receive(4)
    before, encode = snapshot(script.fold, NAME), freeze(script.fold, NAME)
    script.acknowledge(*script.fold.leases.values)
    script.wait(31_000)
    script.send(*(wish._replace(deduplication_id=b"other", move_id=b"other") for wish in wishes))
    script.fold.move_reader("mirror", 3, now=script.now)
    script.fold.purge(115, now=script.now)
    script.receive(5)
    script.wait(100_000)
    assert joined(encode()) == before != snapshot(script.fold, NAME)
