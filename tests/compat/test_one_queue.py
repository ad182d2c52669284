"""One queue worked by boto3, plain HTTP and the Python client at once, while a Kafka consumer reads it by offset."""

import json
import threading
import urllib.request
from collections import Counter
from pathlib import Path
from typing import Any

import boto3
from botocore.config import Config
from confluent_kafka import Consumer, TopicPartition
from tests.support.node import NodeProcess, running
from tests.support.wait import wait_until

from headrace import Client

COUNT = 600
NAME = "orders"


class Tally:
    """Who handled what."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.handled: Counter[str] = Counter()
        self.by_door: Counter[str] = Counter()

    def add(self, door: str, body: str) -> None:
        with self._lock:
            self.handled[body] += 1
            self.by_door[door] += 1

    @property
    def is_done(self) -> bool:
        with self._lock:
            return len(self.handled) >= COUNT


def sqs(node: NodeProcess) -> Any:
    return boto3.client(
        "sqs",
        endpoint_url=f"http://{node.http}",
        region_name="us-east-1",
        aws_access_key_id="any",
        aws_secret_access_key="any",
        config=Config(retries={"max_attempts": 1}),
    )


def work_by_boto3(node: NodeProcess, tally: Tally) -> None:
    client = sqs(node)
    url = client.get_queue_url(QueueName=NAME)["QueueUrl"]
    while not tally.is_done:
        found = client.receive_message(QueueUrl=url, MaxNumberOfMessages=5, WaitTimeSeconds=1).get("Messages", [])
        for message in found:
            tally.add("boto3", message["Body"])
        if found:
            entries = [{"Id": str(at), "ReceiptHandle": one["ReceiptHandle"]} for at, one in enumerate(found)]
            assert not client.delete_message_batch(QueueUrl=url, Entries=entries).get("Failed")


def work_by_http(node: NodeProcess, tally: Tally) -> None:
    base = f"http://{node.http}/queues/{NAME}/messages"
    while not tally.is_done:
        with urllib.request.urlopen(f"{base}?batch_size=5&wait=1", timeout=10) as answer:
            found = json.load(answer)["messages"]
        for message in found:
            tally.add("http", message["body"])
            delete = urllib.request.Request(f"{base}/{message['receipt_handle']}", method="DELETE")
            with urllib.request.urlopen(delete, timeout=10) as answer:
                assert answer.status == 204


def work_by_client(node: NodeProcess, tally: Tally) -> None:
    with Client(node.http) as client:
        queue = client.queue(NAME)
        while not tally.is_done:
            for message in queue.receive(max=5, wait=1):
                with message:
                    tally.add("client", message.text)


def send_everything(node: NodeProcess) -> set[str]:
    """A third through each door."""
    bodies = [f"message {number}" for number in range(COUNT)]
    client = sqs(node)
    url = client.get_queue_url(QueueName=NAME)["QueueUrl"]
    for start in range(0, COUNT // 3, 10):
        entries = [{"Id": str(at), "MessageBody": bodies[start + at]} for at in range(10)]
        assert not client.send_message_batch(QueueUrl=url, Entries=entries).get("Failed")
    for body in bodies[COUNT // 3 : 2 * COUNT // 3]:
        request = urllib.request.Request(
            f"http://{node.http}/queues/{NAME}/messages",
            data=json.dumps({"message": body}).encode(),
            headers={"Content-Type": "application/json"},
        )
        with urllib.request.urlopen(request, timeout=10) as answer:
            assert answer.status == 201
    with Client(node.http) as ours:
        ours.queue(NAME).send_many(bodies[2 * COUNT // 3 :])
    return set(bodies)


def read_by_offset(node: NodeProcess, expected_count: int, partitions: int) -> list[str]:
    consumer = Consumer({"bootstrap.servers": node.server, "group.id": "reader", "enable.auto.commit": False})
    try:
        consumer.assign([TopicPartition(NAME, partition, 0) for partition in range(partitions)])
        found: list[str] = []

        def read() -> bool:
            for message in consumer.consume(100, timeout=0.2):
                assert message.error() is None
                found.append(message.value().decode())
            return len(found) >= expected_count

        wait_until(read, deadline_s=60, what=lambda: f"the reader has {len(found)} of {expected_count}")
        return found
    finally:
        consumer.close()


def test_each_message_is_handled_once_whatever_the_door_and_a_kafka_reader_sees_every_one(tmp_path: Path) -> None:
    with running(tmp_path / "data") as node:
        with Client(node.http) as client:
            client.queue(NAME).create(partitions=3, history=3600)
        tally = Tally()
        works = (work_by_boto3, work_by_http, work_by_client)
        failures: list[BaseException] = []

        def guarded(work: Any) -> None:
            try:
                work(node, tally)
            except BaseException as error:  # noqa: BLE001 - it is the test's to raise
                failures.append(error)

        threads = [threading.Thread(target=guarded, args=(work,), daemon=True) for work in works]
        for thread in threads:
            thread.start()
        sent = send_everything(node)
        read = read_by_offset(node, COUNT, 3)
        wait_until(lambda: tally.is_done or bool(failures), deadline_s=60, what=lambda: f"{len(tally.handled)} handled")
        for thread in threads:
            thread.join(30)
        assert not failures, failures
        assert tally.handled == Counter(sent)
        assert set(tally.by_door) == {"boto3", "http", "client"}
        assert sorted(read) == sorted(sent)
