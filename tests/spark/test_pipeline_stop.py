"""Signals to a run as they come in life: to its whole process group, or to every process of it."""

import json
import os
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import psutil
import pytest
from deltalake import DeltaTable
from tests.spark.command import DEADLINE_S, Command
from tests.spark.killed_driver import LONG, Driver, driving
from tests.spark.source_data import create, produce
from tests.spark.stopped_run import BATCH_ROWS, ENDED_AT_ONCE, GO, HELD
from tests.support.node import HEADRACE, NodeProcess
from tests.support.wait import wait_until

from headrace.spark.pipeline.context import STOPPING
from headrace.spark.pipeline.registry import all_runs, find_run

pytestmark = pytest.mark.timeout(900)
COUNT = 5 * BATCH_ROWS


def family(pid: int) -> list[psutil.Process]:
    """A process and all that it has started, in whatever group or session they are."""
    return [psutil.Process(pid), *psutil.Process(pid).children(recursive=True)]


def has_batches(state: Path) -> bool:
    return any(run.batches for run in all_runs(state))


def rows_in(table: Path) -> int:
    count: int = DeltaTable(table).to_pyarrow_table().num_rows
    return count


@contextmanager
def held_run(node: NodeProcess, topic: str, place: Path, kind: str) -> Iterator[Driver]:
    """A run in the middle of its second batch, which leaves no process behind."""
    create(node, topic)
    produce(node, topic, [str(number) for number in range(COUNT)])
    arguments = [node.server, topic, place, kind]
    with driving("tests.spark.stopped_run", arguments, log=place / "log", is_leader=True) as driver:
        driver.wait_until((place / HELD).exists, what="the second batch runs")
        started = family(driver.process.pid)
        yield driver
        _, alive = psutil.wait_procs(started, timeout=DEADLINE_S)
        assert alive == [], "the run left processes behind"


ONE_SHOT, CONTINUOUS = "one-shot", "continuous"
in_long = pytest.mark.skipif(not LONG, reason="half a minute for a JVM of its own")


@pytest.mark.parametrize(
    ("kind", "number"),
    [
        (CONTINUOUS, signal.SIGTERM),
        (ONE_SHOT, signal.SIGINT),
        pytest.param(CONTINUOUS, signal.SIGINT, marks=in_long),
        pytest.param(ONE_SHOT, signal.SIGTERM, marks=in_long),
    ],
)
def test_the_batch_that_runs_is_finished_when_the_group_is_signalled(
    node: NodeProcess, topic: str, tmp_path: Path, kind: str, number: signal.Signals
) -> None:
    with held_run(node, topic, tmp_path, kind) as driver:
        os.killpg(driver.process.pid, number)
        driver.wait_until(lambda: STOPPING in driver.said(), what="the run is about to stop")
        (tmp_path / GO).touch()
        driver.wait_end()
    assert driver.said().splitlines()[-2:] == [STOPPING, "stopped"]
    assert "Traceback" not in driver.said()
    assert find_run(tmp_path / "state", "job").condition == "stopped"
    assert rows_in(tmp_path / "table") == 2 * BATCH_ROWS


def test_a_batch_whose_workers_are_ended_as_well_is_cut_off_in_one_sentence(
    node: NodeProcess, topic: str, tmp_path: Path
) -> None:
    """As systemd does it by default: SIGTERM to every process of the unit."""
    with held_run(node, topic, tmp_path, CONTINUOUS) as driver:
        for process in family(driver.process.pid):
            with suppress(psutil.NoSuchProcess):
                process.send_signal(signal.SIGTERM)
        driver.wait_end()
    said = driver.said()
    assert said.splitlines()[-1] == "stopped"
    assert "The batch was cut off, and the next run does it again: " in said
    assert "Traceback" not in said
    assert find_run(tmp_path / "state", "job").condition == "stopped"
    assert rows_in(tmp_path / "table") == BATCH_ROWS


@pytest.mark.parametrize(
    ("first", "second"),
    [(signal.SIGTERM, signal.SIGTERM), pytest.param(signal.SIGINT, signal.SIGINT, marks=in_long)],
)
def test_a_second_signal_ends_it_at_once(
    node: NodeProcess, topic: str, tmp_path: Path, first: signal.Signals, second: signal.Signals
) -> None:
    with held_run(node, topic, tmp_path, CONTINUOUS) as driver:
        os.killpg(driver.process.pid, first)
        driver.wait_until(lambda: STOPPING in driver.said(), what="the run is about to stop")

        def is_over() -> bool:
            # One that follows at once belongs to the first.
            if driver.process.poll() is None:
                os.killpg(driver.process.pid, second)
            return driver.process.poll() is not None

        wait_until(is_over, deadline_s=DEADLINE_S, what=driver.said)
    assert driver.process.returncode == ENDED_AT_ONCE, driver.said()
    assert driver.said().splitlines() == [STOPPING]
    assert find_run(tmp_path / "state", "job").condition == "stopped"
    assert rows_in(tmp_path / "table") == BATCH_ROWS


def test_the_command_ends_well_and_goes_on_later(node: NodeProcess, topic: str, tmp_path: Path) -> None:
    count = 3_000
    create(node, topic)
    produce(node, topic, [str(number) for number in range(count)])
    command = Command(node, tmp_path)
    archive = ("archive", "--topic", topic, "--table", tmp_path / "lake", "--id", "job")
    said = tmp_path / "said"
    with said.open("wb") as output:
        process = subprocess.Popen(
            [*HEADRACE, "pipeline", "run", *map(str, archive), "--batch-rows", "10", "--json"],
            cwd=tmp_path,
            env=command.environment,
            stdout=output,
            stderr=output,
            start_new_session=True,
        )
    try:
        wait_until(
            lambda: process.poll() is not None or has_batches(tmp_path / "state"),
            deadline_s=DEADLINE_S,
            what=said.read_text,
        )
        assert process.poll() is None, said.read_text()
        # As `timeout` does it: the child first, and then its whole group.
        process.send_signal(signal.SIGTERM)
        os.killpg(process.pid, signal.SIGTERM)
        assert process.wait(DEADLINE_S) == 0, said.read_text()
    finally:
        process.kill()
        process.wait(DEADLINE_S)
    assert "Traceback" not in said.read_text()
    assert json.loads(said.read_text().splitlines()[-1])["event"] == "summary"
    assert find_run(tmp_path / "state", "job").condition == "stopped"
    assert 0 < rows_in(tmp_path / "lake") < count
    (row,) = command.summary(*archive)["rows"]
    assert (row["rows"], row["lag"]) == (count, 0)
