"""What comes back goes behind what was not tried since, and a key that was served behind the other keys."""

import msgspec
import pytest
from tests.folds.queue.script import NAME, Script

from headrace.folds.queue.arrival import Properties
from headrace.folds.queue.image import restore, snapshot
from headrace.folds.queue.rotation import Marks
from headrace.folds.snapshot import FoldState, decode_snapshot, encode_snapshot
from headrace.model.queue import QueueConfig

ORDERED = QueueConfig(ordered=True, max_deliveries=None)
PLAIN = QueueConfig(max_deliveries=None)


def tried(script: Script, rounds: int, *, by: str = "release") -> list[int]:
    """Who is handed out, one at a time, if every one comes back."""
    found = []
    for _ in range(rounds):
        [offset] = script.receive(1, lease_ms=0 if by == "expiry" else 30_000)
        found.append(offset)
        if by == "release":
            script.release(offset)
        script.wait(0 if by == "release" else 1)
    return found


@pytest.mark.parametrize("by", ["release", "expiry"])
def test_messages_that_come_back_take_turns(by: str) -> None:
    script = Script(PLAIN)
    script.send(count=3)
    assert tried(script, 12, by=by) == [0, 1, 2] * 4


@pytest.mark.parametrize("by", ["release", "expiry"])
def test_keys_of_an_ordered_queue_take_turns_and_each_keeps_its_order(by: str) -> None:
    script = Script(ORDERED)
    script.send_keys("aaabbc")
    assert tried(script, 12, by=by) == [0, 3, 5] * 4


def test_a_key_whose_message_was_acknowledged_goes_behind_the_others() -> None:
    script = Script(ORDERED)
    script.send_keys("aaabbc")
    found = []
    for _ in range(6):
        [offset] = script.receive(1)
        found.append(offset)
        script.acknowledge(offset)
    assert found == [0, 3, 5, 1, 4, 2]


def test_a_key_whose_message_was_handed_out_at_most_once_goes_behind_the_others() -> None:
    script = Script(ORDERED)
    script.send_keys("aabb")
    assert [script.take(1) for _ in range(4)] == [[0], [2], [1], [3]]


def test_what_comes_back_goes_behind_what_was_there_and_before_what_came_later() -> None:
    script = Script(PLAIN)
    script.send(count=3)
    assert script.receive(1) == [0]
    script.send(count=2)
    script.release(0)
    assert script.receive(10) == [1, 2, 0, 3, 4]


def test_a_key_that_was_served_goes_before_the_keys_that_came_later() -> None:
    script = Script(ORDERED)
    script.send_keys("aab")
    assert script.receive(1) == [0]
    script.wait(1)
    script.send_keys("c")
    script.acknowledge(0)
    assert script.receive(1) == [2]
    assert script.receive(1) == [1]
    assert script.receive(1) == [3]


def test_a_message_that_always_fails_is_tried_until_its_attempts_are_used_up_beside_a_steady_stream() -> None:
    script = Script(QueueConfig(max_deliveries=4))
    script.send(count=3)
    rounds = 0
    while not script.fold.dying(1):
        rounds += 1
        assert rounds < 100, "it is starved by what comes later"
        script.send(count=1)
        [offset] = script.receive(1)
        if offset == 0:
            script.release(0)
        else:
            script.acknowledge(offset)
        script.wait(1)
    assert (script.fold.dying(1)[0].offset, rounds) == (0, 16)


def test_what_was_given_back_unbegun_keeps_its_place() -> None:
    script = Script(PLAIN)
    script.send(count=3)
    assert script.receive(2) == [0, 1]
    script.give_back(0, 1)
    assert script.receive(1) == [0]


def test_priority_goes_before_turns() -> None:
    script = Script(PLAIN)
    script.send(Properties(priority=9), Properties(priority=5), Properties(priority=9))
    assert tried(script, 5) == [0, 2, 0, 2, 0]


def test_the_messages_of_one_key_of_a_fair_queue_take_turns_as_well() -> None:
    script = Script(QueueConfig(fair=True, max_deliveries=None))
    script.send_keys("aab")
    assert tried(script, 6) == [0, 2, 1, 2, 0, 2]


def test_messages_without_a_key_take_turns_with_the_keys_of_an_ordered_queue() -> None:
    script = Script(ORDERED)
    script.send(Properties(), Properties(key=b"a"), Properties())
    assert tried(script, 9) == [0, 1, 2] * 3


@pytest.mark.parametrize("config", [PLAIN, ORDERED, QueueConfig(fair=True, max_deliveries=None)])
@pytest.mark.parametrize("rounds", [1, 4, 7])
def test_a_restart_keeps_the_turns(config: QueueConfig, rounds: int) -> None:
    script, other = Script(config), Script(config)
    for one in (script, other):
        one.send_keys("aabbc")
        tried(one, rounds)
        one.send_keys("ad")
    other.restart()
    assert snapshot(other.fold, NAME) == snapshot(script.fold, NAME)
    assert tried(other, 12) == tried(script, 12)


@pytest.mark.parametrize("config", [PLAIN, ORDERED])
def test_a_snapshot_of_before_there_were_turns_is_read(config: QueueConfig) -> None:
    script = Script(config)
    script.send_keys("abc")
    assert tried(script, 1) == [0]
    state = decode_snapshot(snapshot(script.fold, NAME), fold=NAME, version_max=5, file="")
    fields = msgspec.msgpack.decode(state.payload)
    *fields, _ = fields
    fields[18] = [(key, 0, offsets) for key, _, offsets in fields[18]]
    old = encode_snapshot(FoldState(NAME, 4, state.end_offset, msgspec.msgpack.encode(fields)))
    script.fold = restore(old, name=NAME)
    expected = [0, 1, 2, 0] if config.ordered else [1, 2, 0, 1]
    assert tried(script, 4) == expected
    script.restart()


def test_marks_are_few_however_long_messages_were_handed_out() -> None:
    marks = Marks()
    for moment_ms in range(100_000):
        marks.note(moment_ms, 10 * moment_ms)
    assert len(marks.dump()) <= 1024
    ends = [marks.end_at(moment_ms) for moment_ms in range(100_000)]
    assert ends == sorted(ends), "the order of what was handed out stays"
    assert all(end >= 10 * moment_ms for moment_ms, end in enumerate(ends)), "none comes back before its turn"
    assert ends[-500:] == [10 * moment_ms for moment_ms in range(99_500, 100_000)]
