"""Clients that ask for much and read nothing, beside one that behaves: the node's memory stays bounded.

Each attack sends a few kilobytes and would, unbounded, have the node hold more than a gigabyte of answers. What may be
resident is the budget for answers and as much again for what is in the making, with room to spare; without the budget
each of them goes far beyond that.
"""

import http.client
import json
import os
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

import psutil
import pytest
from tests.support.node import NodeProcess, running
from tests.support.wait import wait_until

from headrace.wire.kafka.frame import encode_request
from headrace.wire.kafka.messages.fetch import FetchPartition, FetchRequest, FetchTopic

MIB = 1024 * 1024
BUDGET = 64 * MIB
RESIDENT_MAX = 3 * BUDGET
MESSAGE_BYTES = 100_000
MESSAGES = 400
IS_LONG = "HEADRACE_LONG" in os.environ
CONNECTIONS = 200 if IS_LONG else 30
PIPELINED = 30
DEADLINE_S = 60.0
SETTINGS = {"answers.bytes_max": BUDGET, "answers.stalled_ms_max": 1_000, "http.limits.sweep_ms": 200}


@pytest.fixture
def node(tmp_path: Path) -> Iterator[NodeProcess]:
    with running(tmp_path / "data", settings=SETTINGS) as started:
        fill(started, "big")
        yield started


def ask(node: NodeProcess, method: str, target: str, value: Any = None) -> tuple[int, bytes]:
    with closing(http.client.HTTPConnection(node.http, timeout=DEADLINE_S)) as connection:
        body = None if value is None else json.dumps(value)
        connection.request(method, target, body, {} if body is None else {"content-type": "application/json"})
        answer = connection.getresponse()
        return answer.status, answer.read()


def fill(node: NodeProcess, queue: str) -> None:
    for _ in range(MESSAGES // 10):
        messages = [{"message": "x" * MESSAGE_BYTES}] * 10
        assert ask(node, "POST", f"/queues/{queue}/messages", {"messages": messages})[0] == 200


def metric(node: NodeProcess, name: str) -> float:
    _, text = ask(node, "GET", "/metrics")
    (line,) = [line for line in text.decode().splitlines() if line.startswith(f"{name} ")]
    return float(line.split()[1])


def http_request(target: str, *, method: str = "GET", body: bytes = b"", **headers: str) -> bytes:
    lines = [f"{name.replace('_', '-')}: {value}\r\n" for name, value in headers.items()]
    return (
        f"{method} {target} HTTP/1.1\r\nHost: localhost\r\n{''.join(lines)}Content-Length: {len(body)}\r\n\r\n".encode()
        + body
    )


def fetch(*, topic: str = "big", offset: int = 0, bytes_min: int = 1, wait_ms: int = 0) -> bytes:
    request = FetchRequest(
        replica_id=-1,
        max_wait_ms=wait_ms,
        min_bytes=bytes_min,
        max_bytes=55 * MIB,
        isolation_level=0,
        topics=(
            FetchTopic(
                topic=topic,
                partitions=(FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=55 * MIB),),
            ),
        ),
    )
    return encode_request(1, 4, 1, "attacker", request)


RECEIVE = json.dumps(
    {"QueueUrl": "http://localhost/000000000000/big", "MaxNumberOfMessages": 10, "VisibilityTimeout": 0}
).encode()
ATTACKS: dict[str, tuple[str, bytes]] = {
    "browse": ("http", http_request("/queues/big/browse?limit=1000") * PIPELINED),
    "receive": ("http", http_request("/queues/big/messages?batch_size=100&lease=0.001&wait=20") * PIPELINED),
    "SQS receive": (
        "http",
        http_request(
            "/",
            method="POST",
            body=RECEIVE,
            content_type="application/x-amz-json-1.0",
            x_amz_target="AmazonSQS.ReceiveMessage",
        )
        * PIPELINED,
    ),
    "fetch": ("kafka", fetch() * PIPELINED),
    "fetch that wants more than there is": ("kafka", fetch(bytes_min=2**31 - 1, wait_ms=60_000) * PIPELINED),
    "fetch behind one that waits": ("kafka", fetch(topic="idle", wait_ms=60_000) + fetch() * PIPELINED),
    "browse behind a receive that waits": (
        "http",
        http_request("/queues/idle/messages?wait=50") + http_request("/queues/big/browse?limit=1000") * PIPELINED,
    ),
}


@pytest.mark.parametrize("name", ATTACKS)
def test_clients_that_do_not_read_do_not_fill_the_memory(node: NodeProcess, name: str) -> None:
    port, data = ATTACKS[name]
    ask(node, "PUT", "/queues/idle", {})
    process = psutil.Process(node.pid)
    before = process.memory_info().rss
    statuses: dict[str, set[int]] = {"send": set(), "look": set()}
    counts = {"send": 0, "look": 0}
    over = threading.Event()

    def behave(kind: str, act: Callable[[], int]) -> None:
        while not over.is_set():
            statuses[kind].add(act())
            counts[kind] += 1

    send = threading.Thread(
        target=behave, args=("send", lambda: ask(node, "POST", "/queues/own/messages", {"message": "x"})[0])
    )
    look = threading.Thread(target=behave, args=("look", lambda: ask(node, "GET", "/queues/big/browse?limit=2")[0]))
    with ExitStack() as stack:
        stack.callback(look.join)
        stack.callback(send.join)
        stack.callback(over.set)
        for _ in range(CONNECTIONS):
            attacker = stack.enter_context(socket.socket())
            attacker.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
            address = node.http if port == "http" else node.server
            attacker.connect(("127.0.0.1", int(address.rpartition(":")[2])))
            attacker.sendall(data)
        send.start()
        look.start()
        peak = 0

        def is_served() -> bool:
            nonlocal peak
            peak = max(peak, process.memory_info().rss)
            return counts["send"] >= 200 and counts["look"] >= 20

        wait_until(is_served, deadline_s=DEADLINE_S, what=lambda: f"a client that behaves is served: {counts}")
    print(f"{name}: {len(data) * CONNECTIONS} bytes sent, {before // MIB} MiB before, {peak // MIB} MiB at most")
    assert statuses == {"send": {201}, "look": {200}}
    assert peak - before < RESIDENT_MAX, f"{(peak - before) // MIB} MiB more than before"
    wait_until(lambda: metric(node, "headrace_kafka_connections_open") == 0, deadline_s=DEADLINE_S, what="all are gone")
    # The metrics themselves are an answer that is in the making.
    wait_until(
        lambda: metric(node, "headrace_answers_held_bytes") <= MIB, deadline_s=DEADLINE_S, what="all is given back"
    )
    assert not node.said("failed"), node.said("failed")
