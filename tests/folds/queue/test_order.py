"""Ordered queues: the messages of a key one after the other, the keys side by side."""

from tests.folds.queue.script import Script

from headrace.folds.queue.arrival import Properties
from headrace.folds.queue.view import State, iterate, key_facts
from headrace.model.queue import Backoff, QueueConfig

ORDERED = QueueConfig(ordered=True)


def test_no_message_is_handed_out_while_an_earlier_one_of_its_key_is_leased() -> None:
    script = Script(ORDERED)
    script.send_keys("aab")
    assert script.receive(1) == [0]
    assert script.receive(10) == [2]
    assert script.receive(10) == []
    script.acknowledge(0)
    assert script.receive(10) == [1]


def test_one_receive_may_hold_several_messages_of_a_key_in_order_and_mix_keys() -> None:
    script = Script(ORDERED)
    script.send_keys("abaab")
    assert script.receive(4) == [0, 2, 3, 1]
    assert script.receive(4) == []
    script.acknowledge(0, 2, 3)
    assert script.receive(4) == []
    script.acknowledge(1)
    assert script.receive(4) == [4]


def test_messages_that_come_back_are_handed_out_in_order_again() -> None:
    script = Script(ORDERED)
    script.send_keys("aaaa")
    assert script.receive(3) == [0, 1, 2]
    script.release(1)
    assert script.receive() == []
    script.release(0)
    # 2 is still held: what is before it may go out, what is behind it may not.
    assert script.receive() == [0, 1]
    script.release(2, 1, 0)
    assert script.receive() == [0, 1, 2, 3]


def test_an_acknowledgement_in_the_middle_does_not_let_a_later_message_pass() -> None:
    script = Script(ORDERED)
    script.send_keys("aaa")
    assert script.receive(2) == [0, 1]
    script.acknowledge(1)
    assert script.receive() == []
    script.release(0)
    assert script.receive() == [0, 2]


def test_a_delayed_message_blocks_its_key_and_no_other() -> None:
    script = Script(ORDERED)
    script.send(Properties(key=b"a", due_ms=1_000_050), Properties(key=b"a"), Properties(key=b"b"))
    assert script.receive() == [2]
    script.wait(50)
    assert script.receive() == [0, 1]


def test_a_delayed_message_in_the_middle_is_not_passed() -> None:
    script = Script(ORDERED)
    script.send(Properties(key=b"a"), Properties(key=b"a", due_ms=1_000_050), Properties(key=b"a"))
    assert script.receive() == [0]
    script.acknowledge(0)
    assert script.receive() == []
    script.wait(50)
    assert script.receive() == [1, 2]


def test_back_off_blocks_the_key_until_it_is_over() -> None:
    script = Script(QueueConfig(ordered=True, backoff=Backoff(first_ms=100, last_ms=100)))
    script.send_keys("aa")
    script.receive(1, lease_ms=10)
    script.wait(109)
    assert script.receive() == []
    script.wait(1)
    assert script.receive() == [0, 1]


def test_a_dying_front_blocks_its_key_until_it_is_dead_lettered() -> None:
    script = Script(QueueConfig(ordered=True, max_deliveries=1))
    script.send_keys("aa")
    assert script.receive(1, lease_ms=10) == [0]
    script.wait(10)
    assert script.states([0, 1]) == ["dying", "blocked"]
    assert script.receive() == []
    script.fold.dead_letter([0], "used up", now=script.now)
    assert script.receive() == [1]


def test_an_expired_front_unlocks_its_key() -> None:
    script = Script(ORDERED)
    script.send(Properties(key=b"a", expires_ms=1_000_010), Properties(key=b"a"))
    script.wait(10)
    assert script.receive() == []
    script.fold.expire(script.fold.expired(10), now=script.now)
    assert script.receive() == [1]


def test_a_message_that_expires_while_it_waits_is_passed_over() -> None:
    script = Script(ORDERED)
    script.send(Properties(key=b"a"), Properties(key=b"a", expires_ms=1_000_010), Properties(key=b"a"))
    assert script.receive(1) == [0]
    script.wait(10)
    script.fold.expire(script.fold.expired(10), now=script.now)
    script.acknowledge(0)
    assert script.receive() == [2]


def test_messages_without_a_key_have_no_order() -> None:
    script = Script(ORDERED)
    script.send(count=3)
    assert script.receive(1) == [0]
    assert script.receive(1) == [1]


def test_the_front_s_priority_is_the_one_that_counts() -> None:
    script = Script(ORDERED)
    script.send(Properties(key=b"a"), Properties(key=b"a", priority=9), Properties(key=b"b", priority=7))
    assert script.receive() == [2, 0, 1]


def test_order_holds_over_a_restart() -> None:
    script = Script(ORDERED)
    script.send_keys("aabb")
    assert script.receive(1) == [0]
    script.restart()
    assert script.receive() == [2, 3]
    script.release(0)
    script.restart()
    assert script.receive() == [0, 1]


def test_a_purge_keeps_what_came_after_it_in_order() -> None:
    script = Script(ORDERED)
    script.send_keys("aaab")
    script.receive(1)
    script.fold.purge(2, now=script.now)
    assert script.receive(1) == [3], "the first key was served, and goes behind the other one"
    assert script.receive() == [2]


def test_a_key_with_nothing_live_costs_nothing() -> None:
    script = Script(ORDERED)
    script.send_keys("abc")
    script.acknowledge(*script.receive())
    assert list(script.fold.shelf.lanes()) == []
    script.send_keys("aaa")
    script.fold.purge(script.fold.end_offset, now=script.now)
    assert list(script.fold.shelf.lanes()) == []


def test_a_blocked_key_can_be_asked_why() -> None:
    script = Script(ORDERED)
    script.send_keys("aaa")
    script.receive(1, lease_ms=500)
    blocked = key_facts(script.fold, b"a")
    assert blocked is not None
    assert (blocked.front.offset, blocked.front.state, blocked.front.attempts) == (0, State.LEASED, 1)
    assert (blocked.front.since_ms, blocked.front.until_ms) == (1_000_000, 1_000_500)
    assert blocked.waiting_count == 2
    assert key_facts(script.fold, b"b") is None
    assert iterate(script.fold, after=-1, state=State.BLOCKED, count_max=10) == [1, 2]


def test_a_queue_that_is_ordered_no_longer_lets_everything_go_and_back_again_knows_the_keys() -> None:
    script = Script(ORDERED)
    script.send_keys("aaa")
    script.receive(1)
    script.fold.configure(QueueConfig(fair=True), now=script.now)
    script.fold.configure(ORDERED, now=script.now)
    assert script.receive() == []
    script.fold.configure(QueueConfig(), now=script.now)
    assert script.receive() == [1, 2]
