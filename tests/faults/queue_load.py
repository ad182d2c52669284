"""Senders and workers of queues: plain HTTP with urllib3, and the SQS API with boto3. Neither retries by itself.

`plain` is a queue of the HTTP interface with guarantee exactly once, `standard` and `ordered.fifo` are SQS queues. A
send whose answer is lost is repeated with its deduplication id where the queue has them, and left open where not.
Workers acknowledge most of what they get and forget the rest, as workers that die do.
"""

import json
import random
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any, Protocol

import boto3
import urllib3
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError
from tests.faults.client import DEADLINE_S, LoadClient
from tests.faults.history import Delivered, History, Outcome, Queue
from tests.support.wait import wait_until

_LEASE_S = 3
PLAIN = Queue(name="plain", exactly_once=True, deduplicated=True)
STANDARD = Queue(name="standard", quiet_after_s=_LEASE_S)
ORDERED = Queue(name="ordered.fifo", by_key=True, deduplicated=True)
QUEUES = (PLAIN, STANDARD, ORDERED)

_FORGOTTEN = 0.1  # of what workers get
_PAUSE_S = 0.01


class Unclear(Exception):
    """No answer, or one that leaves open whether the call was carried out."""


class Refused(Exception):
    """An answer that says that the call was not carried out."""


class Door(Protocol):
    """One queue, as one kind of client sees it."""

    def send(self, body: str, *, key: str) -> None: ...

    def receive(self, count: int) -> Sequence[tuple[str, str, int, str]]:
        """Body, message id, attempt and receipt of each."""
        ...

    def acknowledge(self, receipt: str) -> None: ...

    def left_count(self) -> int:
        """How many messages the queue says it holds, in any state."""
        ...


class RestDoor:
    def __init__(self, server: str, name: str) -> None:
        self._pool = urllib3.PoolManager(retries=False, timeout=urllib3.Timeout(connect=2.0, read=30.0))
        self._url = f"http://{server}/queues/{name}"

    def make(self) -> None:
        self._ask("PUT", "", {"config": {"guarantee": "exactly_once", "max_deliveries": 1000}, "partitions": 2})

    def send(self, body: str, *, key: str) -> None:
        self._ask("POST", "/messages", {"message": body, "key": key, "deduplication_id": body})

    def receive(self, count: int) -> Sequence[tuple[str, str, int, str]]:
        answer = self._ask("GET", f"/messages?batch_size={count}&wait=1&lease={_LEASE_S}")
        return [(one["body"], one["id"], one["attempt"], one["receipt_handle"]) for one in answer["messages"]]

    def acknowledge(self, receipt: str) -> None:
        self._ask("DELETE", f"/messages/{receipt}")

    def left_count(self) -> int:
        counts = self._ask("GET", "")["counts"]
        return int(counts["visible"] + counts["leased"] + counts["delayed"])

    def _ask(self, method: str, target: str, value: object = None) -> Any:
        headers = {} if value is None else {"content-type": "application/json"}
        body = None if value is None else json.dumps(value)
        try:
            answer = self._pool.request(method, self._url + target, body=body, headers=headers)
        except urllib3.exceptions.HTTPError as error:
            raise Unclear(str(error)) from error
        text = answer.data.decode()
        if answer.status >= 500:
            raise Unclear(text)
        if answer.status >= 400:
            raise Refused(text)
        return json.loads(text) if text else None


class SqsDoor:
    def __init__(self, server: str, name: str) -> None:
        self._name = name
        self._is_fifo = name.endswith(".fifo")
        self._client = boto3.session.Session().client(
            "sqs",
            endpoint_url=f"http://{server}",
            region_name="us-east-1",
            aws_access_key_id="any",
            aws_secret_access_key="any",
            config=Config(retries={"total_max_attempts": 1}, connect_timeout=2, read_timeout=30),
        )
        self._url = f"http://{server}/000000000000/{name}"

    def make(self) -> None:
        attributes = {"FifoQueue": "true"} if self._is_fifo else {}
        self._client.create_queue(QueueName=self._name, Attributes=attributes)

    def send(self, body: str, *, key: str) -> None:
        own = {"MessageGroupId": key, "MessageDeduplicationId": body} if self._is_fifo else {}
        self._ask(self._client.send_message, MessageBody=body, **own)

    def receive(self, count: int) -> Sequence[tuple[str, str, int, str]]:
        answer = self._ask(
            self._client.receive_message,
            MaxNumberOfMessages=min(count, 10),
            WaitTimeSeconds=1,
            VisibilityTimeout=_LEASE_S,
            MessageSystemAttributeNames=["ApproximateReceiveCount"],
        )
        return [
            (one["Body"], one["MessageId"], int(one["Attributes"]["ApproximateReceiveCount"]), one["ReceiptHandle"])
            for one in answer.get("Messages", [])
        ]

    def acknowledge(self, receipt: str) -> None:
        self._ask(self._client.delete_message, ReceiptHandle=receipt)

    def left_count(self) -> int:
        names = [f"ApproximateNumberOfMessages{kind}" for kind in ("", "NotVisible", "Delayed")]
        found = self._ask(self._client.get_queue_attributes, AttributeNames=names)["Attributes"]
        return sum(int(found[name]) for name in names)

    def _ask(self, call: Callable[..., Any], **parameters: Any) -> Any:
        try:
            return call(QueueUrl=self._url, **parameters)
        except ClientError as error:
            if error.response["ResponseMetadata"]["HTTPStatusCode"] >= 500:
                raise Unclear(str(error)) from error
            raise Refused(str(error)) from error
        except BotoCoreError as error:
            raise Unclear(str(error)) from error


def open_door(queue: Queue, server: str) -> RestDoor | SqsDoor:
    return RestDoor(server, queue.name) if queue is PLAIN else SqsDoor(server, queue.name)


class Sender(LoadClient):
    def __init__(self, name: str, queue: Queue, server: str, history: History, stop: threading.Event) -> None:
        super().__init__(name, history, stop)
        self._queue = queue
        self._door = open_door(queue, server)

    def run(self) -> None:
        number = 0
        while not self.stop.is_set():
            body = f"{self.name}-{number}"
            call = self.history.send(self._queue.name, body, sender=self.name, number=number)
            self.history.answer(call, self._send(body))
            number += 1
            self.stop.wait(_PAUSE_S)

    def _send(self, body: str) -> Outcome:
        while True:
            try:
                self._door.send(body, key=self.name)
            except Unclear:
                if self.stop.wait(0.1) or not self._queue.deduplicated:
                    return "maybe"
            except Refused as refusal:
                self.history.fail(f"{self.name}: {body} was refused: {refusal}")
                return "no"
            else:
                return "yes"


class Worker(LoadClient):
    def __init__(
        self, name: str, queue: Queue, server: str, history: History, stop: threading.Event, seed: int
    ) -> None:
        super().__init__(name, history, stop)
        self._queue = queue
        self._door = open_door(queue, server)
        self._chance = random.Random(seed)

    def run(self) -> None:
        while not self.stop.is_set():
            for delivery, receipt in take(self._door, self._queue, self.history):
                if self._chance.random() >= _FORGOTTEN:
                    finish(self._door, self.history, delivery, receipt)


def take(door: Door, queue: Queue, history: History, count: int = 10) -> list[tuple[Delivered, str]]:
    """Receive some messages and note them; none where the node does not answer."""
    asked, asked_s = history.now(), time.monotonic()
    try:
        messages = door.receive(count)
    except Unclear:
        threading.Event().wait(0.05)
        return []
    except Refused as refusal:
        history.fail(f"a receive from {queue.name} was refused: {refusal}")
        return []
    return [
        (
            history.deliver(queue.name, body, message_id=message_id, attempt=attempt, asked=asked, asked_s=asked_s),
            receipt,
        )
        for body, message_id, attempt, receipt in messages
    ]


def finish(door: Door, history: History, delivery: Delivered, receipt: str) -> None:
    call = history.acknowledge(delivery)
    try:
        door.acknowledge(receipt)
    except Unclear:
        return
    except Refused:
        history.answer(call, "no")  # its lease was over
    else:
        history.answer(call, "yes")


def leave(queue: Queue, server: str, history: History, count: int) -> None:
    """Send some messages that no worker has taken yet."""
    door = open_door(queue, server)
    for number in range(count):
        call = history.send(queue.name, f"left-{queue.name}-{number}", sender="last", number=number)
        door.send(call.body, key="last")
        history.answer(call, "yes")


def work_off(queue: Queue, server: str, history: History, *, is_hopeless: Callable[[], bool] = lambda: False) -> None:
    """Receive and acknowledge until the queue says that it holds nothing.

    It ends early where it is hopeless: where the node says that it cannot serve all of it.
    """
    door = open_door(queue, server)

    def is_empty() -> bool:
        for delivery, receipt in take(door, queue, history, 100):
            finish(door, history, delivery, receipt)
        try:
            return door.left_count() == 0 or is_hopeless()
        except Unclear:
            return is_hopeless()

    wait_until(is_empty, deadline_s=DEADLINE_S, what=f"{queue.name} is worked off")
