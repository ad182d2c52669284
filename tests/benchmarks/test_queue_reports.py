"""Reports about queues say what was measured, and whether a target is met."""

from itertools import pairwise

import msgspec
import pytest
from benchmarks import queue_latency, queue_memory, queue_space, queues
from benchmarks.boto_load import MeasuredBoto
from benchmarks.past_load import MeasuredPast, Past
from benchmarks.queues import Line
from benchmarks.waiting import MeasuredWaiting

from headrace.cli.load import Percentiles


def line(door: str, batch: int, *, messages_per_s: float = 1.0, ratio: float | None = None, failed: int = 0) -> Line:
    return Line(
        door=door,
        batch=batch,
        work="send",
        messages_per_s=messages_per_s,
        requests_per_s=messages_per_s / batch,
        failed=failed,
        ratio=ratio,
    )


def boto() -> dict[str, MeasuredBoto]:
    return {"boto3": MeasuredBoto(sends_per_s=900, receives_per_s=800, acknowledgements_per_s=700)}


@pytest.mark.parametrize(("ratio", "is_met"), [(0.4, True), (0.39, False)])
@pytest.mark.parametrize("door", ["REST", "SQS"])
def test_single_sends_are_held_against_the_bare_protocol(door: str, ratio: float, is_met: bool) -> None:
    report = queues.report([line(door, 1, ratio=ratio), line(door, 10, ratio=0.1)], boto())
    assert [goal.is_met for goal in report.goals] == [is_met]


@pytest.mark.parametrize(("rate", "is_met"), [(100_000, True), (99_999, False)])
def test_the_python_client_has_a_target_for_batches_of_a_hundred(rate: float, is_met: bool) -> None:
    report = queues.report([line("Python client", 100, messages_per_s=rate), line("Python client", 1)], boto())
    assert [goal.is_met for goal in report.goals] == [is_met]


def test_requests_that_failed_are_counted_aloud() -> None:
    report = queues.report([line("REST", 1, ratio=0.5, failed=3)], boto())
    assert any("3 requests failed" in note for note in report.notes)
    assert any("900 sends/s" in note for note in report.notes)


@pytest.mark.parametrize(("p99", "is_met"), [(9.99, True), (10.0, False)])
def test_a_waiting_consumer_has_a_target(p99: float, is_met: bool) -> None:
    found = Percentiles(p50=1.0, p90=2.0, p99=p99, p999=20.0, max=30.0)
    measured = MeasuredWaiting(sent=10, received=10, acknowledged_ms=found, latency_ms=found)
    assert [goal.is_met for goal in queue_latency.report(measured, 0.5).goals] == [is_met]


def memory(**others: int) -> queue_memory.Figures:
    figures = queue_memory.Figures(
        waiting=1000,
        leased=100,
        fresh_bytes=50_000_000,
        waiting_bytes=50_002_000,
        leased_bytes=50_017_000,
        again_bytes=50_018_000,
        empty_start_s=0.3,
        stopped_start_s=0.4,
        stopped_bytes=50_014_000,
        killed_start_s=0.5,
        killed_bytes=50_020_000,
    )
    return msgspec.structs.replace(figures, **others)


def test_memory_is_shown_for_each_message() -> None:
    rows = queue_memory.report(memory()).rows
    assert [row[2] for row in rows] == ["", "2.00", "150.0", "160.0", "140.0", "200.0"]
    assert [row[3] for row in rows] == ["0.30", "", "", "", "0.40", "0.50"]


@pytest.mark.parametrize("state", ["leased_bytes", "again_bytes", "stopped_bytes", "killed_bytes"])
def test_a_lease_has_a_target_in_every_state(state: str) -> None:
    assert [goal.is_met for goal in queue_memory.report(memory()).goals] == [True]
    assert [goal.is_met for goal in queue_memory.report(memory(**{state: 50_022_100})).goals] == [False]


@pytest.mark.parametrize(
    ("disk_bytes", "read", "are_met"),
    [(1_999_000, 100_000, [True, True]), (2_000_000, 100_000, [False, True]), (1_100_000, 99_999, [True, False])],
)
def test_a_long_past_has_a_target_for_its_disk_and_for_its_reader(
    disk_bytes: int, read: int, are_met: list[bool]
) -> None:
    figures = queue_space.Figures(
        past=Past(messages=100_000, size_bytes=1000, delayed=1000),
        load=MeasuredPast(sent=100_000, acknowledged=99_000, worked_s=9.0, read=read, read_s=10.0, repeated=2),
        peak_disk_bytes=60_000_000,
        disk_bytes=disk_bytes,
        files=7,
        cleaned_s=5.0,
        fresh_bytes=70_000_000,
        peak_resident_bytes=130_000_000,
        resident_bytes=120_000_000,
        delayed=1000,
        killed_start_s=0.5,
    )
    report = queue_space.report(figures)
    assert [goal.is_met for goal in report.goals] == are_met
    assert any("2 handed out twice" in note for note in report.notes)


def test_delayed_messages_are_scattered_over_a_long_past() -> None:
    past = Past(messages=100_500, size_bytes=1000, delayed=1000)
    delayed = [number for number in range(past.messages) if past.is_delayed(number)]
    assert len(delayed) == 1000
    assert max(later - earlier for earlier, later in pairwise(delayed)) <= 101
