"""A real node that finds a byte changed in one partition of a queue (failure row 17): the queue goes on without it."""

import http.client
import json
import subprocess
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any
from zlib import crc32

import pytest
from tests.support.node import HEADRACE, NodeProcess, running

from headrace import Client

COUNT = 3
LOST = 1
QUEUE = "/queues/orders"
MESSAGES = f"{QUEUE}/messages"
MAGIC_AT = 16  # in a batch, and so in a segment: the version of its form


@pytest.fixture
def node(tmp_path: Path) -> Iterator[NodeProcess]:
    with running(tmp_path / "data") as started:
        yield started


def fetch(node: NodeProcess, target: str, method: str = "GET", body: bytes | None = None, *, status: int = 200) -> str:
    with closing(http.client.HTTPConnection(node.http, timeout=10.0)) as connection:
        connection.request(method, target, body, {} if body is None else {"content-type": "application/json"})
        answer = connection.getresponse()
        text = answer.read().decode()
    assert answer.status == status, text
    return text


def ask(node: NodeProcess, method: str, target: str, value: Any = None, *, status: int = 200) -> Any:
    text = fetch(node, target, method, None if value is None else json.dumps(value).encode(), status=status)
    return json.loads(text) if text else None


def key_of(partition: int) -> str:
    """A key that lives in this partition."""
    return next(key for key in map(str, range(100)) if crc32(key.encode()) % COUNT == partition)


def flip_byte(path: Path, position: int) -> None:
    with path.open("r+b") as file:
        file.seek(position)
        byte = file.read(1)
        file.seek(position)
        file.write(bytes([byte[0] ^ 0xFF]))


def partition_directory(node: NodeProcess, partition: int) -> Path:
    (found,) = [
        path.parent
        for path in (node.data / "partitions").glob(f"*-{partition}/*.log")
        if not path.parent.name.startswith("__") and b"old" in path.read_bytes()
    ]
    return found


def files_of(directory: Path) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in directory.rglob("*") if path.is_file()}


def make_damaged(node: NodeProcess, *, is_found_at_start: bool) -> dict[str, bytes]:
    """One message in each partition, then a byte of one changes while the node is down. Returns that one's files."""
    ask(node, "PUT", QUEUE, {"partitions": COUNT}, status=201)
    for index in range(COUNT):
        ask(node, "POST", MESSAGES, {"message": f"old {index}", "key": key_of(index)}, status=201)
    assert node.stop() == 0, node.log_text()
    directory = partition_directory(node, LOST)
    (segment,) = directory.glob("*.log")
    flip_byte(segment, MAGIC_AT)
    if is_found_at_start:  # without snapshots the node reads all of it, and else what it is asked for
        for snapshot in directory.rglob("*.snapshot"):
            snapshot.unlink()
    files = files_of(directory)
    node.start()
    return files


@pytest.mark.parametrize("is_found_at_start", [True, False], ids=["found at the start", "found by a receive"])
def test_a_byte_that_changed_in_one_partition_leaves_the_others_at_work(
    node: NodeProcess, is_found_at_start: bool
) -> None:
    files = make_damaged(node, is_found_at_start=is_found_at_start)

    messages = ask(node, "GET", f"{MESSAGES}?batch_size=10")["messages"]
    assert sorted(message["body"] for message in messages) == ["old 0", "old 2"]
    for message in messages:
        ask(node, "DELETE", f"{MESSAGES}/{message['receipt_handle']}", status=204)
    sent = [ask(node, "POST", MESSAGES, {"message": number}, status=201)["partition"] for number in range(6)]
    assert set(sent) == {0, 2}
    assert len(ask(node, "GET", f"{MESSAGES}?batch_size=10")["messages"]) == 6

    refused = ask(node, "POST", MESSAGES, {"message": "new", "key": key_of(LOST)}, status=503)
    assert (refused["code"], refused["retriable"]) == ("partition_offline", True)
    for part in (f"partition {LOST} of queue orders is offline", "magic expected 2", "restore the file"):
        assert part in refused["detail"]
    assert ask(node, "POST", f"{QUEUE}/purge", status=503)["code"] == "partition_offline"

    (offline,) = ask(node, "GET", QUEUE)["offline"]
    assert (offline["partition"], "magic expected 2" in offline["reason"]) == (LOST, True)
    assert [one["partition"] for one in ask(node, "GET", f"{QUEUE}/browse")["offline"]] == [LOST]
    assert [reason["code"] for reason in ask(node, "GET", "/health", status=503)["reasons"]] == ["partition_offline"]
    assert 'headrace_queue_partitions_offline{queue="orders"} 1' in fetch(node, "/metrics")

    assert node.stop() == 0, node.log_text()
    assert files_of(partition_directory(node, LOST)) == files


def test_a_client_sends_and_receives_while_a_partition_is_offline(node: NodeProcess) -> None:
    make_damaged(node, is_found_at_start=True)
    with Client(node.http) as client:
        queue = client.queue("orders")
        assert [one.partition for one in queue.describe().offline] == [LOST]
        assert [one.partition for one in queue.browse().offline] == [LOST]
        assert {queue.send(f"{number}", key=key_of(0)).partition for number in range(3)} == {0}
        assert sorted(message.text for message in queue.receive(10)) == ["0", "1", "2", "old 0", "old 2"]


def test_people_at_a_terminal_are_told_what_the_figures_leave_out(node: NodeProcess) -> None:
    make_damaged(node, is_found_at_start=True)
    for command in (["list"], ["describe", "orders"], ["browse", "orders"]):
        done = subprocess.run(
            [*HEADRACE, "queue", *command, "--http", node.http], capture_output=True, text=True, timeout=30, check=True
        )
        assert f"orders: partition {LOST} is offline" in done.stderr
        assert "magic expected 2" in done.stderr


def test_a_partition_whose_byte_is_put_right_is_there_again(node: NodeProcess) -> None:
    make_damaged(node, is_found_at_start=True)
    assert node.stop() == 0, node.log_text()
    (segment,) = partition_directory(node, LOST).glob("*.log")
    flip_byte(segment, MAGIC_AT)
    node.start()
    assert ask(node, "GET", QUEUE)["offline"] == []
    messages = ask(node, "GET", f"{MESSAGES}?batch_size=10")["messages"]
    assert sorted(message["body"] for message in messages) == ["old 0", "old 1", "old 2"]
