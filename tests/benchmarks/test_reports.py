"""Reports say what was measured, and whether a target is met, without running a benchmark for long."""

import io
import json
from pathlib import Path

import benchmarks.__main__ as command
import pytest
from benchmarks import latency, opening, profile, spread
from benchmarks.generator import MeasuredEndToEnd
from benchmarks.machine import facts
from benchmarks.report import Goal, Report, amount, print_report
from benchmarks.settings import Settings
from rich.console import Console

from headrace.cli.load import Percentiles, percentiles


def printed(report: Report) -> str:
    out = io.StringIO()
    print_report(Console(file=out, width=200), report)
    return out.getvalue()


def entry(function: str, *, calls: int, lines: int) -> dict[str, object]:
    return {"place": "log/file.py:1", "function": function, "calls": calls, "lines": lines}


def test_a_path_that_does_the_same_for_every_batch_meets_its_target() -> None:
    snapshot = [entry("append", calls=200, lines=4000), entry("reply", calls=200, lines=1000)]
    report = profile.report(profile.compare(snapshot, snapshot, batches=200), 200)
    assert report.goals[0].is_met
    assert "Nothing is done for each message" in printed(report)


def test_a_function_that_runs_for_each_message_is_named() -> None:
    few = [entry("append", calls=200, lines=4000), entry("decode", calls=2000, lines=4000)]
    many = [entry("append", calls=200, lines=4000), entry("decode", calls=200_000, lines=400_000)]
    report = profile.report(profile.compare(few, many, batches=200), 200)
    assert not report.goals[0].is_met
    assert "Done for each message: log/file.py:1 decode" in printed(report)


def test_a_loop_over_messages_that_calls_nothing_is_found_by_its_lines() -> None:
    few, many = [entry("sum", calls=200, lines=2000)], [entry("sum", calls=200, lines=200_000)]
    report = profile.report(profile.compare(few, many, batches=200), 200)
    assert not report.goals[0].is_met


@pytest.mark.parametrize(("p99", "word"), [(9.99, "met"), (10.0, "missed")])
def test_a_latency_is_held_against_its_target(p99: float, word: str) -> None:
    found = Percentiles(p50=1.0, p90=2.0, p99=p99, p999=20.0, max=30.0)
    measured = MeasuredEndToEnd(messages_total=10, received=10, acknowledged_ms=found, latency_ms=found)
    assert f"{word} " in printed(latency.report(measured, 0.5))


def test_percentiles_are_those_of_the_sorted_values() -> None:
    found = percentiles([nanoseconds * 1_000_000 for nanoseconds in range(1000, -1, -1)])
    assert found == Percentiles(p50=500.0, p90=900.0, p99=990.0, p999=999.0, max=1000.0)
    assert percentiles([]) is None


def test_a_benchmark_that_fails_is_reported_and_the_others_still_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fails(settings: Settings) -> Report:
        raise RuntimeError("no disk")

    def works(settings: Settings) -> Report:
        goal = Goal.at_least("more than nothing", 1.0, 2.0)
        return Report(name="works", title="It works", columns=["a"], rows=[["1"]], figures={"a": 1}, goals=[goal])

    monkeypatch.setattr(command, "BENCHMARKS", {"fails": fails, "works": works})
    assert command.main(["--quick", "--results", str(tmp_path)]) == 1
    (written,) = tmp_path.glob("*.json")
    document = json.loads(written.read_text())
    assert document["failed"] == ["fails"]
    assert document["reports"][0]["goals"][0]["is_met"] is True
    assert "could not be run" in capsys.readouterr().out
    assert [path for path in tmp_path.iterdir() if path.is_dir()] == []


def test_an_unknown_benchmark_is_refused_with_the_names_of_the_known(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        command.main(["sped"])
    assert "throughput, latency, open, memory, spread, profile" in capsys.readouterr().err


def test_dropping_files_from_the_page_cache_leaves_them_as_they_are(tmp_path: Path) -> None:
    file = tmp_path / "segment"
    file.write_bytes(b"kept" * 5000)
    opening.drop_from_cache(tmp_path)
    assert file.read_bytes() == b"kept" * 5000


def test_the_facts_of_the_machine_are_all_known(tmp_path: Path) -> None:
    assert all(facts(tmp_path).values())


@pytest.mark.parametrize(("value", "text"), [(1234.5, "1,234"), (99.44, "99.4"), (1.234, "1.23")])
def test_amounts_have_the_digits_they_deserve(value: float, text: str) -> None:
    assert amount(value) == text


def test_of_several_turns_the_one_in_the_middle_is_held_against_the_target() -> None:
    def turn(p99: float) -> spread.Line:
        return spread.Line(
            partitions=100,
            spreading="round all",
            messages_per_s=10_000.0,
            acknowledged_ms=Percentiles(p50=1.0, p90=2.0, p99=p99, p999=99.0, max=99.0),
            syncs_per_s=500.0,
            node_cpu_share=0.5,
            client_cpu_share=0.3,
        )

    met = spread.report([spread.middle([turn(46.0), turn(3.0), turn(12.0)])])
    assert [goal.is_met for goal in met.goals] == [True]
    assert "12.00" in met.rows[0]
    assert "3.00 to 46.00" in met.rows[0]
    missed = spread.report([spread.middle([turn(46.0), turn(3.0), turn(20.5)])])
    assert [goal.is_met for goal in missed.goals] == [False]
