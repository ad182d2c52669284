"""Fair queues: keys take turns."""

from tests.folds.queue.script import Script

from headrace.folds.queue.arrival import Properties
from headrace.model.queue import QueueConfig

FAIR = QueueConfig(fair=True)


def test_a_noisy_key_does_not_starve_a_quiet_one() -> None:
    script = Script(FAIR)
    script.send_keys("aaaaaaaab")
    assert script.receive(1) == [0]
    assert script.receive(1) == [8]
    assert script.receive(1) == [1]


def test_one_receive_goes_round_the_keys() -> None:
    script = Script(FAIR)
    script.send_keys("aaabbc")
    assert script.receive(10) == [0, 3, 5, 1, 4, 2]


def test_turns_go_on_from_one_receive_to_the_next_and_over_a_restart() -> None:
    script = Script(FAIR)
    script.send_keys("aaabbbccc")
    assert script.receive(2) == [0, 3]
    script.restart()
    assert script.receive(2) == [6, 1]
    assert script.receive(2) == [4, 7]


def test_a_new_key_waits_for_its_turn_behind_those_that_are_there() -> None:
    script = Script(FAIR)
    script.send_keys("aabb")
    assert script.receive(1) == [0]
    script.send_keys("c")
    assert script.receive(3) == [2, 1, 4]


def test_messages_of_one_key_may_be_held_by_several_at_once() -> None:
    script = Script(FAIR)
    script.send_keys("aa")
    assert script.receive(1) == [0]
    assert script.receive(1) == [1]


def test_priority_counts_within_a_key_and_not_between_keys() -> None:
    script = Script(FAIR)
    script.send(Properties(key=b"a"), Properties(key=b"a", priority=9), Properties(key=b"b", priority=0))
    assert script.receive() == [1, 2, 0]


def test_messages_without_a_key_share_a_turn() -> None:
    script = Script(FAIR)
    script.send(count=3)
    script.send_keys("ab")
    assert script.receive() == [0, 3, 4, 1, 2]


def test_priority_counts_among_messages_without_a_key_too() -> None:
    script = Script(FAIR)
    script.send(Properties(priority=0))
    script.send(count=1)
    assert script.receive() == [1, 0]


def test_a_key_of_which_nothing_is_committed_does_not_hold_up_the_others() -> None:
    script = Script(FAIR)
    script.send_keys("aab")
    script.acknowledge(*script.receive(1, upto=1))
    script.send_keys("c")
    assert script.receive(10, upto=3) == [2, 1]


def test_what_is_handed_out_at_most_once_was_a_turn_too() -> None:
    script = Script(FAIR)
    script.send_keys("aaab")
    assert script.take(1) == [0]
    assert script.take(1) == [3]
    assert script.take(10) == [1, 2]


def test_a_key_with_nothing_live_is_forgotten() -> None:
    script = Script(FAIR)
    script.send_keys("ab")
    script.acknowledge(*script.receive())
    assert [image.key for image in script.fold.shelf.lanes()] == [b""]
