"""`headrace up` as a process: start, stop, start again; and the endless reader."""

import errno
import json
import os
import select
import signal
import stat
import subprocess
import time
from pathlib import Path

import pytest
from tests.cli.running import HEADRACE, RunningNode, clean_environment, running_node
from typer.testing import CliRunner

from headrace.app.config import NodeConfig
from headrace.cli.main import app
from headrace.cli.up import reason_of

DEADLINE_S = 20.0
runner = CliRunner()


def headrace(node: RunningNode, *arguments: str, input: str | None = None) -> str:
    result = runner.invoke(app, list(arguments), input=input, env={"HEADRACE_SERVER": node.server})
    assert result.exit_code == 0, result.output
    return result.stdout


@pytest.mark.parametrize("with_signal", [signal.SIGTERM, signal.SIGINT])
def test_a_stopped_node_exits_with_0_and_has_everything_when_it_comes_back(
    tmp_path: Path, with_signal: signal.Signals
) -> None:
    data = tmp_path / "data"
    with running_node(data) as node:
        headrace(node, "topic", "create", "orders", "-p", "2")
        headrace(node, "produce", "orders", "-K", ":", input="alice:tea\nbob:cake\n")
        before = headrace(node, "consume", "orders", "--json", "--until-end")
        assert before.count("\n") == 2
        assert node.stop(with_signal) == 0
    assert runner.invoke(app, ["log", "verify", str(data), "--deep"]).exit_code == 0
    with running_node(data) as node:
        assert headrace(node, "consume", "orders", "--json", "--until-end") == before


def test_a_killed_node_keeps_what_it_acknowledged(tmp_path: Path) -> None:
    data = tmp_path / "data"
    with running_node(data) as node:
        headrace(node, "produce", "orders", input="tea\n")
        node.process.kill()
        node.process.wait(DEADLINE_S)
    with running_node(data) as node:
        assert headrace(node, "consume", "orders", "--until-end") == "tea\n"


def test_a_node_obeys_its_configuration_file(tmp_path: Path) -> None:
    file = tmp_path / "node.toml"
    file.write_text(
        "[topics]\npartitions = 5\n[topics.defaults]\nretention.ms = 12345\nsegment.ms = 777\n"
        '[logging]\nformat = "json"\n'
    )
    with running_node(tmp_path / "data", "--config", str(file), "--no-auto-create") as node:
        created = headrace(node, "topic", "create", "orders", "-s", "segment.ms=5000", "--json")
        assert json.loads(created)["partitions"] == 5
        altered = json.loads(headrace(node, "topic", "alter", "orders", "-u", "headrace.durability", "--json"))
        assert altered["settings"] == {"retention.ms": "12345", "segment.ms": "5000"}
        refused = runner.invoke(app, ["produce", "absent", "-b", node.server], input="tea\n")
        assert refused.exit_code == 1
        assert refused.stderr.startswith("error: absent: ")
        assert node.stop() == 0
    lines = (tmp_path / "data.stderr").read_text().splitlines()
    assert {"listening", "stopping"} <= {json.loads(line)["message"] for line in lines}


def test_an_address_that_a_node_wrongly_announces_is_named(tmp_path: Path) -> None:
    with running_node(tmp_path / "data", "--advertise", "localhost:1") as node:
        refused = runner.invoke(app, ["topic", "create", "orders", "-b", node.server, "--timeout", "0.2"])
    assert refused.exit_code == 1
    assert "announces localhost:1" in refused.stderr
    assert "kafka.advertise" in refused.stderr


def test_a_port_that_is_taken_is_said_in_one_sentence(node: RunningNode, tmp_path: Path) -> None:
    done = subprocess.run(
        [*HEADRACE, "up", "--data", str(tmp_path / "data"), "--kafka", node.server, "--http", "127.0.0.1:0"],
        capture_output=True,
        timeout=DEADLINE_S,
        env=clean_environment(),
    )
    assert done.returncode == 1
    assert b"Traceback" not in done.stderr
    assert node.server.encode() in done.stderr


def test_a_data_directory_has_one_node_at_a_time(node: RunningNode) -> None:
    done = subprocess.run(
        [*HEADRACE, "up", "--data", str(node.data), "--kafka", "127.0.0.1:0", "--http", "127.0.0.1:0"],
        capture_output=True,
        timeout=DEADLINE_S,
        env=clean_environment(),
    )
    assert done.returncode == 1
    assert b"Traceback" not in done.stderr
    assert str(node.data).encode() in done.stderr


@pytest.mark.parametrize("below", ["", "data"])
def test_a_data_directory_that_is_a_file_is_said_to_be_none(tmp_path: Path, below: str) -> None:
    file = tmp_path / "file"
    file.write_bytes(b"")
    result = runner.invoke(app, ["up", "--data", str(file / below), "--kafka", "127.0.0.1:0", "--http", "127.0.0.1:0"])
    assert result.exit_code == 1
    assert result.stderr.endswith("is no directory; choose one with --data\n")
    assert str(file) in result.stderr


@pytest.mark.parametrize(
    ("text", "words"), [("", "says no node_id"), ("node_id = 1\n", "says no cluster_id"), ("=", "cannot be read")]
)
def test_a_nodes_own_file_that_is_damaged_is_said_with_what_it_lacks(tmp_path: Path, text: str, words: str) -> None:
    data = tmp_path / "data"
    with running_node(data) as node:
        assert node.stop() == 0
    (data / "node.toml").write_text(text)
    result = runner.invoke(app, ["up", "--data", str(data), "--kafka", "127.0.0.1:0", "--http", "127.0.0.1:0"])
    assert result.exit_code == 1
    assert f"error: {data / 'node.toml'} {words}" in result.stderr
    assert "restore" in result.stderr


def test_a_disk_that_is_full_is_said_with_its_directory() -> None:
    full = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    words = reason_of(full, NodeConfig(data="/mnt/tiny"))
    assert words == "/mnt/tiny: No space left on device; free some space, or choose another directory with --data"


def test_a_node_tells_people_where_it_listens_and_what_to_try(tmp_path: Path) -> None:
    command = [*HEADRACE, "up", "--data", str(tmp_path / "data"), "--kafka", "127.0.0.1:0", "--http", "127.0.0.1:0"]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, env=clean_environment()
    ) as process:
        try:
            text = read_until(process, b"Ctrl-C stops")
            assert b"Kafka clients connect to 127.0.0.1:" in text
            assert b"headrace send tasks" in text
        finally:
            process.terminate()
            process.wait(DEADLINE_S)


def test_a_reader_waits_for_more_and_ends_with_0_at_ctrl_c(node: RunningNode, topic: str) -> None:
    headrace(node, "produce", topic, input="first\n")
    command = [*HEADRACE, "consume", topic, "--server", node.server]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=clean_environment()) as process:
        try:
            read_until(process, b"first\n")
            headrace(node, "produce", topic, input="second\n")
            read_until(process, b"second\n")
            process.send_signal(signal.SIGINT)
            assert process.wait(DEADLINE_S) == 0
            assert process.stderr is not None
            assert process.stderr.read() == b""
        finally:
            process.kill()


def test_a_reader_whose_output_is_closed_leaves_quietly(node: RunningNode, topic: str) -> None:
    headrace(node, "produce", topic, input="x" * 1000 + "\n" + "\n".join("y" * 1000 for _ in range(3000)))
    done = subprocess.run(
        f"{HEADRACE[0]} -c '{HEADRACE[2]}' consume {topic} --server {node.server} | head -n 1",
        shell=True,
        capture_output=True,
        timeout=DEADLINE_S,
        env=clean_environment(),
    )
    assert done.stdout == b"x" * 1000 + b"\n"
    assert done.stderr == b""


def test_lines_go_out_as_they_are_typed(node: RunningNode, topic: str) -> None:
    headrace(node, "topic", "create", topic)
    command = [*HEADRACE, "produce", topic, "--server", node.server, "--json"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=clean_environment()) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(b"first\n")
        process.stdin.flush()
        # Its input is still open; the message has to be there all the same.
        assert headrace(node, "consume", topic, "--count", "1") == "first\n"
        process.stdin.write(b"second\n")
        process.stdin.close()
        assert json.loads(process.stdout.read())["messages"] == 2
        assert process.wait(DEADLINE_S) == 0


def read_until(process: subprocess.Popen[bytes], end: bytes) -> bytes:
    assert process.stdout is not None
    text, deadline = b"", time.monotonic() + DEADLINE_S
    while end not in text:
        ready, _, _ = select.select([process.stdout], [], [], max(0.0, deadline - time.monotonic()))
        data = os.read(process.stdout.fileno(), 65536) if ready else b""
        assert data, f"{end!r} never came; only {text!r}"
        text += data
    return text


def open_to_others(data: Path) -> list[str]:
    """What of a data directory other users can access."""
    found = [data, *data.rglob("*")]
    return [f"{path}: {stat.filemode(path.stat().st_mode)}" for path in found if path.stat().st_mode & 0o077]


def test_a_data_directory_is_its_owners_only_whatever_the_umask_is_and_however_it_was_before(tmp_path: Path) -> None:
    data = tmp_path / "data"
    before = os.umask(0)
    try:
        with running_node(data) as node:
            headrace(node, "produce", "orders", input="tea\n")
            assert (data / "metadata.sqlite-wal").exists()
            assert open_to_others(data) == []
            assert node.stop() == 0
        assert open_to_others(data) == []
        for path in [data, *data.rglob("*")]:
            path.chmod(0o777 if path.is_dir() else 0o666)
        with running_node(data) as node:
            assert open_to_others(data) == []
            headrace(node, "produce", "orders", input="cake\n")
            assert open_to_others(data) == []
        told = (tmp_path / "data.stderr").read_text(encoding="utf-8")
        assert told.count("the data directory was accessible to other users") == 1
    finally:
        os.umask(before)
