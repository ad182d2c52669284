"""A real node whose machine's wall clock jumps, while it runs and while it is down, with real clients.

The node runs in a Python whose wall clock has an offset, which the test writes to a file. Its monotonic and boot clock
are the machine's.
"""

import json
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from tests.cluster.produce import must_send
from tests.support.node import NodeProcess, running
from tests.support.wait import wait_until
from typer.testing import CliRunner

from headrace import Client
from headrace.cli.main import app

DAY_MS = 24 * 60 * 60 * 1000
DEADLINE_S = 30.0
SETTINGS = {"log.maintenance_interval_ms": 100, "queues.keep_interval_ms": 100}
KEPT, SHORT, QUEUE = "kept", "short", "queue"
COUNT = 20
SITE = """
import os, time

path, really = os.environ["WALL_CLOCK_OFFSET"], time.time_ns

def time_ns():
    with open(path) as file:
        return really() + int(file.read() or 0) * 1_000_000

time.time_ns = time_ns
"""

Jump = Callable[[int], None]


@pytest.fixture
def jump(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Jump:
    """Sets the wall clock of the nodes that are started from now on, and of those that run."""
    site = tmp_path / "site"
    site.mkdir()
    (site / "sitecustomize.py").write_text(SITE, encoding="utf-8")
    offset = tmp_path / "offset"
    offset.write_text("0", encoding="ascii")
    monkeypatch.setenv("PYTHONPATH", str(site))
    monkeypatch.setenv("WALL_CLOCK_OFFSET", str(offset))

    def set_offset(offset_ms: int) -> None:
        new = tmp_path / "offset.new"
        new.write_text(str(offset_ms), encoding="ascii")
        new.replace(offset)

    return set_offset


def fill(node: NodeProcess) -> None:
    """A topic and a queue with the default retention, and a topic whose messages go in a second."""
    admin = AdminClient({"bootstrap.servers": node.server, "log_level": 0})
    short = NewTopic(SHORT, 1, config={"retention.ms": "1000"})
    for made in admin.create_topics([NewTopic(KEPT, 1), short]).values():
        made.result(30)
    for number in range(COUNT):
        must_send(node, KEPT, b"%d" % number)
    with Client(node.http) as client:
        client.queue(QUEUE).create(retention=4 * 24 * 3600.0, ttl=6 * 24 * 3600.0)
        client.queue(QUEUE).send_many([f"{number}" for number in range(COUNT)])


def bounds(node: NodeProcess, topic: str) -> tuple[int, int]:
    consumer = Consumer({"bootstrap.servers": node.server, "group.id": "look", "log_level": 0})
    try:
        low, high = consumer.get_watermark_offsets(TopicPartition(topic, 0), timeout=DEADLINE_S)
        return low, high
    finally:
        consumer.close()


def get(node: NodeProcess, path: str) -> str:
    with urllib.request.urlopen(f"http://{node.http}{path}", timeout=DEADLINE_S) as answer:
        assert answer.status == 200
        text: str = answer.read().decode()
        return text


def waiting_count(node: NodeProcess) -> int:
    with Client(node.http) as client:
        return client.queue(QUEUE).describe().counts.visible


def check_nothing_is_gone(node: NodeProcess) -> None:
    """Once retention has been at work everywhere, which the topic with the short one shows."""
    end = must_send(node, SHORT, b"goes") + 1
    wait_until(lambda: bounds(node, SHORT)[0] >= end, deadline_s=DEADLINE_S, what="retention goes on by steady time")
    assert bounds(node, KEPT) == (0, COUNT)
    assert waiting_count(node) == COUNT


def check_jump_is_told(node: NodeProcess, jump_ms: int) -> None:
    (warning,) = json.loads(get(node, "/health"))["warnings"]
    assert warning["code"] == "clock_jumped"
    assert "headrace clock confirm" in warning["detail"]
    metrics = get(node, "/metrics").splitlines()
    assert "headrace_clock_believed 0" in metrics
    (ahead,) = [line for line in metrics if line.startswith("headrace_clock_ahead_seconds ")]
    assert abs(float(ahead.split()[1]) * 1000 - jump_ms) < 300_000
    node.wait_said("the wall clock has jumped and is not believed")


def clock(node: NodeProcess, *arguments: str, code: int = 0) -> Any:
    addresses = {"HEADRACE_HTTP": node.http, "HEADRACE_ADMIN": node.admin}
    result = CliRunner().invoke(app, ["clock", *arguments, "--json"], env=addresses)
    assert result.exit_code == code, result.output
    return json.loads(result.stdout) if code == 0 else result.stderr


def test_a_clock_that_jumps_ahead_deletes_nothing_until_an_operator_confirms_it(tmp_path: Path, jump: Jump) -> None:
    with running(tmp_path / "data", settings=SETTINGS) as node:
        fill(node)
        assert "warnings" not in json.loads(get(node, "/health"))
        assert clock(node, "show")["is_believed"]
        jump(8 * DAY_MS)
        check_jump_is_told(node, 8 * DAY_MS)
        check_nothing_is_gone(node)
        found = clock(node, "show")
        assert not found["is_believed"]
        assert abs(found["ahead_ms"] - 8 * DAY_MS) < 300_000
        with urllib.request.urlopen(f"http://{node.http}/clock", timeout=DEADLINE_S) as answer:
            assert not json.loads(answer.read())["is_believed"]
        refused = CliRunner().invoke(app, ["clock", "confirm", "--yes", "--admin", node.http])
        assert refused.exit_code == 1
        assert "administrator's listener" in refused.output
        assert clock(node, "confirm", "--yes")["is_believed"]
        assert "warnings" not in json.loads(get(node, "/health"))
        wait_until(lambda: bounds(node, KEPT) == (COUNT, COUNT), deadline_s=DEADLINE_S, what="retention believes it")


@pytest.mark.parametrize("was_killed", [False, True])
def test_a_clock_that_jumps_while_the_node_is_down_deletes_nothing(
    tmp_path: Path, jump: Jump, was_killed: bool
) -> None:
    with running(tmp_path / "data", settings=SETTINGS) as node:
        fill(node)
        if was_killed:
            node.kill()
        else:
            assert node.stop() == 0
        jump(8 * DAY_MS)
        node.start()
        check_jump_is_told(node, 8 * DAY_MS)
        check_nothing_is_gone(node)
        jump(0)
        wait_until(
            lambda: "warnings" not in json.loads(get(node, "/health")), deadline_s=DEADLINE_S, what="the clock is back"
        )
        check_nothing_is_gone(node)


def test_a_clock_that_is_set_back_is_told_and_harms_nothing(tmp_path: Path, jump: Jump) -> None:
    with running(tmp_path / "data", settings=SETTINGS) as node:
        fill(node)
        jump(-2 * DAY_MS)
        check_jump_is_told(node, -2 * DAY_MS)
        assert bounds(node, KEPT) == (0, COUNT)
        node.kill()
        node.start()
        check_jump_is_told(node, -2 * DAY_MS)
        with Client(node.http) as client:
            client.queue(QUEUE).send("late", delay=0.2)
            received = [m.text for _ in range(3) for m in client.queue(QUEUE).receive(max=COUNT, wait=2)]
        assert "late" in received
        assert len(received) == COUNT + 1
        jump(0)
        wait_until(
            lambda: "warnings" not in json.loads(get(node, "/health")), deadline_s=DEADLINE_S, what="the clock is back"
        )
        check_kept = bounds(node, KEPT)
        assert check_kept == (0, COUNT)
