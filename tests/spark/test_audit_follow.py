"""Numbers as they come, without Spark: the same faults as in SQL, each told when it is known."""

import random
from collections.abc import Iterable

from headrace.model.batch import SEQUENCE_LIMIT
from headrace.spark.pipeline.audit_follow import GAPS_MAX, Fault, Follower, Seen
from headrace.spark.pipeline.audit_number import DOUBLED, LOST, OUT_OF_ORDER


def follow(follower: Follower, numbers: Iterable[int], *, now_ms: int = 0) -> list[Fault]:
    faults: list[Fault] = []
    for offset, number in enumerate(numbers):
        faults += follower.see(Seen(0, offset, offset, number, number), now_ms=now_ms)
    return faults


def kinds(faults: Iterable[Fault]) -> list[tuple[str, int, int]]:
    return [(fault.fault, fault.offset, fault.amount) for fault in faults]


def test_numbers_that_follow_one_another_are_no_finding() -> None:
    follower = Follower()
    assert follow(follower, range(5, 50)) == []
    assert follower.give_up(before_ms=1000) == []


def test_a_gap_is_lost_only_when_patience_is_over() -> None:
    follower = Follower()
    assert follow(follower, [1, 2, 6, 7], now_ms=500) == []
    assert follower.oldest_ms == 500
    assert follower.give_up(before_ms=499) == []
    (lost,) = follower.give_up(before_ms=500)
    assert (lost.fault, lost.offset, lost.amount, lost.detail) == (LOST, 2, 3, "3 to 5 has not come")
    assert follower.oldest_ms is None


def test_what_comes_late_is_out_of_order_and_fills_its_gap() -> None:
    follower = Follower()
    assert kinds(follow(follower, [1, 2, 4, 3, 5])) == [(OUT_OF_ORDER, 3, 1)]
    assert follower.give_up(before_ms=0) == []


def test_what_comes_again_is_doubled() -> None:
    assert kinds(follow(Follower(), [1, 2, 3, 2, 4])) == [(DOUBLED, 3, 1)]


def test_a_row_may_fill_a_part_of_a_gap_and_double_another() -> None:
    follower = Follower()
    follower.see(Seen(0, 0, 9, 0, 9), now_ms=0)
    follower.see(Seen(0, 10, 19, 20, 29), now_ms=0)
    faults = follower.see(Seen(0, 20, 26, 8, 14), now_ms=0)
    assert kinds(faults) == [(OUT_OF_ORDER, 20, 1), (DOUBLED, 20, 2)]
    assert [(gap.first, gap.last) for gap in follower.gaps] == [(15, 19)]


def test_what_lies_below_the_first_number_is_late_and_not_doubled() -> None:
    assert kinds(follow(Follower(), [10, 11, 7])) == [(OUT_OF_ORDER, 2, 1)]


def test_no_gap_is_waited_for_where_numbers_may_have_gaps() -> None:
    follower = Follower()
    follower.see(Seen(0, 0, 0, 1, 1, is_gapless=False), now_ms=0)
    assert follower.see(Seen(0, 1, 1, 9, 9, is_gapless=False), now_ms=0) == []
    assert follower.gaps == []


def test_sequences_that_begin_again_go_on() -> None:
    follower = Follower()
    top = SEQUENCE_LIMIT
    for offset, (first, last) in enumerate([(top - 10, top - 6), (top - 5, top - 1), (0, 4), (5, 9)]):
        assert follower.see(Seen(0, offset, offset, first, last, wraps_at=top), now_ms=0) == []
    again = follower.see(Seen(0, 9, 9, top - 5, top - 1, wraps_at=top), now_ms=0)
    assert kinds(again) == [(DOUBLED, 9, 5)]


def test_gaps_are_bounded_and_the_oldest_is_given_up() -> None:
    follower = Follower()
    faults = follow(follower, range(0, 2 * (GAPS_MAX + 2), 2))
    assert kinds(faults) == [(LOST, 1, 1)]
    assert len(follower.gaps) == GAPS_MAX


def test_any_shuffle_of_dropped_and_doubled_numbers_is_counted_right() -> None:
    chooser = random.Random(20)
    for _ in range(200):
        numbers = list(range(1, 40))
        dropped = set(chooser.sample(numbers[1:-1], 3))
        doubled = chooser.sample([number for number in numbers if number not in dropped], 3)
        sent = [number for number in numbers if number not in dropped]
        for number in doubled:
            sent.insert(chooser.randrange(sent.index(number) + 1, len(sent) + 1), number)
        for _ in range(3):
            at = chooser.randrange(1, len(sent) - 2)
            sent[at], sent[at + 1] = sent[at + 1], sent[at]
        follower = Follower()
        faults = follow(follower, sent) + follower.give_up(before_ms=0)
        assert sum(fault.amount for fault in faults if fault.fault == LOST) == 3 - sum(n > max(sent) for n in dropped)
        assert sum(fault.amount for fault in faults if fault.fault == DOUBLED) == 3
