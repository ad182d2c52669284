"""Connections that take up every place and ask for nothing, from many addresses. Who works goes on, newcomers too."""

import http.client
import socket
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path

import pytest
from tests.cluster.produce import make_topic, must_send, touch_metadata
from tests.support.node import NodeProcess, running
from tests.support.wait import wait_until
from tests.support.wire import Wire

PLACES = 60
ATTACKERS = 400
ADDRESSES = 200
DEADLINE_S = 20.0
SETTINGS = {"http.limits.connections_max": PLACES, "kafka.limits.connections_max": PLACES}
HALF_A_HEAD = b"GET /queues HTTP/1.1\r\nHost: loc"
HALF_A_FRAME = b"\x00\x00\x01\x00half"


@contextmanager
def crowd(port: int, data: bytes, *, addresses: int = ADDRESSES) -> Iterator[None]:
    """Attackers that connect, send the beginning of a request, and wait."""
    with ExitStack() as stack:
        for number in range(ATTACKERS):
            attacker = stack.enter_context(socket.socket())
            attacker.settimeout(DEADLINE_S)
            attacker.bind((f"127.0.1.{1 + number % addresses}", 0))
            attacker.connect(("127.0.0.1", port))
            attacker.sendall(data)
        yield


def look(node: NodeProcess) -> int:
    with closing(http.client.HTTPConnection(node.http, timeout=DEADLINE_S)) as connection:
        connection.request("GET", "/queues")
        return connection.getresponse().status


@pytest.mark.parametrize("addresses", [ADDRESSES, 1])
def test_half_sent_heads_lock_nobody_out(tmp_path: Path, addresses: int) -> None:
    with running(tmp_path / "data", settings=SETTINGS) as node, ExitStack() as stack:
        port = int(node.http.rpartition(":")[2])
        waiting = stack.enter_context(closing(http.client.HTTPConnection(node.http, timeout=DEADLINE_S)))
        waiting.request("PUT", "/queues/orders", "{}", {"content-type": "application/json"})
        waiting.getresponse().read()
        waiting.request("GET", "/queues/orders/messages?wait=50")
        idle = stack.enter_context(closing(http.client.HTTPConnection(node.http, timeout=DEADLINE_S)))
        idle.request("GET", "/")
        idle.getresponse().read()
        stack.enter_context(crowd(port, HALF_A_HEAD, addresses=addresses))
        for _ in range(20):
            assert look(node) == 200
        idle.request("GET", "/")
        assert idle.getresponse().status == 200, "it works, so it has kept its place"
        with closing(http.client.HTTPConnection(node.http, timeout=DEADLINE_S)) as sender:
            sender.request(
                "POST", "/queues/orders/messages", '{"message": "tea"}', {"content-type": "application/json"}
            )
            assert sender.getresponse().status == 201
        assert b"tea" in waiting.getresponse().read(), "a request in progress keeps its place"
        assert node.said("HTTP connections displaced")


def test_half_sent_frames_lock_nobody_out(tmp_path: Path) -> None:
    with running(tmp_path / "data", settings=SETTINGS) as node, Wire(node.server) as idle:
        make_topic(node, "orders")
        touch_metadata(idle, "orders")
        with crowd(node.port, HALF_A_FRAME):
            for _ in range(20):
                must_send(node, "orders", b"tea")
            touch_metadata(idle, "orders")


def test_a_crowd_on_few_descriptors_takes_none_of_the_logs(tmp_path: Path) -> None:
    few = SETTINGS | {"log.open_files_max": 32, "kafka.limits.connections_max": 20}
    with running(tmp_path / "data", settings=few, open_files=260) as node:
        port = int(node.http.rpartition(":")[2])
        with crowd(port, HALF_A_HEAD), crowd(node.port, HALF_A_FRAME):
            for number in range(40):
                make_topic(node, f"orders-{number}")
            wait_until(lambda: look(node) == 200, deadline_s=DEADLINE_S, what="HTTP is served")
        assert not [line for line in node.log_lines() if line["level"] in ("error", "critical")]
