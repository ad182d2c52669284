"""Leases: who holds a message, until when, and what a receipt is good for."""

import pytest
from tests.folds.queue.script import Script

from headrace.folds.queue.arrival import Properties
from headrace.folds.queue.instant import Instant
from headrace.folds.queue.invariant import check_invariants
from headrace.folds.queue.terms import Terms
from headrace.model.errors import InvalidRequestError, StaleReceiptError, TooManyLeasedError
from headrace.model.queue import LEASE_MS_MAX, Backoff, QueueConfig


def test_messages_are_handed_out_in_order_of_offset_and_once() -> None:
    script = Script()
    script.send(count=5)
    assert script.receive(2) == [0, 1]
    assert script.receive(2) == [2, 3]
    assert script.receive(2) == [4]
    assert script.receive(2) == []


def test_a_higher_priority_goes_first_and_comes_back_to_its_place() -> None:
    script = Script()
    script.send(Properties(), Properties(priority=0), Properties(priority=9), Properties(priority=9))
    assert script.receive(3) == [2, 3, 0]
    script.release(3)
    assert script.receive() == [3, 1]


def test_message_reappears_when_its_lease_expires_and_counts_the_attempt() -> None:
    script = Script()
    script.send(count=2)
    assert script.receive(1, lease_ms=100) == [0]
    script.wait(99)
    assert script.receive(1, lease_ms=100) == [1]
    script.wait(1)
    assert script.receive(1) == [0]
    assert script.attempt(0) == 2
    assert script.fold.history(0).first_ms == 1_000_000
    assert script.fold.history(0).last_ms == 1_000_100


def test_nothing_is_handed_out_above_the_high_watermark() -> None:
    script = Script()
    script.send(count=3)
    script.send(Properties(priority=9))
    assert script.receive(10, upto=2) == [0, 1]
    assert not script.fold.has_visible(2)
    assert script.fold.has_visible(3)
    assert script.receive(10, upto=4) == [3, 2]


def test_a_lease_of_no_length_is_an_attempt_and_over_at_once() -> None:
    script = Script()
    script.send(count=1)
    assert script.receive(lease_ms=0) == [0]
    assert script.receive(lease_ms=0) == [0]
    assert script.attempt(0) == 2


def test_extension_counts_from_the_call() -> None:
    script = Script()
    script.send(count=1)
    script.receive(lease_ms=100)
    script.wait(60)
    script.fold.extend([0], 100, now=script.now)
    script.wait(99)
    assert script.receive() == []
    script.wait(1)
    assert script.receive() == [0]


def test_an_extension_may_also_shorten_a_lease() -> None:
    script = Script()
    script.send(count=1)
    script.receive(lease_ms=10_000)
    script.fold.extend([0], 50, now=script.now)
    assert script.fold.next_event().lease_ms == 50
    script.wait(50)
    assert script.receive() == [0]


def test_an_extension_beyond_twelve_hours_in_total_is_refused_and_changes_nothing() -> None:
    script = Script()
    script.send(count=2)
    script.receive(1, lease_ms=1000)
    script.wait(600)
    assert script.receive(1, lease_ms=1000) == [1]
    with pytest.raises(InvalidRequestError, match="in total"):
        script.fold.extend([1, 0], LEASE_MS_MAX - 599, now=script.now)
    assert script.fold.next_event().lease_ms == 1000
    script.fold.extend([0], LEASE_MS_MAX - 600, now=script.now)
    script.fold.extend([1], LEASE_MS_MAX, now=script.now)


def test_a_released_message_is_visible_at_once_or_after_the_delay_that_was_asked_for() -> None:
    script = Script()
    script.send(count=2)
    script.receive()
    script.release(0)
    script.release(1, delay_ms=70)
    assert script.states([0, 1]) == ["visible", "delayed"]
    assert script.fold.next_event().wall_ms == 1_000_070
    script.wait(70)
    assert script.receive() == [0, 1]


def test_expired_and_released_leases_rest_for_the_back_off_which_doubles() -> None:
    script = Script(QueueConfig(backoff=Backoff(first_ms=100, last_ms=250)))
    script.send(count=2)
    script.receive(lease_ms=10)
    script.release(1)
    script.wait(100)
    assert script.receive(lease_ms=10) == [1]  # released at 0
    script.wait(10)
    assert script.receive(lease_ms=10) == [0]  # expired at 10
    script.wait(1000)
    script.receive(lease_ms=10)
    assert [script.attempt(offset) for offset in (0, 1)] == [3, 3]
    script.wait(10)
    script.wait(249)
    assert script.receive() == []
    script.wait(1)
    assert script.receive() == [0, 1]


def test_a_stale_receipt_is_refused_and_says_what_happened() -> None:
    script = Script()
    script.send(count=1)
    script.receive(lease_ms=100)
    script.fold.check(0, 1, now=script.now)
    script.wait(100)
    with pytest.raises(StaleReceiptError, match="is over"):
        script.fold.check(0, 1, now=script.now)
    script.receive()
    with pytest.raises(StaleReceiptError, match="leased again, lease 2"):
        script.fold.check(0, 1, now=script.now)
    script.fold.check(0, 2, now=script.now)
    script.acknowledge(0)
    with pytest.raises(StaleReceiptError, match="gone"):
        script.fold.check(0, 2, now=script.now)


def test_the_newest_receipt_is_good_for_whoever_may_be_late_until_the_message_is_leased_again() -> None:
    script = Script(QueueConfig(backoff=Backoff(first_ms=100, last_ms=100)))
    script.send(count=1)
    script.receive(lease_ms=10)
    script.fold.check_newest(0, 1, now=script.now)
    script.wait(10)
    assert script.states([0]) == ["delayed"]
    script.fold.check_newest(0, 1, now=script.now)
    script.wait(100)
    assert script.states([0]) == ["visible"]
    script.fold.check_newest(0, 1, now=script.now)
    script.receive(lease_ms=0)
    with pytest.raises(StaleReceiptError, match="is over"):
        script.fold.check_newest(0, 1, now=script.now)
    script.fold.check_newest(0, 2, now=script.now)
    script.acknowledge(0)
    assert script.fold.counts.acknowledged == 1
    script.wait(1000)
    assert script.receive() == []
    with pytest.raises(StaleReceiptError, match="gone"):
        script.fold.check_newest(0, 2, now=script.now)


def test_a_late_receipt_is_refused_where_the_message_is_on_its_way_out_or_held_in_a_transaction() -> None:
    script = Script(QueueConfig(max_deliveries=1))
    script.send(count=3)
    script.receive(lease_ms=10)
    script.fold.acknowledge_later(7, [0], now=script.now)
    script.fold.reject(1, "no good", now=script.now)
    script.wait(10)
    for offset in range(3):
        with pytest.raises(StaleReceiptError):
            script.fold.check_newest(offset, 1, now=script.now)
    overdue = Script()
    overdue.send(Properties(expires_ms=overdue.now.wall_ms + 20))
    overdue.receive(lease_ms=10)
    overdue.wait(20)
    with pytest.raises(StaleReceiptError):
        overdue.fold.check_newest(0, 1, now=overdue.now)


def test_a_receipt_is_refused_at_its_lease_end_even_if_nobody_let_time_pass_before() -> None:
    script = Script()
    script.send(count=1)
    script.receive(lease_ms=100)
    with pytest.raises(StaleReceiptError):
        script.fold.check(0, 1, now=Instant(100, 1_000_000))


def test_no_more_messages_are_leased_than_the_queue_allows() -> None:
    script = Script(QueueConfig(leased_max=3))
    script.send(count=5)
    assert script.receive(10) == [0, 1, 2]
    with pytest.raises(TooManyLeasedError, match="leased_max"):
        script.receive(1)
    script.acknowledge(1)
    assert script.receive(10) == [3]


def test_at_most_once_is_acknowledged_when_it_is_handed_out() -> None:
    script = Script()
    script.send(count=3)
    assert script.take(2) == [0, 1]
    assert script.fold.counts.acknowledged == 2
    assert script.fold.leased_count == 0
    assert script.take(2) == [2]
    assert script.take(2) == []


def test_lease_time_does_not_pass_while_nobody_leads() -> None:
    script = Script()
    script.send(count=1)
    script.receive(lease_ms=100)
    script.wait(40)
    script.restart()
    # A day later by the wall clock; the lease clock goes on where it was.
    script.now = Instant(script.fold.last_lease_ms, script.now.wall_ms + 86_400_000)
    assert script.receive() == []
    script.wait(59)
    assert script.receive() == []
    script.wait(1)
    assert script.receive() == [0]


def test_a_wall_clock_that_jumps_neither_ends_nor_prolongs_a_lease() -> None:
    script = Script()
    script.send(count=1)
    script.receive(lease_ms=100)
    script.now = script.now._replace(wall_ms=script.now.wall_ms + 3_600_000)
    assert script.receive() == []
    script.now = Instant(100, 5)
    assert script.receive() == [0]


def test_the_next_event_is_the_first_end_of_a_lease_that_is_still_held() -> None:
    script = Script()
    script.send(count=3)
    script.receive(1, lease_ms=100)
    script.receive(1, lease_ms=200)
    script.acknowledge(0)
    assert script.fold.next_event() == (200, None)
    script.fold.extend([1], 500, now=script.now)
    assert script.fold.next_event() == (500, None)
    script.acknowledge(1)
    assert script.fold.next_event() == (None, None)


def test_a_lease_that_is_over_is_resumed_while_nobody_has_the_message() -> None:
    script = Script()
    script.send(count=1)
    assert script.receive(lease_ms=1000) == [0]
    script.wait(1500)
    script.fold.check_idle(0, 1, now=script.now)
    script.fold.extend([0], 5000, now=script.now)
    check_invariants(script.fold)
    assert (script.fold.leased_count, script.fold.visible_count) == (1, 0)
    assert script.receive() == []
    script.fold.check(0, 1, now=script.now)
    script.wait(5000)
    (again,) = script.lease()
    assert again.number == 2, "a lease that is resumed is no other attempt"
    with pytest.raises(StaleReceiptError, match="leased again") as refused:
        script.fold.check_idle(0, 1, now=script.now)
    assert not refused.value.is_gone
    script.acknowledge(0)
    with pytest.raises(StaleReceiptError, match="is gone") as refused:
        script.fold.check_idle(0, 2, now=script.now)
    assert refused.value.is_gone


def test_an_older_receipt_is_good_too_while_nobody_has_the_message() -> None:
    script = Script()
    script.send(count=1)
    for _ in range(2):
        assert script.receive(lease_ms=0) == [0]
    script.fold.check_idle(0, 1, now=script.now)
    script.fold.extend([0], 1000, now=script.now)
    script.fold.check(0, 2, now=script.now)


def test_a_message_that_waits_for_its_back_off_is_held_again_or_given_back_at_once() -> None:
    script = Script(QueueConfig(backoff=Backoff(first_ms=10_000, last_ms=10_000)))
    script.send(count=2)
    assert script.receive(lease_ms=100) == [0, 1]
    script.wait(200)
    assert script.fold.delayed_count == 2
    script.fold.extend([0], 500, now=script.now)
    script.release(1, delay_ms=0)
    assert (script.fold.leased_count, script.fold.delayed_count) == (1, 0)
    assert script.receive() == [1]


def test_a_resumed_lease_counts_its_twelve_hours_from_its_receive() -> None:
    script = Script()
    script.send(count=1)
    script.receive(lease_ms=1000)
    script.wait(2000)
    with pytest.raises(InvalidRequestError, match="longer than"):
        script.fold.extend([0], LEASE_MS_MAX - 1999, now=script.now)
    script.fold.extend([0], LEASE_MS_MAX - 2000, now=script.now)
    with pytest.raises(InvalidRequestError, match="longer than"):
        script.fold.extend([0], LEASE_MS_MAX - 1999, now=script.now)


def test_no_lease_is_resumed_in_an_ordered_queue_or_of_a_message_on_its_way_out() -> None:
    ordered, dying = Script(QueueConfig(ordered=True)), Script(QueueConfig(max_deliveries=1))
    for script in (ordered, dying):
        script.send(count=1)
        script.receive(lease_ms=0)
        script.wait(1)
        with pytest.raises(StaleReceiptError):
            script.fold.check_idle(0, 1, now=script.now)


def test_a_resumed_lease_is_of_the_term_in_which_it_was_taken() -> None:
    terms = Terms()
    terms.note(3, Instant(0, 1_000))
    # Ten seconds without a node, which the lease clock did not count.
    terms.note(4, Instant(500, 11_500))
    now = Instant(900, 11_900)
    assert terms.at_lease_ms(terms.lease_ms_of(1_400, now)) == 3
    assert terms.at_lease_ms(terms.lease_ms_of(11_700, now)) == 4
    assert terms.lease_ms_of(11_700, now) == 700
