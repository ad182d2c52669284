"""boto3 itself, one call after another: what a program that uses SQS sees, and mostly boto3's own work."""

import time
from collections.abc import Callable
from typing import Any

import boto3
import msgspec
from botocore.config import Config


class MeasuredBoto(msgspec.Struct, frozen=True, kw_only=True):
    """Messages a second, a message a call."""

    sends_per_s: float
    receives_per_s: float
    acknowledgements_per_s: float


def client(address: str) -> Any:
    return boto3.client(
        "sqs",
        endpoint_url=f"http://{address}",
        region_name="us-east-1",
        aws_access_key_id="bench",
        aws_secret_access_key="bench",
        config=Config(retries={"max_attempts": 0}, connect_timeout=5, read_timeout=60),
    )


def measure(address: str, queue_url: str, body: str, *, seconds: float) -> MeasuredBoto:
    sqs = client(address)
    receipts: list[str] = []

    def send() -> bool:
        sqs.send_message(QueueUrl=queue_url, MessageBody=body)
        return True

    def receive() -> bool:
        found = sqs.receive_message(QueueUrl=queue_url, VisibilityTimeout=600).get("Messages", [])
        receipts.extend(message["ReceiptHandle"] for message in found)
        return bool(found)

    def acknowledge() -> bool:
        if receipts:
            sqs.delete_message(QueueUrl=queue_url, ReceiptHandle=receipts.pop())
        return bool(receipts)

    return MeasuredBoto(
        sends_per_s=_rate(send, seconds),
        receives_per_s=_rate(receive, seconds),
        acknowledgements_per_s=_rate(acknowledge, seconds),
    )


def _rate(call: Callable[[], bool], seconds: float) -> float:
    begun_s = time.perf_counter()
    count = 0
    while time.perf_counter() - begun_s < seconds:
        count += 1
        if not call():
            break
    return count / (time.perf_counter() - begun_s)
