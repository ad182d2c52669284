"""File descriptors that run short: refuse to start, close what is least used, turn connections away (row 25)."""

import socket
import time
from pathlib import Path

import psutil
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic
from tests.cluster.produce import make_topic, must_send, touch_metadata
from tests.compat.clients.every import CONFLUENT
from tests.support.node import NodeProcess, running
from tests.support.wait import wait_until
from tests.support.wire import Wire

PARTITIONS = 300


def test_limits_that_the_machine_cannot_hold_refuse_to_start(tmp_path: Path) -> None:
    node = NodeProcess(tmp_path / "data", open_files=200)
    node.launch()
    assert node.wait_exit() == 1
    assert "file descriptors" in node.log_text()
    assert "ulimit -n" in node.log_text()
    assert "Traceback" not in node.log_text()


def send_to_every_partition(node: NodeProcess) -> None:
    admin = AdminClient({"bootstrap.servers": node.server, "log_level": 0})
    (made,) = admin.create_topics([NewTopic("wide", PARTITIONS, 1)]).values()
    made.result(60)
    errors: list[str] = []
    producer = Producer(
        {"bootstrap.servers": node.server, "enable.idempotence": True, "message.timeout.ms": 8000, "log_level": 0}
    )
    for _ in range(2):
        for index in range(PARTITIONS):
            producer.produce(
                "wide",
                b"%d" % index,
                partition=index,
                on_delivery=lambda error, _: errors.append(str(error)) if error else None,
            )
        assert producer.flush(20) == 0
        assert not errors, (len(errors), errors[0], node.log_text()[-1000:])
    for index in range(0, PARTITIONS, PARTITIONS // 10):
        found = CONFLUENT.read(node.server, "wide", partition=index)
        assert [one.value for _, one in found] == [b"%d" % index] * 2
    assert not [line for line in node.log_lines() if line["level"] in ("error", "critical")]


FEW_FILES = {"log.open_files_max": 32, "kafka.limits.connections_max": 50, "http.limits.connections_max": 10}


def test_more_partitions_than_open_files_all_work(tmp_path: Path) -> None:
    with running(tmp_path / "data", settings=FEW_FILES, open_files=1024) as node:
        send_to_every_partition(node)


def test_more_partitions_than_descriptors_all_work(tmp_path: Path) -> None:
    with running(tmp_path / "data", settings=FEW_FILES, open_files=256) as node:
        send_to_every_partition(node)


def test_connections_above_the_limit_are_turned_away_without_a_busy_loop(tmp_path: Path) -> None:
    limit = 20
    with running(tmp_path / "data", settings={"kafka.limits.connections_max": limit}) as node:
        make_topic(node, "orders")
        with Wire(node.server) as served:
            touch_metadata(served, "orders")
            more = [socket.create_connection(("127.0.0.1", node.port), timeout=20) for _ in range(limit * 3)]
            try:
                process = psutil.Process(node.pid)
                before = process.cpu_times()
                begin_s = time.monotonic()
                while time.monotonic() - begin_s < 1.0:
                    touch_metadata(served, "orders")  # those who are in are served
                    time.sleep(0.05)  # a light load, so that what is measured is the rest
                after = process.cpu_times()
                assert (after.user + after.system) - (before.user + before.system) < 0.5
                assert sum(is_closed(one) for one in more) >= limit * 2
            finally:
                for one in more:
                    one.close()

        def is_served() -> bool:
            try:
                must_send(node, "orders", b"again")
            except OSError:
                return False
            return True

        wait_until(is_served, deadline_s=20, what="new connections are served again")


def is_closed(connection: socket.socket) -> bool:
    connection.setblocking(False)
    try:
        return connection.recv(1) == b""
    except BlockingIOError:
        return False
    except ConnectionResetError:
        return True
