"""boto3 against a node: a client that does not retry, queues by a test's own name, and waiting for messages."""

import json
import re
import time
from collections.abc import Callable
from typing import Any

import boto3
import pytest
from botocore.config import Config
from botocore.exceptions import ClientError
from tests.support.node import NodeProcess
from tests.support.wait import wait_until

Message = dict[str, Any]


def connect(
    node: NodeProcess, *, key: str = "any", secret: str = "any", region: str = "us-east-1", **config: Any
) -> Any:
    return boto3.session.Session().client(
        "sqs",
        endpoint_url=f"http://{node.http}",
        region_name=region,
        aws_access_key_id=key,
        aws_secret_access_key=secret,
        config=Config(retries={"total_max_attempts": 1}, read_timeout=30, **config),
    )


def refused(call: Callable[..., Any], **parameters: Any) -> str:
    """The code that a call is refused with."""
    with pytest.raises(ClientError) as refusal:
        call(**parameters)
    code = refusal.value.response["Error"]["Code"]
    assert isinstance(code, str)
    return code


class TestQueue:
    """A queue of one test, and the calls that tests make of it."""

    __test__ = False

    def __init__(self, client: Any, name: str, **attributes: str) -> None:
        self.client = client
        self.name = name
        self.is_fifo = name.endswith(".fifo")
        if self.is_fifo:
            attributes = {"FifoQueue": "true", **attributes}
        self.url = client.create_queue(QueueName=name, Attributes=attributes)["QueueUrl"]
        self.arn = self.attribute("QueueArn")

    def attribute(self, name: str) -> str:
        found = self.client.get_queue_attributes(QueueUrl=self.url, AttributeNames=[name])["Attributes"][name]
        assert isinstance(found, str)
        return found

    def set(self, **attributes: str) -> None:
        self.client.set_queue_attributes(QueueUrl=self.url, Attributes=attributes)

    def send(self, body: str, **parameters: Any) -> Message:
        sent: Message = self.client.send_message(QueueUrl=self.url, MessageBody=body, **parameters)
        return sent

    def receive(self, count: int = 1, *, wait_s: int = 0, **parameters: Any) -> list[Message]:
        answer = self.client.receive_message(
            QueueUrl=self.url,
            MaxNumberOfMessages=count,
            WaitTimeSeconds=wait_s,
            MessageSystemAttributeNames=["All"],
            MessageAttributeNames=["All"],
            **parameters,
        )
        found: list[Message] = answer.get("Messages", [])
        return found

    def receive_one(self, **parameters: Any) -> Message:
        """The next message, waited for as long as SQS allows."""
        [message] = self.receive(wait_s=20, **parameters)
        return message

    def receive_all(self, count: int, *, deadline_s: float = 20.0, **parameters: Any) -> list[Message]:
        """So many messages, in as many receives as it takes."""
        got: list[Message] = []

        def has_all() -> bool:
            got.extend(self.receive(min(10, count - len(got)), wait_s=1, **parameters))
            return len(got) >= count

        wait_until(has_all, deadline_s=deadline_s, what=lambda: f"{count} messages; got {len(got)}")
        return got

    def delete(self, message: Message) -> None:
        self.client.delete_message(QueueUrl=self.url, ReceiptHandle=message["ReceiptHandle"])

    def counts(self) -> tuple[int, int, int]:
        """Visible, not visible, delayed."""
        names = [f"ApproximateNumberOfMessages{kind}" for kind in ("", "NotVisible", "Delayed")]
        found = self.client.get_queue_attributes(QueueUrl=self.url, AttributeNames=names)["Attributes"]
        visible, leased, delayed = (int(found[name]) for name in names)
        return visible, leased, delayed

    def redrive_policy(self, count: int) -> str:
        """The policy with which others name this one as their dead-letter queue."""
        return json.dumps({"deadLetterTargetArn": self.arn, "maxReceiveCount": count})


def queue_name(test_name: str) -> str:
    return re.sub(r"[^A-Za-z0-9_-]", "-", test_name.removeprefix("test_"))[:60]


class Stopwatch:
    def __init__(self) -> None:
        self._started_s = time.monotonic()

    @property
    def seconds(self) -> float:
        return time.monotonic() - self._started_s
