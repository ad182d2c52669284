"""A real node on a small file system that fills up to the last byte, with real clients (failure row 21).

What they may still do there: read, receive, acknowledge, delete. What they may not: send. Nothing of that needs a
restart, neither when the disk fills up nor when there is space again. The checker knows what the clients were told.
"""

import os
import subprocess
import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic
from tests.cluster.produce import NONE, STORAGE_ERROR, make_topic, send
from tests.compat.clients.every import CONFLUENT
from tests.compat.sqs import connect
from tests.support.node import NodeProcess, running
from tests.support.wait import wait_until

from headrace import Client, HeadraceError
from headrace.client.queue.sync import Message, Queue
from headrace.client.settings import QueueClientConfig
from headrace.model.errors import DiskFullError

MIB = 1024 * 1024
RESERVE = 8 * MIB
SETTINGS = {
    "log.journal_bytes": 2 * MIB,
    "log.disk_reserve_bytes": RESERVE,
    "log.disk_ballast_bytes": 4 * MIB,
    "log.disk_check_interval_ms": 100,
    "log.maintenance_interval_ms": 200,
}
QUICK = QueueClientConfig(deadline_ms=5_000, retries=False)


@pytest.fixture
def volume(tmp_path: Path) -> Iterator[Path]:
    """A file system of 64 MiB."""
    path = tmp_path / "volume"
    path.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=64m", "tmpfs", str(path)], capture_output=True, text=True, check=False
    )
    if mounted.returncode:
        pytest.skip(f"NOT TESTED: a full disk needs a small tmpfs, and mount failed: {mounted.stderr.strip()}")
    try:
        yield path
    finally:
        subprocess.run(["umount", "-l", str(path)], check=True)


@pytest.fixture
def node(volume: Path) -> Iterator[NodeProcess]:
    with running(volume / "data", settings=SETTINGS) as started:
        yield started


def free_bytes(volume: Path) -> int:
    status = os.statvfs(volume)
    return status.f_bavail * status.f_frsize


def fill(volume: Path) -> None:
    """Have another program write until nothing is free."""
    zeros = bytes(64 * 1024)
    with (volume / "filler").open("ab", buffering=0) as file, suppress(OSError):
        while file.write(zeros):
            pass
    with (volume / "filler").open("ab", buffering=0) as file, suppress(OSError):
        while file.write(zeros[:1]):
            pass
    assert free_bytes(volume) == 0


def offline(node: NodeProcess) -> list[object]:
    return [*node.said("offline"), *node.said("refused to open")]


def can_send(node: NodeProcess, topic: str) -> bool:
    return send(node, topic, b"probe").error_code == NONE


def test_a_burst_of_sends_stops_before_the_reserve(volume: Path) -> None:
    # The file system is asked once an hour: what protects the reserve is that every write is charged.
    settings = SETTINGS | {"log.disk_check_interval_ms": 3_600_000}
    with running(volume / "data", settings=settings) as node:
        admin = AdminClient({"bootstrap.servers": node.server, "log_level": 0})
        for created in admin.create_topics([NewTopic("burst", 4), NewTopic("other", 1)]).values():
            created.result(10)
        acknowledged: set[tuple[int, int]] = set()
        failed = threading.Event()

        def told(error: object, message: object) -> None:
            if error is not None:
                failed.set()
            else:
                acknowledged.add((message.partition(), message.offset()))  # type: ignore[attr-defined]

        producer = Producer(
            {"bootstrap.servers": node.server, "message.timeout.ms": 3000, "linger.ms": 5, "log_level": 0}
        )
        value = os.urandom(100_000)
        while not failed.is_set():
            with suppress(BufferError):
                producer.produce("burst", value, on_delivery=told)
            producer.poll(0.001)
        producer.purge()
        producer.flush(10)
        assert send(node, "other", b"refused").error_code == STORAGE_ERROR
        print(f"acknowledged {len(acknowledged)} records of 100 kB; {free_bytes(volume)} bytes are free")
        # What arrived in the turn in which the reserve was reached is refused, too.
        assert free_bytes(volume) >= RESERVE - MIB
        assert not offline(node)
        for partition in range(4):
            end = max((offset for place, offset in acknowledged if place == partition), default=-1)
            stored = CONFLUENT.read(node.server, "burst", partition=partition)
            assert len(stored) > end


def test_a_full_disk_takes_acknowledgements_and_deletes_and_recovers_by_itself(node: NodeProcess, volume: Path) -> None:
    with Client(node.http, config=QUICK) as client:
        queue = client.queue("orders")
        sent = {f"order {number}" for number in range(400)}
        for number in range(0, 400, 100):
            queue.send_many([f"order {at}" for at in range(number, number + 100)])
        make_topic(node, "stream")
        make_topic(node, "doomed")
        done: set[str] = set()

        fill(volume)
        print(f"filled: {free_bytes(volume)} bytes are free")
        wait_until(lambda: bool(node.said("disk reserve reached")), deadline_s=10, what="the node notices")
        with pytest.raises(DiskFullError):
            queue.send("refused")
        assert send(node, "stream", b"refused").error_code == STORAGE_ERROR
        done |= work_off(queue, 100)
        assert [one.value for _, one in CONFLUENT.read(node.server, "stream")] == [b"first"]
        delete_one_over_sqs(node, done)
        admin = AdminClient({"bootstrap.servers": node.server, "log_level": 0})
        (deleted,) = admin.delete_topics(["doomed"]).values()
        deleted.result(10)
        fill(volume)
        done |= work_off(queue, 50)
        assert not offline(node)

    node.kill()
    fill(volume)
    print(f"killed and filled: {free_bytes(volume)} bytes are free at the start")
    node.start()
    with Client(node.http, config=QUICK) as client:
        queue = client.queue("orders")
        with pytest.raises(HeadraceError):
            queue.send("refused")
        done |= work_off(queue, 100)
        fill(volume)
        done |= work_off(queue, 50)
        assert not offline(node)
        (volume / "filler").unlink()
        wait_until(lambda: can_send(node, "stream"), deadline_s=20, what="sends are accepted again")
        queue.send("after")

    assert node.stop() == 0, node.log_text()
    node.start()
    with Client(node.http, config=QUICK) as client:
        left = {message.text for message in drain(client.queue("orders"))}
    print(f"acknowledged at a full disk: {len(done)}; left afterwards: {len(left)}")
    assert left == (sent - done) | {"after"}


def work_off(queue: Queue, count: int) -> set[str]:
    """Receive and acknowledge so many messages."""
    done: set[str] = set()
    while len(done) < count:
        messages = queue.receive(max=count - len(done), wait=5)
        assert messages, f"only {len(done)} of {count} were received"
        for message in messages:
            message.ack()
            done.add(message.text)
    return done


def drain(queue: Queue) -> list[Message]:
    found: list[Message] = []
    while messages := queue.receive(max=100, wait=1):
        queue.acknowledge_all(messages)
        found += messages
    return found


def delete_one_over_sqs(node: NodeProcess, done: set[str]) -> None:
    client = connect(node)
    url = client.get_queue_url(QueueName="orders")["QueueUrl"]
    (message,) = client.receive_message(QueueUrl=url, MaxNumberOfMessages=1, WaitTimeSeconds=5)["Messages"]
    client.delete_message(QueueUrl=url, ReceiptHandle=message["ReceiptHandle"])
    done.add(message["Body"])
