"""`headrace pipeline` as a user has it: list, run, status, stop, forget, and what it says when something is wrong."""

import json
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import typer
from tests.cli.running import HEADRACE, RunningNode, clean_environment
from typer.testing import CliRunner, Result

from headrace.cli.main import app
from headrace.cli.pipeline_run import Where
from headrace.cli.pipeline_view import progress_line
from headrace.client.queue.sync import Client
from headrace.spark.pipeline.progress import Totals
from headrace.spark.pipeline.summary import Summary

runner = CliRunner()


def headrace(state: Path, *arguments: str, code: int = 0) -> Result:
    result = runner.invoke(app, ["pipeline", *arguments], env={"HEADRACE_STATE": str(state)})
    assert result.exit_code == code, result.output
    return result


def last_event(result: Result) -> Any:
    return json.loads(result.stdout.splitlines()[-1])


def test_what_can_be_run_and_what_ran_is_listed(tmp_path: Path) -> None:
    assert "Nothing has run yet" in headrace(tmp_path, "list").stderr
    assert "Nothing has run yet" in headrace(tmp_path, "status").stderr
    headrace(tmp_path, "run", "capacity", "--id", "plan")
    listed = json.loads(headrace(tmp_path, "list", "--json").stdout)
    assert {"capacity"} <= {one["name"] for one in listed["pipelines"]}
    assert [(one["id"], one["state"]) for one in listed["runs"]] == [("plan", "done")]
    shown = headrace(tmp_path, "list").stdout
    assert "nodes, disks and partitions for a stated load" in shown
    assert "plan" in shown


def test_a_run_is_described_and_forgotten(tmp_path: Path) -> None:
    headrace(tmp_path, "run", "capacity", "--id", "plan")
    one = json.loads(headrace(tmp_path, "status", "plan", "--json").stdout)
    assert (one["pipeline"], one["state"], one["run_count"]) == ("capacity", "done", 1)
    assert "(start 1)" in headrace(tmp_path, "status", "plan").stdout
    assert "does not run; it is done" in headrace(tmp_path, "stop", "plan", code=1).stderr
    headrace(tmp_path, "forget", "plan")
    assert "there is no run plan" in headrace(tmp_path, "status", "plan", code=1).stderr


def test_a_summary_is_a_table_for_people_and_a_line_for_programs(tmp_path: Path) -> None:
    shown = headrace(tmp_path, "run", "capacity", "--messages", "1e8", "--peak", "5e4").stdout
    assert "100,000,000 messages a day" in shown
    assert "replicas / produce" in shown
    event = last_event(headrace(tmp_path, "run", "capacity", "--json"))
    assert event["event"] == "summary"
    assert event["id"].startswith("capacity-")
    assert {"step", "formula", "numbers", "result"} == set(event["rows"][0])


def test_a_report_is_written_where_it_is_asked_for(tmp_path: Path) -> None:
    page = tmp_path / "capacity.html"
    result = headrace(tmp_path / "state", "run", "capacity", "--report", str(page))
    assert str(page) in result.stderr.replace("\n", "")
    assert page.read_text().startswith("<!doctype html>")


def test_a_node_can_be_measured_from_the_command_line(node: RunningNode, tmp_path: Path) -> None:
    where = ("--server", node.server, "--http", node.ready["http"])
    event = last_event(headrace(tmp_path, "run", "capacity", "--measure", "--seconds", "0.1", *where, "--json"))
    assert "measured now" in event["figures"]["figure send"]


@pytest.mark.parametrize(
    ("arguments", "words", "code"),
    [
        (("run", "capcity"), "there is no pipeline capcity, and no such directory; did you mean capacity?", 2),
        (("run", "zzz"), "there are ", 2),
        (("run", "capacity", "--replicas", "0"), "--replicas 0 is too few", 2),
        (("run", "capacity", "--batch", "7"), "--batch 7 was not measured", 2),
        (("run", "capacity", "--figure", "speed=1"), "--figure speed is none that is used", 2),
        (("run", "capacity", "--figure", "send=fast"), "is no number", 2),
        (("run", "capacity", "--figure", "send=0"), "has to be above zero", 2),
        (("run", "capacity", "--figure", "send=inf"), "is beyond every number", 2),
        (("run", "capacity", "--figure", "record_overhead=-5"), "record_overhead=-5: -5 has to be above zero", 2),
        (("run", "capacity", "--figure", "record_overhead=nan"), "has to be above zero", 2),
        (("run", "capacity", "--report", "/"), "--report / is a directory; name a file, as /report.html", 2),
        (("run", "capacity", "--messages", "1e400"), "--messages is beyond every number", 2),
        (("run", "capacity", "--messages", "-1"), "--messages -1 has to be above zero", 2),
        (("run", "capacity", "--growth", "0"), "--growth 0 has to be above zero", 2),
        (("run", "capacity", "--id", "a b"), "is no name for a run", 2),
        (("run", "capacity", "--bench", "/nowhere"), "is no directory", 2),
        (("run", "capacity", "--rollup", "/nowhere"), "is no Delta table", 2),
        (("run", "capacity", "--measure", "--server", "127.0.0.1:1", "--http", "127.0.0.1:1"), "127.0.0.1:1", 1),
        (("run", "capacity", "--sice", "5"), "--size", 2),
        (("status", "absent"), "there is no run absent", 1),
        (("stop", "absent"), "there is no run absent", 1),
        (("forget", "absent"), "there is no run absent", 1),
    ],
    ids=lambda value: "-".join(value) if isinstance(value, tuple) else "",
)
def test_a_refusal_says_what_to_do(tmp_path: Path, arguments: tuple[str, ...], words: str, code: int) -> None:
    result = headrace(tmp_path, *arguments, code=code)
    assert result.stdout == ""
    text = " ".join(result.stderr.split()).replace("│ ", "")
    assert words in text
    assert "Traceback" not in text


def test_verbose_shows_the_stack(tmp_path: Path) -> None:
    result = headrace(tmp_path, "run", "capacity", "--bench", "/nowhere", "--verbose", code=2)
    assert "Traceback" in result.stderr


def test_who_has_no_spark_is_told_what_to_install(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setitem(sys.modules, "pyspark", None)  # as if it were not installed
    refused = headrace(tmp_path, "run", "rollup", code=1)
    assert "pipelines need pyspark, which is not installed; run `pip install '.[spark]'` in a clone" in refused.stderr
    headrace(tmp_path, "run", "capacity")  # needs none


def test_something_found_has_an_exit_code_of_its_own(tmp_path: Path) -> None:
    where = Where(state=tmp_path, as_json=True)
    with pytest.raises(typer.Exit) as caught:
        where.run("audit", {}, lambda run: Summary(title="1 lost", is_found=True))
    assert caught.value.exit_code == 3


@pytest.mark.parametrize(
    ("totals", "of", "line"),
    [
        (Totals(), None, "archive"),
        (Totals(1500, 0, 3.0), 2000, "archive  1,500 of 2,000 rows, 500/s"),
        (Totals(1500, 2, 3.0, 7), None, "archive  1,500 rows, 500/s, batch 2, lag 7"),
    ],
)
def test_progress_is_one_line(totals: Totals, of: int | None, line: str) -> None:
    assert progress_line("archive", totals, of) == line


def test_the_command_line_starts_without_importing_spark() -> None:
    script = (
        "import sys; from headrace.cli.main import app; "
        "print([name for name in ('pyspark', 'pyarrow', 'pandas', 'deltalake') if name in sys.modules])"
    )
    done = subprocess.run([HEADRACE[0], "-c", script], capture_output=True, check=True, env=clean_environment())
    assert done.stdout == b"[]\n"


def test_a_rollup_from_the_command_line_says_its_summary_and_nothing_of_java(
    node: RunningNode, topic: str, tmp_path: Path
) -> None:
    """In a process of its own, as a user has it: with a JVM."""
    with Client(node.ready["http"]) as client:
        client.queue(topic[:100]).send("one tea")
    where = ("--server", node.server, "--topics", topic[:100], "--topic", f"{topic[:100]}.rollup", "--id", "minutes")
    command = [*HEADRACE, "pipeline", "run", "rollup", *where, "--no-groups", "--json", "--state", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, env=clean_environment(), check=False)
    assert (done.returncode, done.stderr) == (0, "")
    event = json.loads(done.stdout.splitlines()[-1])
    assert (event["event"], event["id"], event["rows"]) == ("summary", "minutes", [])  # the minute is not over
    assert (tmp_path / "minutes" / "spark.log").exists()
    assert json.loads(headrace(tmp_path, "status", "minutes", "--json").stdout)["rows"] == 1


def test_a_spark_that_does_not_start_is_one_sentence(node: RunningNode, tmp_path: Path) -> None:
    command = [*HEADRACE, "pipeline", "run", "rollup", "--server", node.server, "--state", str(tmp_path)]
    wrong = [*command, "--conf", "spark.driver.memory=nonsense", "--id", "wrong"]
    failed = subprocess.run(wrong, capture_output=True, text=True, env=clean_environment(), check=False)
    assert (failed.returncode, failed.stdout) == (1, "")
    assert failed.stderr.startswith("error: Spark did not start: ")
    assert failed.stderr.endswith("spark.log\n")
    assert failed.stderr.count("\n") == 1
    assert "nonsense" in (tmp_path / "wrong" / "spark.log").read_text()


def test_a_stop_request_reaches_a_run_of_another_terminal(node: RunningNode, tmp_path: Path) -> None:
    """A measurement takes a while and ends in its own time; asked meanwhile, it says that it was stopped."""
    where = ("--server", node.server, "--http", node.ready["http"], "--state", str(tmp_path), "--id", "plan")
    command = [*HEADRACE, "pipeline", "run", "capacity", "--measure", "--seconds", "1", "--json", *where]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, env=clean_environment())
    assert process.stdout is not None
    try:
        assert b'"progress"' in process.stdout.readline()
        running = json.loads(headrace(tmp_path, "status", "plan", "--json").stdout)
        assert (running["state"], running["pid"]) == ("running", process.pid)
        stopped = json.loads(headrace(tmp_path, "stop", "plan", "--json").stdout)
        assert stopped["state"] == "stopped"
        assert process.wait(10) == 0
    finally:
        process.send_signal(signal.SIGKILL)
        process.wait(10)
        process.stdout.close()
