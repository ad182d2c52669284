"""confluent-kafka's share consumer (a preview) at a queue, beside consumers that come by HTTP.

What the preview does not reach (renewing leases, describing share groups, version 2) is tested with frames in
tests/gateways/kafka/test_share.py.
"""

import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import AcknowledgeType, KafkaException, Producer, ShareConsumer
from tests.support.node import NodeProcess, running
from tests.support.wait import wait_until

from headrace import Client, Queue

POLL_S = 0.2
DEADLINE_S = 30.0


@pytest.fixture
def queue(node: NodeProcess, topic: str) -> Iterator[Queue]:
    with Client(node.http) as client:
        yield client.queue(topic)


@contextmanager
def sharing(node: NodeProcess, topic: str, group: str = "workers", **options: Any) -> Iterator[Any]:
    consumer = ShareConsumer(
        {
            "bootstrap.servers": node.server,
            "group.id": group,
            "share.acknowledgement.mode": "explicit",
            "reconnect.backoff.max.ms": 200,
            "log_level": 0,
            **{name.replace("_", "."): value for name, value in options.items()},
        }
    )
    try:
        consumer.subscribe([topic])
        yield consumer
    finally:
        consumer.close()


def poll(consumer: Any) -> list[Any]:
    """What the next fetch brings, once it brings something."""
    found: list[Any] = []

    def look() -> bool:
        found.extend(consumer.poll(POLL_S))
        return bool(found)

    wait_until(look, deadline_s=DEADLINE_S, what="a share consumer was handed a message")
    assert all(message.error() is None for message in found)
    return found


def settle(consumer: Any, message: Any, how: AcknowledgeType = AcknowledgeType.ACCEPT) -> None:
    consumer.acknowledge(message, how)
    assert all(error is None for error in consumer.commit_sync(10.0).values())


class Tally:
    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.handled: Counter[str] = Counter()
        self.by_door: Counter[str] = Counter()

    def add(self, door: str, bodies: list[str]) -> None:
        with self._lock:
            self.handled.update(bodies)
            self.by_door[door] += len(bodies)

    @property
    def count(self) -> int:
        with self._lock:
            return len(self.handled)


def test_each_message_is_handled_once_by_share_consumers_of_two_groups_or_by_http(
    node: NodeProcess, topic: str, queue: Queue
) -> None:
    queue.create(partitions=3)
    bodies = [f"m{at}" for at in range(600)]
    tally, failures = Tally(), list[BaseException]()

    def share(group: str) -> None:
        with sharing(node, topic, group, max_poll_records=20) as consumer:
            while tally.count < len(bodies):
                messages = list(consumer.poll(POLL_S))
                for message in messages:
                    consumer.acknowledge(message)
                if messages:
                    assert all(error is None for error in consumer.commit_sync(10.0).values())
                    tally.add(group, [message.value().decode() for message in messages])

    def receive() -> None:
        with Client(node.http) as client:
            while tally.count < len(bodies):
                messages = client.queue(topic).receive(max=10, wait=0.2)
                for message in messages:
                    message.ack()
                tally.add("http", [message.body.decode() for message in messages])

    def guarded(work: Any, *arguments: str) -> None:
        try:
            work(*arguments)
        except BaseException as error:  # noqa: BLE001 - it is the test's to raise
            failures.append(error)

    works = [(share, "workers"), (share, "others"), (receive,)]
    threads = [threading.Thread(target=guarded, args=work, daemon=True) for work in works]
    for thread in threads:
        thread.start()
    producer = Producer({"bootstrap.servers": node.server, "log_level": 0})
    for body in bodies[:300]:
        producer.produce(topic, body.encode())
    producer.flush()
    for at in range(300, 600, 20):
        queue.send_many(bodies[at : at + 20])
    wait_until(
        lambda: tally.count == len(bodies) or bool(failures), deadline_s=60, what=lambda: f"{tally.count} handled"
    )
    for thread in threads:
        thread.join(30)
    assert not failures, failures
    assert tally.handled == Counter(bodies)
    assert set(tally.by_door) == {"workers", "others", "http"}
    assert queue.describe().counts.acknowledged == len(bodies)


def test_what_a_killed_share_consumer_held_is_handed_out_again_to_whoever_comes(
    node: NodeProcess, topic: str, queue: Queue, tmp_path: Path
) -> None:
    queue.create(partitions=1, lease=2)
    queue.send("a")
    notes = tmp_path / "notes"
    command = [sys.executable, "-m", "tests.compat.share_member", node.server, "workers", topic, str(notes)]
    member = subprocess.Popen(command, stdin=subprocess.PIPE)
    try:
        wait_until(
            lambda: notes.exists() and notes.read_text() == "a\n", deadline_s=DEADLINE_S, what="it holds the message"
        )
        assert queue.receive(max=1, wait=0) == []
    finally:
        member.kill()
        member.communicate(timeout=10)
    with sharing(node, topic) as consumer:
        (message,) = poll(consumer)
        assert (message.value(), message.delivery_count()) == (b"a", 2)
        settle(consumer, message)
    assert queue.describe().counts.acknowledged == 1


def test_a_released_message_comes_again_with_its_delivery_count_and_a_rejected_one_is_a_dead_letter(
    node: NodeProcess, topic: str, queue: Queue
) -> None:
    queue.create(partitions=1)
    queue.send("again")
    with sharing(node, topic) as consumer:
        (message,) = poll(consumer)
        assert message.delivery_count() == 1
        settle(consumer, message, AcknowledgeType.RELEASE)
        (message,) = poll(consumer)
        assert message.delivery_count() == 2
        settle(consumer, message, AcknowledgeType.REJECT)
    with Client(node.http) as client:
        name = f"{topic}-dead"
        wait_until(lambda: name in client.queues(), deadline_s=30, what="there is a queue of dead letters")
        (dead,) = client.queue(name).receive(max=10, wait=10)
        assert dead.body == b"again"
        dead.ack()
    assert queue.describe().counts.leased == 0


def test_a_share_consumer_that_closes_gives_back_what_it_did_not_acknowledge(
    node: NodeProcess, topic: str, queue: Queue
) -> None:
    queue.create(partitions=1, lease=3600)
    queue.send("a")
    with sharing(node, topic) as consumer:
        assert len(poll(consumer)) == 1
    (received,) = queue.receive(max=1, wait=10)
    assert (received.body, received.attempt) == (b"a", 2)
    received.ack()


def test_an_acknowledgement_after_the_lease_is_refused(node: NodeProcess, topic: str, queue: Queue) -> None:
    queue.create(partitions=1, lease=0.5)
    queue.send("a")
    with sharing(node, topic) as consumer:
        (message,) = poll(consumer)
        (again,) = queue.receive(max=1, wait=10, lease=60)
        consumer.acknowledge(message)
        (error,) = consumer.commit_sync(10.0).values()
        assert isinstance(error, KafkaException)
        assert error.args[0].name() == "INVALID_RECORD_STATE"
        again.ack()


def test_records_are_accepted_with_the_next_poll_where_the_client_does_that(
    node: NodeProcess, topic: str, queue: Queue
) -> None:
    queue.create(partitions=2)
    queue.send_many(["a", "b", "c"])
    with sharing(node, topic, share_acknowledgement_mode="implicit") as consumer:
        found = 0
        while found < 3:
            found += len(poll(consumer))
        consumer.poll(POLL_S)
        wait_until(lambda: queue.describe().counts.acknowledged == 3, deadline_s=30, what="all three are acknowledged")


def test_a_topic_that_is_no_queue_is_refused(node: NodeProcess, topic: str) -> None:
    producer = Producer({"bootstrap.servers": node.server, "log_level": 0})
    producer.produce(topic, b"a")
    producer.flush()
    with sharing(node, topic) as consumer, pytest.raises(KafkaException) as refused:
        wait_until(lambda: bool(consumer.poll(POLL_S)), deadline_s=DEADLINE_S, what="it is refused")
    assert refused.value.args[0].name() == "INVALID_REQUEST"


@pytest.mark.parametrize("is_killed", [True, False], ids=["kill", "stop"])
def test_a_share_consumer_goes_on_after_a_restart_of_the_node(tmp_path: Path, is_killed: bool) -> None:
    with running(tmp_path / "data") as node:
        with Client(node.http) as client:
            client.queue("orders").create(partitions=1, lease=1)
            client.queue("orders").send("a")
        with sharing(node, "orders") as consumer:
            (message,) = poll(consumer)
            settle(consumer, message)
            if is_killed:
                node.kill()
            else:
                assert node.stop() == 0
            node.start()
            with Client(node.http) as client:
                client.queue("orders").send("b")
            (message,) = poll(consumer)
            assert message.value() == b"b"
            settle(consumer, message)
