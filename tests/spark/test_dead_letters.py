"""Dead letters that a real worker made on a real node: looked at, and sent back exactly once."""

import os
import signal
import subprocess
import threading
from collections import Counter
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from tests.spark.dead_queue import CRASHES, bury, dead_name, numbers
from tests.spark.pipeline_run import RecordingView, make_run
from tests.support.node import HEADRACE, NodeProcess
from tests.support.wait import wait_until

from headrace.client.queue.description import RedriveFilter
from headrace.client.queue.sync import Client
from headrace.spark.errors import OptionError
from headrace.spark.pipeline import dead_letter_redrive
from headrace.spark.pipeline.dead_letters import DeadLetterOptions, run
from headrace.spark.pipeline.progress import Totals
from headrace.spark.pipeline.summary import Summary

LONG = bool(os.environ.get("HEADRACE_LONG"))
REASONS = ["timeout", "order 17 not found", "order 4 not found", "", CRASHES, "timeout", "timeout"]


def go(spark: SparkSession, directory: Path, node: NodeProcess, queue: str, **more: object) -> Summary:
    options = DeadLetterOptions(queues=(dead_name(queue),), http=node.http, **more)  # type: ignore[arg-type]
    return run(spark, options, make_run(spark, directory))


def test_dead_letters_are_grouped_by_source_reason_and_handler(
    spark: SparkSession, node: NodeProcess, topic: str, tmp_path: Path
) -> None:
    bury(node.http, topic, REASONS, partitions=2)
    summary = go(spark, tmp_path, node, topic, report=tmp_path / "dead.html")
    found = {(row[1], row[2]): row[3] for row in summary.rows}
    assert found == {
        ("timeout", "pour"): 2,
        ("timeout", "brew"): 1,
        ("order # not found", "brew"): 1,
        ("order # not found", "pour"): 1,
        ("delivered # times without an acknowledgement", "pour"): 1,
    }
    assert {row[0] for row in summary.rows} == {topic}
    assert all(row[4] == row[3] for row in summary.rows), "all of them died within this hour"
    assert summary.figures == {"dead letters": 6, "groups": 5}
    page = (tmp_path / "dead.html").read_text()
    assert "order # not found" in page
    assert "order 17 not found" in page
    assert "http://" not in page.replace("http://www.w3.org", "")


def test_a_redrive_without_yes_only_counts(spark: SparkSession, node: NodeProcess, topic: str, tmp_path: Path) -> None:
    bury(node.http, topic, REASONS)
    summary = go(spark, tmp_path, node, topic, redrive="reason = 'timeout' and age < interval 1 day")
    assert sum(int(row[3] or 0) for row in summary.rows) == 3
    assert "Nothing was moved" in summary.notes[0]
    assert len(numbers(node.http, dead_name(topic))) == 6


def test_the_letters_that_a_condition_chooses_go_back_once_and_the_others_stay(
    spark: SparkSession, node: NodeProcess, topic: str, tmp_path: Path
) -> None:
    bury(node.http, topic, REASONS, partitions=2)
    condition = "reason = 'timeout' and age < interval 1 day or handler = 'brew' and key = 'key-1'"
    first = go(spark, tmp_path, node, topic, redrive=condition, is_sure=True)
    assert first.figures == {"chosen": 4, "moved": 4, "left": 0}
    again = go(spark, tmp_path, node, topic, redrive=condition, is_sure=True)
    assert again.figures == {"chosen": 0, "moved": 0, "left": 0}
    assert numbers(node.http, topic) == Counter([0, 1, 5, 6])
    assert numbers(node.http, dead_name(topic)) == Counter([2, 4])
    with Client(node.http) as client:
        for message in client.queue(topic).receive(max=10, wait=5):
            assert message.attempt == 1
            assert message.header("headrace-dead-reason") is None


def test_a_letter_goes_to_another_queue_where_asked(
    spark: SparkSession, node: NodeProcess, topic: str, tmp_path: Path
) -> None:
    bury(node.http, topic, REASONS)
    with Client(node.http) as client:
        client.queue(f"{topic}-slow").create()
    summary = go(spark, tmp_path, node, topic, redrive="true", to=f"{topic}-slow", is_sure=True)
    assert summary.figures["moved"] == 6
    assert numbers(node.http, f"{topic}-slow") == Counter([0, 1, 2, 4, 5, 6])


def test_a_letter_that_somebody_holds_stays(spark: SparkSession, node: NodeProcess, topic: str, tmp_path: Path) -> None:
    bury(node.http, topic, ["a", "a", "a"])
    with Client(node.http) as client:
        (held,) = client.queue(dead_name(topic)).receive(max=1, wait=5, lease=60)
        summary = go(spark, tmp_path, node, topic, redrive="reason = 'a'", is_sure=True)
        assert summary.figures == {"chosen": 2, "moved": 2, "left": 0}
        assert numbers(node.http, dead_name(topic)) == Counter([held.json()["n"]])


def test_a_letter_that_says_no_source_stays_and_that_is_said(
    spark: SparkSession, node: NodeProcess, topic: str, tmp_path: Path
) -> None:
    with Client(node.http) as client:
        client.queue(dead_name(topic)).create()
        client.queue(dead_name(topic)).send({"n": 1})
    summary = go(spark, tmp_path, node, topic, redrive="true", is_sure=True)
    assert summary.figures == {"chosen": 1, "moved": 0, "left": 1}
    assert "--to" in summary.notes[-1]


def test_a_run_that_was_killed_is_finished_by_the_next_with_what_it_had_chosen(
    spark: SparkSession, node: NodeProcess, topic: str, tmp_path: Path
) -> None:
    """The driver is killed while letters move; some die again meanwhile, and are not part of it."""
    count, rate, kills = (3000, 300, 3) if LONG else (120, 20, 1)
    bury(node.http, topic, ["timeout"] * count)
    state = tmp_path / "state"
    command = [*HEADRACE, "pipeline", "run", "dead-letters", "--queue", dead_name(topic), "--http", node.http]
    command += ["--redrive", "reason = 'timeout'", "--yes", "--rate", str(rate), "--state", str(state), "--id", "back"]
    for kill in range(1, kills + 1):
        process = subprocess.Popen([*command, "--spark", "local[1]"], start_new_session=True)
        try:
            goal = kill * count // (kills + 3)
            wait_until(
                lambda goal=goal: len(numbers(node.http, topic)) >= goal,  # type: ignore[misc]
                deadline_s=200,
                what="letters are on their way back",
            )
        finally:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait(30)
    with Client(node.http) as client:
        (again,) = client.queue(topic).receive(max=1, wait=5)
        again.reject("timeout")
        dead_again = again.json()["n"]
        options = DeadLetterOptions(
            queues=(dead_name(topic),), http=node.http, redrive="reason = 'timeout'", is_sure=True
        )
        ended = run(spark, options, make_run(spark, state / "back"))
        assert (ended.figures["chosen"], ended.figures["left"]) == (count, 0)
        assert numbers(node.http, topic) == Counter(set(range(count)) - {dead_again})
        assert numbers(node.http, dead_name(topic)) == Counter([dead_again])
        described = client.queue(dead_name(topic)).describe()
        assert described.counts.visible == 1


def test_a_run_that_was_asked_to_end_leaves_the_rest_to_the_next(
    spark: SparkSession, node: NodeProcess, topic: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dead_letter_redrive, "_PLACES_MAX", 4)
    bury(node.http, topic, ["a"] * 10)
    options = DeadLetterOptions(queues=(dead_name(topic),), http=node.http, redrive="true", is_sure=True)
    stopping = threading.Event()

    class View(RecordingView):
        def progress(self, step: str, totals: Totals, of: int | None) -> None:
            if step == "moving":
                stopping.set()

    first = run(spark, options, make_run(spark, tmp_path, view=View(), stopping=stopping))
    assert first.figures == {"chosen": 10, "moved": 4, "left": 6}
    assert "goes on with what is left" in first.notes[0]
    second = run(spark, options, make_run(spark, tmp_path))
    assert second.figures == {"chosen": 10, "moved": 6, "left": 0}
    assert numbers(node.http, topic) == Counter(range(10))


def test_a_redrive_of_somebody_else_is_waited_for(
    spark: SparkSession, node: NodeProcess, topic: str, tmp_path: Path
) -> None:
    bury(node.http, topic, ["a"] * 6 + ["b"] * 6)
    with Client(node.http) as client:
        client.queue(dead_name(topic)).redrive(filter=RedriveFilter(reason="a"), rate=10)
    summary = go(spark, tmp_path, node, topic, redrive="true", is_sure=True)
    assert summary.figures["left"] == 0
    assert numbers(node.http, topic) == Counter(range(12))


@pytest.mark.parametrize("condition", ["raeson = 'x'", "reason ="])
def test_a_condition_that_cannot_be_is_refused_in_one_sentence(
    spark: SparkSession, node: NodeProcess, topic: str, tmp_path: Path, condition: str
) -> None:
    with Client(node.http) as client:
        client.queue(dead_name(topic)).create()
    with pytest.raises(OptionError, match="is no condition over dead letters") as refused:
        go(spark, tmp_path, node, topic, redrive=condition)
    assert len(str(refused.value).splitlines()) == 1
    assert "first_attempt" in str(refused.value)


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"queues": ()}, "--queue"),
        ({"queues": ("a b",)}, "letters, digits"),
        ({"queues": ("a",), "is_sure": True}, "--redrive"),
        ({"queues": ("a", "b"), "redrive": "true"}, "one queue at a time"),
        ({"queues": ("a",), "redrive": " "}, "--redrive is empty"),
        ({"queues": ("a",), "redrive": "true", "to": "a"}, "name another queue"),
        ({"queues": ("a",), "redrive": "true", "rate": 0}, "--rate"),
    ],
)
def test_options_that_cannot_be_are_refused_before_a_session(options: dict[str, object], sentence: str) -> None:
    with pytest.raises(OptionError, match=sentence):
        DeadLetterOptions(**options)  # type: ignore[arg-type]
