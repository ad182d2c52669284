"""Stopping, starting again, and refusing to start: the life of a node's process and its data directory."""

import os
import random
import signal
import time
from pathlib import Path

import pytest
from tests.cluster.load import Load, check_history
from tests.cluster.test_kill import SIZES, SMALL, create_topics
from tests.compat.clients.every import CONFLUENT
from tests.compat.clients.message import Message
from tests.support.node import NodeProcess, running

STOP_S_MAX = 8.0
# What recovery says when it had something to do.
RECOVERY_WORDS = ("torn", "recover", "replay", "not in the metadata", "unclean")


def recovery_lines(node: NodeProcess) -> list[str]:
    lines = [str(line) for line in node.log_lines()]
    return [line for line in lines if any(word in line.lower() for word in RECOVERY_WORDS)]


def test_a_stop_under_load_is_quick_and_loses_nothing_and_clients_go_on(tmp_path: Path) -> None:
    seed = random.SystemRandom().randrange(2**32)
    with running(tmp_path / "data", settings=SMALL) as node:
        places = create_topics(node)
        with Load(node.server, places, seed=seed, sizes=SIZES) as load:
            for _ in range(3):
                load.wait_progress(200)
                begin_s = time.monotonic()
                assert node.stop() == 0, node.log_text()
                assert time.monotonic() - begin_s < STOP_S_MAX
                assert (node.data / "clean-shutdown").exists()
                node.start()
                assert recovery_lines(node) == []
            load.wait_progress(200)
            load.settle()
        check_history(load)


def test_a_start_after_a_clean_stop_recovers_nothing_and_one_after_a_kill_serves_the_same(tmp_path: Path) -> None:
    messages = [Message(value=b"%d" % number) for number in range(500)]
    with running(tmp_path / "data") as node:
        CONFLUENT.write(node.server, "orders", messages, is_idempotent=True)
        before = CONFLUENT.read(node.server, "orders")
        assert len(before) == len(messages)
        for end in (node.stop, node.kill):
            end()
            node.start()
            if end == node.stop:
                assert recovery_lines(node) == []
            assert CONFLUENT.read(node.server, "orders") == before


def test_a_node_whose_terminal_is_closed_stops_gracefully(tmp_path: Path) -> None:
    with running(tmp_path / "data") as node:
        os.kill(node.pid, signal.SIGHUP)
        assert node.wait_exit() == 0, node.log_text()
        assert (node.data / "clean-shutdown").exists()


def test_a_node_that_is_told_to_ignore_its_terminal_goes_on_without_it(tmp_path: Path) -> None:
    node = NodeProcess(tmp_path / "data")
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)  # which a child inherits, as from nohup
    try:
        node.launch()
    finally:
        signal.signal(signal.SIGHUP, before)
    try:
        node.wait_ready()
        os.kill(node.pid, signal.SIGHUP)
        CONFLUENT.write(node.server, "orders", [Message(value=b"after")], is_idempotent=True)
        assert len(CONFLUENT.read(node.server, "orders")) == 1
        assert node.stop() == 0, node.log_text()
    finally:
        node.clean_up()


def test_a_second_node_on_the_same_data_is_refused_and_the_first_goes_on(tmp_path: Path) -> None:
    with running(tmp_path / "data") as node:
        second = NodeProcess(tmp_path / "data")
        second.launch()
        assert second.wait_exit() == 1
        assert "in use by another node" in second.log_text()
        assert "Traceback" not in second.log_text()
        CONFLUENT.write(node.server, "orders", [Message(value=b"still here")])


def test_a_disk_of_another_cluster_is_refused_and_left_alone(tmp_path: Path) -> None:
    for name in ("one", "two"):
        with running(tmp_path / name) as node:
            CONFLUENT.write(node.server, "orders", [Message(value=name.encode())])
            assert node.stop() == 0
    os.rename(tmp_path / "one" / "node.toml", tmp_path / "own.toml")
    (tmp_path / "one" / "node.toml").write_bytes((tmp_path / "two" / "node.toml").read_bytes())
    before = files(tmp_path / "one" / "partitions")
    node = NodeProcess(tmp_path / "one")
    node.launch()
    assert node.wait_exit() == 1
    assert "belongs to node 1 of cluster" in node.log_text()
    assert "Traceback" not in node.log_text()
    assert files(tmp_path / "one" / "partitions") == before

    os.rename(tmp_path / "own.toml", tmp_path / "one" / "node.toml")
    with running(tmp_path / "one") as node:
        assert [one.value for _, one in CONFLUENT.read(node.server, "orders")] == [b"one"]


def test_another_nodes_number_is_refused(tmp_path: Path) -> None:
    with running(tmp_path / "data") as node:
        assert node.stop() == 0
    other = NodeProcess(tmp_path / "data", arguments=["--node-id", "2"])
    other.launch()
    assert other.wait_exit() == 1
    assert "and this is node 2" in other.log_text()


def files(directory: Path) -> dict[str, int]:
    return {str(path.relative_to(directory)): path.stat().st_size for path in directory.rglob("*") if path.is_file()}


# Failure row 20.


def test_data_without_its_metadata_is_never_deleted(tmp_path: Path) -> None:
    data = tmp_path / "data"
    with running(data) as node:
        CONFLUENT.write(node.server, "orders", [Message(value=b"kept")])
        # Not a clean stop: what is acknowledged is partly in the journal only.
        CONFLUENT.write(node.server, "orders", [Message(value=b"kept too")])
        node.kill()
    aside = tmp_path / "aside"
    aside.mkdir()
    for path in data.glob("metadata.sqlite*"):
        os.rename(path, aside / path.name)
    before = files(data / "partitions")
    assert before

    # Metadata made anew would hide every message, so the node refuses to make it.
    node = NodeProcess(data)
    node.launch()
    assert node.wait_exit() == 1
    assert "metadata.sqlite is missing" in node.log_text()
    assert not list(data.glob("metadata.sqlite*"))
    assert "Traceback" not in node.log_text()
    assert files(data / "partitions") == before

    for path in aside.iterdir():
        os.rename(path, data / path.name)
    with running(data) as node:
        assert [one.value for _, one in CONFLUENT.read(node.server, "orders")] == [b"kept", b"kept too"]


@pytest.mark.parametrize("name", ["metadata.sqlite"])
def test_metadata_that_is_not_a_database_is_refused_with_a_sentence(tmp_path: Path, name: str) -> None:
    data = tmp_path / "data"
    with running(data) as node:
        CONFLUENT.write(node.server, "orders", [Message(value=b"kept")])
        assert node.stop() == 0
    before = files(data / "partitions")
    (data / name).write_bytes(b"this is not a database" * 1000)
    node = NodeProcess(data)
    node.launch()
    assert node.wait_exit() == 1
    assert "Traceback" not in node.log_text()
    assert name in node.log_text()
    assert files(data / "partitions") == before
