"""More is due at one moment than is done at a time: what is seen meanwhile, and what comes of it."""

from itertools import islice

import pytest
from tests.folds.queue.script import Script

from headrace.folds.queue.arrival import Properties
from headrace.folds.queue.instant import Instant
from headrace.folds.queue.invariant import check_invariants
from headrace.folds.queue.op import Ticked
from headrace.folds.queue.view import facts
from headrace.model.errors import StaleReceiptError
from headrace.model.queue import Backoff, QueueConfig


def stepping(step_count: int, config: QueueConfig | None = None) -> Script:
    script = Script(config)
    script.fold.step_count = step_count
    return script


def leased(count: int, config: QueueConfig | None = None) -> Script:
    """So many leases that end after 100 ms, ten a step."""
    script = stepping(10, config)
    script.send(count=count)
    assert len(script.receive(count, lease_ms=100)) == count
    return script


def test_leases_that_end_together_end_step_by_step_and_all_in_the_end() -> None:
    script = leased(25)
    script.wait(100)
    seen = [script.fold.leased_count]
    while script.fold.is_behind:
        script.wait(0)
        check_invariants(script.fold)
        seen.append(script.fold.leased_count)
    assert seen == [15, 5, 0]
    assert script.fold.visible_count == 25


def test_while_leases_end_a_receive_gets_them_in_order_as_if_all_had_ended() -> None:
    script = leased(100)
    script.wait(100)
    assert [script.receive(30) for _ in range(4)] == [
        list(range(30)),
        list(range(30, 60)),
        list(range(60, 90)),
        list(range(90, 100)),
    ]


def test_a_receipt_is_not_good_beyond_its_end_though_its_lease_is_not_done_with_yet() -> None:
    script = leased(25)
    script.wait(100)
    with pytest.raises(StaleReceiptError, match="is over"):
        script.fold.check(24, 1, now=script.now)


def test_a_transaction_does_not_keep_a_lease_that_is_over_though_it_is_not_done_with_yet() -> None:
    script = leased(25)
    script.wait(100)
    script.fold.acknowledge_later(7, [24], now=script.now)
    assert not script.fold.has_held(7)
    assert script.states([24]) == ["visible"]


def test_a_message_that_is_asked_about_is_shown_as_if_all_was_done() -> None:
    script = leased(25)
    script.wait(100)
    found = facts(script.fold, 24)
    assert found is not None
    assert (found.state.value, found.until_ms, found.attempts) == ("visible", None, 1)
    assert script.fold.is_behind


def test_a_message_whose_life_is_over_is_not_handed_out_though_that_is_not_done_yet() -> None:
    script = stepping(3, QueueConfig(ttl_ms=50))
    script.send(count=20)
    script.send(Properties(expires_ms=script.now.wall_ms + 10_000))
    script.wait(50)
    received: list[int] = []
    for _ in range(20):
        received += script.receive(1)
    assert received == [20]


def test_a_message_that_came_back_before_its_turn_is_not_brought_back_again() -> None:
    """Delayed by its queue, asked about when that is over, received, and put back by its consumer meanwhile."""
    script = stepping(1, QueueConfig(delay_ms=50))
    script.send(*[Properties()] * 4, Properties(priority=9))
    script.wait(50)
    assert script.states([4]) == ["visible"]
    assert script.receive(1) == [4]
    assert script.fold.is_behind
    script.release(4, delay_ms=500)
    script.fold.catch_up()
    assert script.states([4]) == ["delayed"]
    script.wait(499)
    assert script.states([4]) == ["delayed"]
    script.wait(1)
    assert script.states([4]) == ["visible"]


def test_leases_that_are_over_make_room_for_others_though_they_are_not_done_with_yet() -> None:
    script = leased(30, QueueConfig(leased_max=30))
    script.wait(100)
    assert len(script.receive(10)) == 10
    assert len(script.receive(10)) == 10


def test_leases_that_ended_before_another_configuration_obey_the_old_one() -> None:
    script = leased(25, QueueConfig(max_deliveries=1))
    script.wait(100)
    assert script.fold.is_behind
    script.fold.configure(QueueConfig(max_deliveries=5), now=script.now)
    assert len(script.fold.dying_reasons) == 25


def test_back_off_counts_from_the_end_of_the_lease_however_late_that_is_done() -> None:
    script = leased(25, QueueConfig(backoff=Backoff(first_ms=50, last_ms=50)))
    script.wait(149)
    script.fold.catch_up()
    assert script.receive(25) == []
    script.wait(1)
    script.fold.catch_up()
    assert len(script.receive(25)) == 25


def test_leases_that_were_put_off_are_no_reason_for_a_long_step() -> None:
    """Their old ends lie before the next one, and are cleaned up step by step too."""
    script = leased(2000)
    script.fold.extend(range(2000), 10_000, now=script.now)
    assert script.fold.next_event().lease_ms == 100
    script.wait(100)
    assert script.fold.is_behind
    script.fold.catch_up()
    assert script.fold.leased_count == 2000
    assert script.fold.next_event().lease_ms == 10_000


def test_a_full_queue_drops_what_nobody_holds_any_more_first() -> None:
    script = leased(25)
    script.send(count=5)
    script.wait(100)
    script.fold.step_count = 1
    assert list(islice(script.fold.free_offsets(), 27)) == list(range(27))


def test_a_replay_lets_all_time_pass_before_an_entry() -> None:
    script = leased(25)
    script.fold.apply(Ticked(Instant(script.now.lease_ms + 100, script.now.wall_ms + 100)))
    assert not script.fold.is_behind
    assert script.fold.leased_count == 0
