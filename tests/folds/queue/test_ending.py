"""How messages end: acknowledged, dead-lettered, expired, dropped, purged. Each is counted once."""

from itertools import islice

import msgspec
import pytest
from tests.folds.queue.script import Script

from headrace.folds.queue.arrival import Properties
from headrace.folds.queue.fold import EXPIRED_MAX
from headrace.folds.queue.instant import Instant
from headrace.folds.queue.invariant import check_invariants
from headrace.folds.queue.view import OVERDUE_REASON, facts
from headrace.model.errors import StaleReceiptError
from headrace.model.queue import Backoff, QueueConfig


def test_an_acknowledged_message_is_never_handed_out_again() -> None:
    script = Script()
    script.send(count=2)
    script.receive(lease_ms=10)
    script.acknowledge(0, 0)
    script.wait(1000)
    assert script.receive() == [1]
    assert script.fold.counts.acknowledged == 1
    assert script.fold.floor == 1


def test_a_message_whose_attempts_are_used_up_waits_to_be_dead_lettered() -> None:
    script = Script(QueueConfig(max_deliveries=2))
    script.send(count=1)
    script.receive(lease_ms=10)
    script.wait(10)
    script.receive(lease_ms=10)
    assert script.fold.dying(10) == []
    script.wait(10)
    assert script.receive() == []
    (dying,) = script.fold.dying(10)
    assert (dying.offset, dying.reason, dying.history) == (0, "", (2, 1_000_000, 1_000_010))
    script.fold.dead_letter([0], "used up", now=script.now)
    assert script.fold.dying(10) == []
    assert script.fold.counts.dead_lettered == 1
    assert not script.fold.is_live(0)


def test_a_release_of_the_last_attempt_is_its_end_too_whatever_delay_was_asked_for() -> None:
    script = Script(QueueConfig(max_deliveries=1))
    script.send(count=1)
    script.receive()
    script.release(0, delay_ms=500)
    assert script.states([0]) == ["dying"]


@pytest.mark.parametrize("shelf", [QueueConfig(), QueueConfig(ordered=True), QueueConfig(fair=True)])
def test_what_had_as_many_deliveries_as_a_lowered_limit_allows_gets_none_more(shelf: QueueConfig) -> None:
    script = Script(msgspec.structs.replace(shelf, max_deliveries=5))
    script.send_keys("abcdef")
    script.receive(6)
    script.release(0, 1, 2, 3, delay_ms=0)
    script.give_back(4)
    assert sorted(script.receive(5)) == [0, 1, 2, 3, 4]
    script.release(0, 3, delay_ms=0)
    script.release(1, delay_ms=500)
    lowered = msgspec.structs.replace(shelf, max_deliveries=2)
    script.fold.configure(lowered, now=script.now)
    check_invariants(script.fold)
    assert script.states(range(6)) == ["dying", "dying", "leased", "dying", "leased", "leased"]
    script.restart()
    assert [dying.offset for dying in script.fold.dying(10)] == [0, 1, 3]
    script.release(2, 4, 5, delay_ms=0)
    assert script.states([2, 4, 5]) == ["dying", "visible", "visible"]
    script.wait(1000)
    assert sorted(script.receive(6)) == [4, 5]


def test_a_lease_that_is_given_back_unbegun_after_the_limit_was_lowered_is_handed_out_no_more() -> None:
    script = Script(QueueConfig(max_deliveries=5))
    script.send(count=1)
    for _ in range(3):
        script.receive()
        script.release(0, delay_ms=0)
    script.receive()
    script.fold.configure(QueueConfig(max_deliveries=2), now=script.now)
    script.give_back(0)
    assert script.states([0]) == ["dying"]
    assert script.attempt(0) == 3


def test_what_nobody_began_with_is_no_attempt_however_often_it_is_given_back() -> None:
    script = Script(QueueConfig(max_deliveries=2, backoff=Backoff(first_ms=50)))
    script.send(count=1)
    for _ in range(5):
        assert script.receive() == [0]
        script.give_back(0)
        script.restart()
    assert script.receive() == [0]
    assert script.attempt(0) == 1
    script.release(0)
    script.wait(50)
    assert script.receive() == [0]
    assert script.attempt(0) == 2
    script.give_back(0)
    assert script.receive() == [0]
    script.release(0)
    (dying,) = script.fold.dying(10)
    assert dying.history.attempts == 2


def test_a_receipt_of_a_lease_that_was_given_back_unbegun_is_no_good_for_the_next() -> None:
    script = Script()
    script.send(count=1)
    (first,) = script.lease()
    script.give_back(0)
    (second,) = script.lease()
    assert first.attempt == second.attempt == 1
    with pytest.raises(StaleReceiptError):
        script.fold.check(0, first.number, now=script.now)
    script.fold.check(0, second.number, now=script.now)


def test_a_message_whose_life_ends_while_it_is_held_unbegun_is_not_handed_out_again() -> None:
    script = Script()
    script.send(Properties(expires_ms=script.now.wall_ms + 10))
    assert script.receive() == [0]
    script.wait(10)
    script.give_back(0)
    assert script.receive() == []
    assert script.fold.expired(10) == [0]


def test_without_a_limit_a_message_is_tried_for_ever() -> None:
    script = Script(QueueConfig(max_deliveries=None))
    script.send(count=1)
    for _ in range(50):
        assert script.receive(lease_ms=0) == [0]
    assert script.attempt(0) == 50


def test_a_rejected_message_dies_with_its_reason_and_a_restart_remembers_it() -> None:
    script = Script()
    script.send(count=1)
    script.receive()
    script.fold.reject(0, "no such customer", now=script.now)
    script.restart()
    assert [dying.reason for dying in script.fold.dying(10)] == ["no such customer"]
    assert script.receive() == []


def test_a_message_that_is_rejected_without_a_reason_does_not_die_of_its_attempts() -> None:
    script = Script()
    script.send(count=1)
    script.receive()
    script.fold.reject(0, "", now=script.now)
    script.restart()
    assert [dying.reason for dying in script.fold.dying(10)] == ["rejected"]


def test_attempts_survive_a_restart() -> None:
    script = Script(QueueConfig(max_deliveries=3))
    script.send(count=1)
    for _ in range(2):
        script.receive(lease_ms=10)
        script.wait(10)
        script.restart()
    assert script.attempt(0) == 2
    script.receive(lease_ms=10)
    script.restart()
    script.wait(10)
    assert script.states([0]) == ["dying"]


def test_a_message_whose_time_to_live_is_over_is_not_handed_out_and_waits_to_be_counted() -> None:
    script = Script()
    script.send(Properties(expires_ms=1_000_050), Properties())
    script.wait(49)
    assert script.fold.expired(10) == []
    assert script.fold.next_event().wall_ms == 1_000_050
    script.wait(1)
    assert script.receive() == [1]
    assert script.fold.expired(10) == [0]
    found = facts(script.fold, 0)
    assert found is not None
    assert found.reason == OVERDUE_REASON
    script.fold.expire([0], now=script.now)
    assert script.fold.counts.expired == 1
    assert script.fold.expired(10) == []


def test_whoever_holds_a_message_when_its_time_to_live_ends_may_finish() -> None:
    script = Script()
    script.send(*[Properties(expires_ms=1_000_050)] * 2)
    script.receive(lease_ms=100)
    script.wait(60)
    assert script.fold.expired(10) == []
    script.acknowledge(0)
    script.wait(40)
    assert script.fold.expired(10) == [1]
    assert script.receive() == []


def test_a_delayed_message_may_expire_before_it_is_due() -> None:
    script = Script()
    script.send(Properties(due_ms=1_000_100, expires_ms=1_000_050))
    script.wait(200)
    assert script.receive() == []
    assert script.fold.expired(10) == [0]
    assert script.fold.delayed_count == 0


def test_the_queue_s_time_to_live_is_for_messages_that_say_nothing() -> None:
    script = Script(QueueConfig(ttl_ms=100))
    script.send(count=2)
    script.send(Properties(expires_ms=1_000_500), Properties())
    script.wait(100)
    assert script.fold.expired(10) == [0, 1, 3]
    assert script.receive() == [2]


def test_an_expired_message_may_be_dead_lettered_instead() -> None:
    script = Script(QueueConfig(ttl_ms=100))
    script.send(count=1)
    script.wait(100)
    script.fold.dead_letter(script.fold.expired(1), OVERDUE_REASON, now=script.now)
    assert script.fold.counts.dead_lettered == 1
    assert script.fold.expired(1) == []


def test_purge_drops_everything_up_to_now_in_any_state() -> None:
    script = Script(QueueConfig(max_deliveries=1))
    script.send(Properties(due_ms=2_000_000, priority=3), Properties(), Properties(), Properties(expires_ms=1_000_020))
    assert script.receive(1, lease_ms=10) == [1]
    script.wait(10)
    assert script.receive(1) == [2]
    script.wait(10)
    assert script.states(range(4)) == ["delayed", "dying", "leased", "dying"]
    script.send(count=2)
    script.fold.purge(4, now=script.now)
    assert script.states(range(6)) == [None] * 4 + ["visible"] * 2
    assert script.fold.counts.purged == 4
    assert script.fold.next_event() == (None, None)
    assert script.receive() == [4, 5]


def test_what_was_purged_may_be_sent_again_and_what_was_handled_may_not() -> None:
    script = Script(QueueConfig())
    handled, purged = Properties(deduplication_id=b"handled"), Properties(deduplication_id=b"purged")
    script.send(handled, purged)
    script.fold.acknowledge(script.receive(1), now=script.now)
    script.fold.purge(script.fold.end_offset, now=script.now)
    script.send(handled, purged)
    assert script.states(range(4)) == [None, None, None, "visible"]


def test_retention_does_not_drop_what_is_not_due_yet() -> None:
    script = Script(QueueConfig(retention_ms=1_000))
    script.send(Properties(), Properties(due_ms=script.now.wall_ms + 5_000), Properties())
    script.wait(1_001)
    assert script.expire_old(3) == 2
    assert script.expire_old(3) == 0
    script.restart()
    script.wait(3_999)
    assert script.receive(lease_ms=0) == [1]
    assert script.expire_old(3) == 0


def test_retention_counts_from_the_end_of_a_long_delay() -> None:
    script = Script(QueueConfig(retention_ms=1_000))
    script.send(Properties(due_ms=script.now.wall_ms + 5_000))
    script.wait(6_000 - 1)
    assert script.expire_old(1) == 0
    script.wait(1)
    assert script.expire_old(1) == 1
    assert script.fold.counts.expired == 1


def test_retention_ends_where_others_with_a_long_delay_are_done_already() -> None:
    script = Script(QueueConfig(retention_ms=1_000))
    script.send(*(Properties(due_ms=script.now.wall_ms + due_ms) for due_ms in (5_000, 5_001, 5_002)))
    script.wait(5_002)
    assert script.receive() == [0, 1, 2]
    script.acknowledge(1, 2)
    script.wait(1_000)
    assert script.expire_old(3) == 1
    assert script.fold.counts.expired == 1


def test_retention_writes_nothing_where_what_is_old_is_not_below_its_offset() -> None:
    script = Script(QueueConfig(retention_ms=1_000))
    script.send(count=1)
    script.acknowledge(0)
    script.send(Properties(due_ms=script.now.wall_ms + 5_000))
    script.wait(10_000)
    assert script.fold.expire_old(1, now=script.now) is None
    assert script.expire_old(2) == 1


@pytest.mark.timeout(20)  # it went on for ever
def test_a_replay_comes_to_an_end_where_what_was_delayed_for_long_is_done_before_retention_looks() -> None:
    script = Script(QueueConfig(retention_ms=1_000))
    script.send(Properties(due_ms=script.now.wall_ms + 5_000))
    script.send(count=1)
    acked = script.fold.acknowledge([0], now=script.now)
    script.wait(10_000)
    expired = script.fold.expire_old(2, now=script.now)
    assert expired is not None
    replayed = Script(script.fold.config)
    replayed.send(Properties(due_ms=replayed.now.wall_ms + 5_000))
    replayed.send(count=1)
    replayed.fold.apply(acked)
    replayed.fold.apply(expired)
    assert (replayed.fold.counts.acknowledged, replayed.fold.counts.expired) == (1, 1)


def test_retention_does_not_drop_what_was_given_back_for_later() -> None:
    script = Script(QueueConfig(retention_ms=1_000))
    script.send(count=1)
    script.receive()
    script.release(0, delay_ms=9_000)
    script.wait(5_000)
    assert script.expire_old(1) == 0
    script.wait(4_500)
    assert script.expire_old(1) == 0
    script.wait(500)
    assert script.expire_old(1) == 1


def test_retention_drops_from_between_what_stays_in_steps() -> None:
    script = Script(QueueConfig(retention_ms=1_000))
    script.send(Properties(due_ms=script.now.wall_ms + 5_000))
    script.send(count=EXPIRED_MAX + 10)
    script.wait(1_001)
    assert script.expire_old(EXPIRED_MAX + 11) == EXPIRED_MAX
    assert script.expire_old(EXPIRED_MAX + 11) == 10
    assert script.fold.floor == 0


@pytest.mark.parametrize("config", [QueueConfig(), QueueConfig(ordered=True), QueueConfig(fair=True)])
def test_retention_of_a_few_messages_does_not_go_through_all_that_are_held(config: QueueConfig) -> None:
    script = Script(msgspec.structs.replace(config, retention_ms=1000))
    script.send(*(Properties(key=b"%d" % (number % 2)) for number in range(20)))
    script.receive(20, lease_ms=60_000)
    held = script.fold.leases.values
    script.wait(2000)
    assert script.expire_old(7) == 7
    assert sorted(script.fold.leases.values) == list(range(7, 20))
    assert script.fold.leases.values is held, "all of it was made anew"
    script.wait(60_000)
    assert sorted(script.receive(20)) == list(range(7, 20))


def test_retention_and_a_raised_log_start_are_counted_as_expired() -> None:
    script = Script()
    script.send(count=6)
    script.receive(1)
    script.fold.expire_below(2, now=script.now)
    assert script.fold.counts.expired == 2
    assert script.fold.raise_start(4) == 2
    assert script.fold.raise_start(4) == 0
    assert script.fold.counts.expired == 4
    assert script.fold.floor == 4
    assert script.receive() == [4, 5]


def test_a_full_queue_drops_its_oldest_which_nobody_holds() -> None:
    script = Script()
    script.send(count=4)
    script.receive(1)
    oldest = list(islice(script.fold.free_offsets(), 2))
    assert oldest == [1, 2]
    script.fold.drop(oldest, now=script.now)
    assert script.fold.counts.dropped == 2
    assert script.receive() == [3]


@pytest.mark.parametrize("config", [QueueConfig(), QueueConfig(ordered=True), QueueConfig(fair=True)])
def test_what_a_full_queue_drops_is_found_without_a_look_at_each_message_that_is_held(config: QueueConfig) -> None:
    class Counted(dict[int, int]):
        look_count = 0

        def __contains__(self, offset: object) -> bool:
            self.look_count += 1
            return super().__contains__(offset)

    script = Script(config)
    script.send(*(Properties(key=b"%d" % number) for number in range(1000)))
    assert len(script.receive(1000)) == 1000
    script.send(Properties(key=b"0"), Properties(priority=9), Properties(due_ms=2_000_000), Properties(key=b"a"))
    held = script.fold.leases.values = Counted(script.fold.leases.values)
    assert list(script.fold.free_offsets()) == [1000, 1001, 1002, 1003]
    assert held.look_count < 10


def test_moved_messages_are_counted_with_the_dead_letters() -> None:
    script = Script()
    script.send(count=2)
    script.fold.move([0], now=script.now)
    assert script.fold.counts.dead_lettered == 1
    assert script.receive() == [1]


def test_the_log_cleaner_can_ask_what_is_live() -> None:
    script = Script()
    script.send(count=10)
    script.acknowledge(*script.receive(5))
    script.fold.reach(20)
    assert (script.fold.floor, script.fold.end_offset) == (5, 20)
    assert script.fold.live_in(3, 8) == 3
    assert list(script.fold.live_offsets(3, 8)) == [5, 6, 7]
    script.acknowledge(*script.receive(5))
    assert script.fold.floor == 20


def test_named_readers_are_remembered_and_removed() -> None:
    script = Script()
    script.fold.move_reader("spark", 17, now=script.now)
    script.fold.move_reader("mirror", 3, now=script.now)
    script.fold.move_reader("mirror", 4, now=script.now)
    script.restart()
    assert script.fold.readers == {"spark": 17, "mirror": 4}
    script.fold.remove_reader("spark", now=script.now)
    script.fold.remove_reader("nobody", now=script.now)
    assert script.fold.readers == {"mirror": 4}


def test_what_is_done_is_kept_for_the_history_from_then_on_and_little_longer_whatever_comes_after_it() -> None:
    script = Script(QueueConfig(history_ms=8000))
    script.send(count=5)
    done_ms = {}
    for offset in range(5):
        script.acknowledge(*script.receive(1))
        done_ms[offset] = script.now.wall_ms
        script.wait(2500)
        script.restart()
    for _ in range(40):
        script.fold.tick(script.now)
        kept = script.fold.kept_for_history(script.now)
        for offset, at_ms in done_ms.items():
            is_kept = kept is not None and (offset >= kept.start or offset in kept.offsets)
            age_ms = script.now.wall_ms - at_ms
            assert is_kept or age_ms >= 8000, f"{offset} is gone after {age_ms} ms"
            assert not is_kept or age_ms < 9000, f"{offset} is there after {age_ms} ms"
        script.wait(300)


@pytest.mark.parametrize("moments", [(60, 100), (100,)])
def test_a_lease_and_a_life_that_end_come_to_the_same_one_by_one_and_at_once(moments: tuple[int, ...]) -> None:
    """A replay has both behind it at once, and does the lease first, which puts the message off for long."""
    script = Script(QueueConfig(backoff=Backoff(first_ms=50, last_ms=120), retention_ms=1))
    sent_ms = script.now.wall_ms
    script.send(Properties(expires_ms=sent_ms + 60))
    script.receive(1, lease_ms=100)
    for moment_ms in moments:
        script.now = Instant(moment_ms, sent_ms + moment_ms)
        script.fold.advance(script.now)
    assert script.fold.expired(10) == [0]
    assert not script.fold.late, "retention spares it no more"
    check_invariants(script.fold)
