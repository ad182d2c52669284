"""Every pipeline to its end on a Connect server. The client has no JVM, and sees only what the server tells it."""

import json
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from tests.spark.command import DEADLINE_S, Command
from tests.spark.dead_queue import bury, dead_name, numbers
from tests.spark.killed_driver import LONG
from tests.spark.source_data import create, produce
from tests.spark.standalone import connect_server
from tests.spark.topic_sink import numbers as each_once
from tests.spark.topic_sink import values
from tests.support.node import HEADRACE, NodeProcess
from tests.support.wait import wait_until

pytestmark = pytest.mark.timeout(1_200)


class Remote(Command):
    """Commands on the Connect server."""

    def __init__(self, node: NodeProcess, place: Path, address: str) -> None:
        super().__init__(node, place)
        self._where = ("--remote", address)

    def summary(self, *arguments: object) -> dict[str, Any]:
        return super().summary(*arguments, *self._where)

    @contextmanager
    def following(self, *arguments: object) -> Iterator[Path]:
        """A run with --continuous, which is asked to stop at the end and has to stop well. Gives its output."""
        said = self.place / "said"
        command = [*HEADRACE, "pipeline", "run", *map(str, arguments), *self._where]
        with said.open("wb") as output:
            process = subprocess.Popen(
                [*command, "--continuous", "--every", "0.2", "--id", "followed", "--json"],
                cwd=self.place,
                env=self.environment,
                stdout=output,
                stderr=output,
            )
        try:
            yield said
            self.run("pipeline", "stop", "followed", "--wait", "120")
            assert process.wait(DEADLINE_S) == 0, said.read_text()
        finally:
            process.kill()
            process.wait(DEADLINE_S)


def events(said: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in said.read_text().splitlines() if line.startswith("{") and line.endswith("}")]


def wait_rows(said: Path, count: int) -> None:
    """Until the run says that it has read so many."""
    wait_until(
        lambda: any(event.get("rows") == count for event in events(said) if event["event"] == "progress"),
        deadline_s=DEADLINE_S,
        what=lambda: f"{count} rows; the run said:\n{said.read_text()}",
    )


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with connect_server(tmp_path_factory.mktemp("connect") / "server") as started:
        yield started


@pytest.fixture
def remote(node: NodeProcess, tmp_path: Path, address: str) -> Remote:
    return Remote(node, tmp_path, address)


@pytest.fixture
def filled(node: NodeProcess, topic: str) -> str:
    create(node, topic, partitions=2)
    produce(node, topic, each_once(50))
    return topic


def test_an_archive_is_written_audited_and_replayed(
    node: NodeProcess, remote: Remote, filled: str, tmp_path: Path
) -> None:
    table, again = tmp_path / "lake", f"{filled}-again"
    create(node, again, partitions=2)
    for added in (50, 0):
        (row,) = remote.summary("archive", "--topic", filled, "--table", table)["rows"]
        assert (row["added"], row["rows"], row["lag"]) == (added, 50, 0)
    for lake in ((), ("--lake", table)):
        rows = remote.summary("audit", "--topic", filled, *lake)["rows"]
        assert [(row["topic"], row["partition"], row["lost"]) for row in rows] == [(filled, 0, 0), (filled, 1, 0)]
        assert sum(row["rows"] for row in rows) == 50
    for sent in (50, 0):
        assert remote.summary("replay", "--table", table, "--to", again)["figures"]["sent"] == sent
    assert values(node, again, partitions=2) == each_once(50)


@pytest.mark.skipif(not LONG, reason="one more of each kind")
def test_an_archive_that_goes_on_says_how_far_it_is(
    node: NodeProcess, remote: Remote, filled: str, tmp_path: Path
) -> None:
    with remote.following("archive", "--topic", filled, "--table", tmp_path / "lake") as said:
        wait_rows(said, 50)
        produce(node, filled, [str(number) for number in range(50, 60)])
        wait_rows(said, 60)
    assert events(said)[-1]["rows"][0]["rows"] == 60


def test_a_rollup_goes_to_topic_and_table(remote: Remote, filled: str, tmp_path: Path) -> None:
    where = ("rollup", "--topics", filled, "--topic", f"{filled}-rollup", "--table", tmp_path / "table")
    summary = remote.summary(*where, "--report", tmp_path / "rollup.html")
    assert summary["event"] == "summary"
    assert (tmp_path / "rollup.html").exists()


def test_a_rollup_and_a_live_audit_go_on_until_they_are_stopped(remote: Remote, filled: str, tmp_path: Path) -> None:
    where = ("rollup", "--topics", filled, "--topic", f"{filled}-rollup", "--table", tmp_path / "table", "--no-groups")
    with remote.following(*where) as said:
        wait_rows(said, 2)
    remote.run("pipeline", "forget", "followed")
    with remote.following("audit", "--topic", filled, "--findings", tmp_path / "findings") as said:
        wait_rows(said, 2)


def test_dead_letters_are_shown_and_sent_back(node: NodeProcess, remote: Remote, topic: str, tmp_path: Path) -> None:
    bury(node.http, topic, ["too hot", "too cold", "too hot"])
    dead, report = dead_name(topic), tmp_path / "dead.html"
    shown = remote.summary("dead-letters", "--queue", dead, "--report", report)
    assert shown["figures"] == {"dead letters": 3, "groups": 2}
    assert "too cold" in report.read_text()
    back = remote.summary("dead-letters", "--queue", dead, "--redrive", "reason = 'too hot'", "--yes")
    assert back["figures"] == {"chosen": 2, "moved": 2, "left": 0}
    assert sorted(numbers(node.http, topic)) == [0, 2]


@pytest.mark.skipif(not LONG, reason="one more of each kind")
def test_a_project_is_run(node: NodeProcess, remote: Remote, filled: str, tmp_path: Path) -> None:
    remote.run("pipeline", "init", "shop", "--topics", filled)
    counts = {row["name"]: row["rows"] for row in remote.summary("shop")["rows"]}
    assert counts[filled.replace("-", "_")] == 50
