"""Ranges of offsets packed into tasks: pure functions."""

from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st

from headrace.spark.source.plan import TASK_OFFSETS_MIN, TaskLimits, plan_tasks
from headrace.spark.source.reading import Range

LARGE = 10 * TASK_OFFSETS_MIN


def sizes(tasks: Sequence[Sequence[Range]]) -> list[int]:
    return [sum(one.end - one.start for one in task) for task in tasks]


def test_little_to_read_is_one_task_however_many_partitions_there_are() -> None:
    ranges = [Range("orders", index, 0, 100) for index in range(16)]
    assert plan_tasks(ranges, TaskLimits(cores=8)) == [ranges]


def test_much_to_read_is_packed_evenly_into_as_many_tasks_as_cores() -> None:
    ranges = [Range("orders", index, 0, LARGE) for index in range(16)]
    tasks = plan_tasks(ranges, TaskLimits(cores=4))
    assert sizes(tasks) == [4 * LARGE] * 4


def test_a_partition_stays_in_one_task() -> None:
    ranges = [Range("orders", 0, 0, 3 * LARGE), Range("orders", 1, 0, LARGE), Range("orders", 2, 0, LARGE)]
    tasks = plan_tasks(ranges, TaskLimits(cores=4))
    assert sorted(sizes(tasks)) == [LARGE, LARGE, 3 * LARGE]


def test_a_partition_is_cut_where_it_may_be_and_there_are_more_cores_than_partitions() -> None:
    tasks = plan_tasks([Range("orders", 0, 0, LARGE)], TaskLimits(cores=2, may_cut=True))
    assert tasks == [[Range("orders", 0, 0, LARGE // 2)], [Range("orders", 0, LARGE // 2, LARGE)]]


def test_more_tasks_than_partitions_can_be_asked_for() -> None:
    tasks = plan_tasks([Range("orders", 0, 0, 90), Range("orders", 1, 0, 10)], TaskLimits(cores=1, tasks_min=4))
    assert len(tasks) == 4
    assert max(sizes(tasks)) <= 35


def test_no_task_is_empty_where_more_are_asked_for_than_there_are_offsets() -> None:
    assert sizes(plan_tasks([Range("orders", 0, 5, 8)], TaskLimits(cores=2, tasks_min=100))) == [1, 1, 1]


def test_a_most_of_tasks_counts_for_more_than_cores() -> None:
    ranges = [Range("orders", index, 0, LARGE) for index in range(8)]
    assert len(plan_tasks(ranges, TaskLimits(cores=2, tasks_max=5))) == 5


def test_a_most_of_offsets_for_each_task_makes_as_many_tasks_as_it_takes() -> None:
    ranges = [Range("orders", 0, 0, 95), Range("orders", 1, 0, 30)]
    tasks = plan_tasks(ranges, TaskLimits(cores=1, task_offsets_max=20))
    assert max(sizes(tasks)) <= 20
    assert sum(sizes(tasks)) == 125


def test_nothing_to_read_is_no_task() -> None:
    assert plan_tasks([Range("orders", 0, 7, 7)], TaskLimits(cores=2, tasks_min=3)) == []


_counts = st.none() | st.integers(1, 12)


@given(
    st.lists(st.tuples(st.integers(0, 1000), st.integers(0, 100_000)), max_size=12),
    st.builds(
        TaskLimits,
        cores=st.integers(1, 8),
        tasks_min=_counts,
        tasks_max=_counts,
        task_offsets_max=st.none() | st.integers(1_000, 50_000),
        may_cut=st.booleans(),
    ),
)
def test_every_offset_is_in_exactly_one_task(spans: list[tuple[int, int]], limits: TaskLimits) -> None:
    ranges = [Range("orders", index, start, start + size) for index, (start, size) in enumerate(spans)]
    pieces = [one for task in plan_tasks(ranges, limits) for one in task]
    for whole in ranges:
        own = sorted((one.start, one.end) for one in pieces if one.partition == whole.partition)
        reached = whole.start
        for start, end in own:
            assert start == reached
            assert end > start
            reached = end
        assert reached == whole.end or (whole.start == whole.end and not own)
