"""Filters turned into less to read. Times need a node to become offsets and are tested with the batch reader."""

from datetime import UTC, datetime, timedelta

import pytest
from pyspark.sql.datasource import (
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    LessThan,
    LessThanOrEqual,
    Not,
)

from headrace.client.router import ClientConfig
from headrace.spark.link import Link
from headrace.spark.source.pushed import Span, read_filters
from headrace.spark.source.reading import Range

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
NOON_MS = int(NOON.timestamp() * 1000)


def narrowed(ranges: list[Range], *filters: Filter) -> list[Range]:
    """Without a node: none of these has to ask one."""
    link = Link("127.0.0.1:1", ClientConfig())
    try:
        return read_filters(filters).narrow(ranges, link)
    finally:
        link.close()


def test_offsets_cut_a_range_from_both_sides() -> None:
    filters = (GreaterThan(("offset",), 9), GreaterThanOrEqual(("offset",), 5), LessThanOrEqual(("offset",), 20))
    assert narrowed([Range("orders", 0, 0, 100)], *filters) == [Range("orders", 0, 10, 21)]
    assert narrowed([Range("orders", 0, 0, 100)], EqualTo(("offset",), 7)) == [Range("orders", 0, 7, 8)]
    assert narrowed([Range("orders", 0, 0, 5)], GreaterThan(("offset",), 9)) == []


def test_topics_and_partitions_take_whole_ranges_away() -> None:
    ranges = [Range("a", 0, 0, 5), Range("a", 1, 0, 5), Range("b", 0, 0, 5), Range("b", 2, 0, 5)]
    assert narrowed(ranges, In(("topic",), ("a", "c"))) == ranges[:2]
    assert narrowed(ranges, In(("partition",), (1, 2))) == [ranges[1], ranges[3]]
    assert narrowed(ranges, EqualTo(("topic",), "b"), LessThan(("partition",), 1)) == [ranges[2]]


def test_filters_that_are_not_understood_take_nothing_away() -> None:
    ranges = [Range("a", 0, 0, 5)]
    filters = (Not(EqualTo(("offset",), 1)), IsNotNull(("key",)), EqualTo(("headers", "key"), "x"))
    assert narrowed(ranges, *filters) == ranges


def test_several_conditions_on_keys_must_all_hold() -> None:
    pushed = read_filters([In(("key",), (b"a", b"b", None)), EqualTo(("key",), b"b")])
    assert pushed.keys == frozenset({b"b"})


@pytest.mark.parametrize(
    ("one", "span"),
    [
        (GreaterThanOrEqual(("timestamp",), NOON), Span(NOON_MS)),
        (GreaterThan(("timestamp",), NOON), Span(NOON_MS + 1)),
        (GreaterThanOrEqual(("timestamp",), NOON + timedelta(microseconds=1)), Span(NOON_MS + 1)),
        (LessThan(("timestamp",), NOON), Span(None, NOON_MS)),
        (LessThan(("timestamp",), NOON + timedelta(microseconds=1)), Span(None, NOON_MS + 1)),
        (LessThanOrEqual(("timestamp",), NOON), Span(None, NOON_MS + 1)),
        (EqualTo(("timestamp",), NOON), Span(NOON_MS, NOON_MS + 1)),
    ],
)
def test_times_are_whole_milliseconds_of_which_none_is_lost(one: Filter, span: Span) -> None:
    assert read_filters([one]).spans == {"timestamp": span}


def test_a_time_without_a_zone_is_left_to_spark() -> None:
    assert read_filters([LessThan(("timestamp",), datetime(2026, 1, 1))]).spans == {}
