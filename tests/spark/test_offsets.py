"""Marks as Spark keeps them, and shares of what may be read: pure functions."""

import json

from hypothesis import given
from hypothesis import strategies as st

from headrace.client.values import TopicPartition
from headrace.spark.source.mark import Mark, behind_latest, fair_shares, read_mark, read_positions, write_mark

ORDERS_0, ORDERS_1, ORDERS_10 = (TopicPartition("orders", index) for index in (0, 1, 10))

_places = st.builds(TopicPartition, st.sampled_from(["a", "b.c", "d_e"]), st.integers(0, 20))
_positions = st.dictionaries(_places, st.integers(0, 2**62), max_size=6)
_marks = st.builds(
    Mark,
    offsets=_positions,
    ids=st.dictionaries(st.sampled_from(["a", "b.c"]), st.text("0123456789abcdef", min_size=32, max_size=32)),
    skipped=_positions,
    is_first=st.just(True),
    is_earliest=st.booleans(),
    began=st.none() | _positions,
)


def test_how_far_a_batch_is_behind_is_told_of_its_partitions_together() -> None:
    consumed, ends = {ORDERS_0: 3, ORDERS_1: 5}, {ORDERS_0: 4, ORDERS_1: 5, ORDERS_10: 8}
    behind = behind_latest(consumed, ends)
    assert behind == {
        "minOffsetsBehindLatest": "0",
        "maxOffsetsBehindLatest": "8",
        "avgOffsetsBehindLatest": "3.0",
    }
    assert behind_latest(ends, consumed)["maxOffsetsBehindLatest"] == "0"
    assert behind_latest(consumed, {}) == {}


@given(_marks)
def test_a_mark_comes_back_from_json_as_it_was(mark: Mark) -> None:
    assert read_mark(json.loads(json.dumps(write_mark(mark)))) == mark


def test_offsets_look_as_those_of_spark_s_kafka_source() -> None:
    assert json.dumps(write_mark(Mark(offsets={ORDERS_1: 7, ORDERS_0: 23}))) == '{"orders": {"0": 23, "1": 7}}'


def test_equal_marks_are_equal_text_whatever_order_they_were_made_in() -> None:
    one = Mark(offsets={ORDERS_0: 1, ORDERS_10: 2, ORDERS_1: 3}, ids={"x": "1", "a": "2"})
    other = Mark(offsets={ORDERS_10: 2, ORDERS_1: 3, ORDERS_0: 1}, ids={"a": "2", "x": "1"})
    assert json.dumps(write_mark(one)) == json.dumps(write_mark(other))


def test_what_is_no_offset_is_left_out_of_positions() -> None:
    document = write_mark(Mark(offsets={ORDERS_0: 1}, ids={"orders": "f00"}, skipped={ORDERS_0: 4}))
    assert read_positions(document) == {ORDERS_0: 1}
    assert read_mark(document).skipped == {ORDERS_0: 4}


# Shares.


def test_a_short_backlog_is_served_whole_and_the_rest_shared() -> None:
    assert fair_shares({ORDERS_0: 10, ORDERS_1: 1000, ORDERS_10: 1000}, 110) == {
        ORDERS_0: 10,
        ORDERS_1: 50,
        ORDERS_10: 50,
    }


def test_fewer_offsets_than_partitions_go_to_the_longest_backlogs_in_turn() -> None:
    waiting = {ORDERS_0: 5, ORDERS_1: 5, ORDERS_10: 5}
    served = dict.fromkeys(waiting, 0)
    for _ in range(15):
        for at, share in fair_shares(waiting, 1).items():
            waiting[at] -= share
            served[at] += share
    assert served == {ORDERS_0: 5, ORDERS_1: 5, ORDERS_10: 5}


@given(st.dictionaries(_places, st.integers(0, 10_000)), st.integers(1, 20_000))
def test_shares_use_up_the_limit_and_nobody_has_less_than_another_that_wanted_as_much(
    waiting: dict[TopicPartition, int], limit: int
) -> None:
    shares = fair_shares(waiting, limit)
    assert sum(shares.values()) == min(limit, sum(waiting.values()))
    assert all(0 <= shares[at] <= waiting[at] for at in waiting)
    for at in waiting:
        if shares[at] < waiting[at]:
            assert all(shares[other] <= shares[at] + 1 for other in waiting)
