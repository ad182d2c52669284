"""Arrivals: delays, defaults of the queue, and messages that were here before."""

import pytest
from tests.folds.queue.script import Script

from headrace.folds.queue.arrival import Properties
from headrace.folds.queue.instant import Instant
from headrace.folds.queue.remembered import RememberedIds
from headrace.folds.queue.state import MOVES_REMEMBERED_MS
from headrace.folds.queue.view import facts
from headrace.model.queue import QueueConfig


def test_a_delayed_message_is_visible_when_it_is_due() -> None:
    script = Script()
    script.send(Properties(due_ms=1_000_100), Properties())
    assert script.receive() == [1]
    assert script.fold.delayed_count == 1
    script.wait(99)
    assert script.receive() == []
    script.wait(1)
    assert script.receive() == [0]


def test_a_delay_passes_while_nobody_leads() -> None:
    script = Script()
    script.send(Properties(due_ms=1_000_100))
    script.restart()
    script.now = Instant(script.fold.last_lease_ms, 1_000_100)
    assert script.receive() == [0]


def test_the_queue_s_delay_is_for_messages_that_say_nothing() -> None:
    script = Script(QueueConfig(delay_ms=100))
    script.send(Properties(due_ms=1_000_000), Properties())
    script.send(count=2)
    assert script.receive() == [0]
    script.restart()
    script.wait(100)
    assert script.receive() == [1, 2, 3]


def test_another_default_delay_is_for_messages_that_come_after_it() -> None:
    script = Script(QueueConfig(delay_ms=100))
    script.send(count=1)
    script.fold.configure(QueueConfig(), now=script.now)
    script.send(count=1)
    assert script.receive() == [1]
    script.wait(100)
    assert script.receive() == [0]


def test_ten_million_messages_under_a_default_delay_are_a_thousand_runs_and_late_by_a_thousandth() -> None:
    delay_ms = 900_000
    script = Script(QueueConfig(delay_ms=delay_ms, ttl_ms=4 * delay_ms))
    for _ in range(2000):
        script.send(count=5_000)
        # An entry lies between any two batches.
        script.fold.reach(script.fold.end_offset + 1)
        script.now = Instant(0, script.now.wall_ms + 450)
    assert len(script.fold.rest_runs.dump()) <= 1001
    assert len(script.fold.life_runs.dump()) <= 1001
    found = facts(script.fold, 5_001)
    assert found is not None
    assert found.until_ms is not None
    assert found.expires_ms is not None
    assert 0 <= found.until_ms - (1_000_450 + delay_ms) < delay_ms // 1000
    script.fold.advance(Instant(0, 1_000_000 + delay_ms - 1))
    assert not script.fold.has_visible(10**9)
    script.fold.advance(Instant(0, script.now.wall_ms + 2 * delay_ms))
    script.fold.catch_up()
    assert script.fold.delayed_count == 0


def test_a_batch_that_arrives_below_what_was_applied_is_a_broken_invariant() -> None:
    script = Script()
    script.send(count=5)
    with pytest.raises(AssertionError, match="arrived after"):
        script.fold.arrive(4, 1, sent_ms=0)


def test_an_id_is_remembered_for_its_window_also_after_the_message_was_acknowledged() -> None:
    script = Script(QueueConfig(deduplication_window_ms=300))
    script.send(Properties(), Properties(deduplication_id=b"x"))
    script.acknowledge(*script.receive())
    script.restart()
    script.wait(299)
    assert script.fold.find_duplicate(b"x", now=script.now) == 1
    assert script.fold.find_duplicate(b"y", now=script.now) is None
    script.wait(1)
    assert script.fold.find_duplicate(b"x", now=script.now) is None


def test_a_duplicate_that_a_producer_wrote_to_the_log_is_never_handed_out() -> None:
    script = Script(QueueConfig(deduplication_window_ms=300))
    own = {0: Properties(deduplication_id=b"x"), 1: Properties(deduplication_id=b"x"), 2: Properties()}
    assert script.fold.arrive(0, 3, sent_ms=1_000_000, properties=own) == [1]
    assert script.fold.counts.sent == 2
    assert script.receive() == [0, 2]
    assert script.fold.arrive(3, 1, sent_ms=1_000_300, properties={0: own[0]}) == []
    assert script.receive() == [3]


def test_ids_are_forgotten_when_an_entry_tells_the_time() -> None:
    script = Script(QueueConfig(deduplication_window_ms=300))
    script.send(Properties(deduplication_id=b"x"))
    assert script.fold.wants_tick
    script.wait(300)
    assert len(script.fold.deduplication) == 1
    script.fold.tick(script.now)
    assert len(script.fold.deduplication) == 0
    assert not script.fold.wants_tick


def test_a_queue_without_a_window_knows_no_duplicates() -> None:
    script = Script(QueueConfig(deduplication_window_ms=0))
    script.send(*[Properties(deduplication_id=b"x")] * 2)
    assert script.receive() == [0, 1]


def test_a_queue_whose_window_was_taken_away_knows_no_duplicate_of_before() -> None:
    script = Script()
    script.send(Properties(deduplication_id=b"x"))
    assert script.fold.find_duplicate(b"x", now=script.now) == 0
    script.fold.configure(QueueConfig(deduplication_window_ms=0), now=script.now)
    assert script.fold.find_duplicate(b"x", now=script.now) is None
    script.send(Properties(deduplication_id=b"x"))
    assert script.receive() == [0, 1]


def test_a_repeated_move_arrives_once_however_long_the_mover_was_away() -> None:
    script = Script()
    script.send(Properties(move_id=b"orders-0-17"))
    script.acknowledge(*script.receive())
    # Nobody led for a week: that is no time of the lease clock.
    script.restart()
    script.now = Instant(script.fold.last_lease_ms, script.now.wall_ms + 7 * 86_400_000)
    script.fold.tick(script.now)
    assert script.fold.find_moved(b"orders-0-17") == 0
    assert script.fold.arrive(1, 1, sent_ms=0, properties={0: Properties(move_id=b"orders-0-17")}) == [1]


def test_a_move_is_forgotten_an_hour_after_the_first_entry_that_could_date_it() -> None:
    script = Script()
    script.wait(5 * MOVES_REMEMBERED_MS)
    script.send(Properties(move_id=b"m"))
    script.wait(5 * MOVES_REMEMBERED_MS)
    assert script.fold.find_moved(b"m") == 0
    script.restart()
    script.fold.tick(script.now)
    script.wait(MOVES_REMEMBERED_MS - 1)
    script.fold.tick(script.now)
    assert script.fold.find_moved(b"m") == 0
    script.wait(1)
    script.fold.tick(script.now)
    assert script.fold.find_moved(b"m") is None


def test_a_moved_message_is_no_duplicate_of_itself() -> None:
    script = Script()
    script.send(Properties(deduplication_id=b"x"))
    script.acknowledge(*script.receive())
    script.send(Properties(deduplication_id=b"x", move_id=b"back-again"))
    assert script.receive() == [1]


def test_as_many_ids_are_remembered_as_memory_is_given_for() -> None:
    ids = RememberedIds(ids_max=2)
    for offset, id_ in enumerate([b"a", b"b", b"a", b"c"]):
        ids.add(id_, offset, 100)
    assert [ids.find(id_, 0) for id_ in (b"a", b"b", b"c")] == [2, None, 3]
