"""The ways into a queue by HTTP, as bytes: what a client of each would send for its messages.

The requests are made beforehand and sent as they are, so that no client's own work is in the figures. boto3 alone takes
half a millisecond of a core to make, sign and read one.
"""

import json
import re
import urllib.error
import urllib.request
from collections.abc import Sequence
from typing import Any, Protocol
from uuid import UUID

import msgspec

LEASE_S = 600
ADMIN_DEADLINE_S = 30.0

_json_receipts = re.compile(rb'"(?:receipt_handle|ReceiptHandle)": ?"([^"]+)"').findall


class Door(Protocol):
    """One protocol's requests for one queue of one server."""

    name: str
    batch_sizes: tuple[int, ...]

    def send(self, body: str, count: int) -> bytes: ...

    def receive(self, count: int) -> bytes: ...

    def receipts(self, answer: bytes) -> list[str]: ...

    def acknowledge(self, receipts: Sequence[str]) -> bytes: ...


def request(method: str, address: str, path: str, body: bytes = b"", **headers: str) -> bytes:
    lines = [f"{method} {path} HTTP/1.1", f"host: {address}", f"content-length: {len(body)}"]
    lines += [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
    return "\r\n".join([*lines, "", ""]).encode() + body


class RestDoor:
    """REST with JSON, as curl would use it: one message by the routes for one, more by those for batches."""

    name = "REST"
    batch_sizes: tuple[int, ...] = (1, 10, 100)

    def __init__(self, address: str, queue: str) -> None:
        self._address = address
        self._path = f"/queues/{queue}"

    def send(self, body: str, count: int) -> bytes:
        entry = {"message": body}
        return self._post("messages", entry if count == 1 else {"messages": [entry] * count})

    def receive(self, count: int) -> bytes:
        return request("GET", self._address, f"{self._path}/messages?batch_size={count}&lease={LEASE_S}")

    def receipts(self, answer: bytes) -> list[str]:
        return [receipt.decode() for receipt in _json_receipts(answer)]

    def acknowledge(self, receipts: Sequence[str]) -> bytes:
        if len(receipts) == 1:
            return request("DELETE", self._address, f"{self._path}/messages/{receipts[0]}")
        return self._post("acknowledgements", {"receipt_handles": list(receipts)})

    def _post(self, what: str, value: Any) -> bytes:
        return request(
            "POST", self._address, f"{self._path}/{what}", msgspec.json.encode(value), content_type="application/json"
        )


class MsgpackDoor(RestDoor):
    """REST with msgpack, as headrace's own client uses it: always the routes for batches."""

    name = "REST, msgpack"

    def send(self, body: str, count: int) -> bytes:
        return self._post("messages", {"messages": [{"body": body.encode()}] * count})

    def receive(self, count: int) -> bytes:
        path = f"{self._path}/messages?batch_size={count}&lease={LEASE_S}"
        return request("GET", self._address, path, accept="application/msgpack")

    def receipts(self, answer: bytes) -> list[str]:
        return [message["receipt_handle"] for message in msgspec.msgpack.decode(answer)["messages"]]

    def acknowledge(self, receipts: Sequence[str]) -> bytes:
        return self._post("acknowledgements", {"receipt_handles": list(receipts)})

    def _post(self, what: str, value: Any) -> bytes:
        body = msgspec.msgpack.encode(value)
        return request("POST", self._address, f"{self._path}/{what}", body, content_type="application/msgpack")


class SqsDoor:
    """SQS in its JSON form, with the headers that boto3 sends. Ten is as many as SQS takes at once."""

    name = "SQS"
    batch_sizes: tuple[int, ...] = (1, 10)

    def __init__(self, address: str, queue_url: str) -> None:
        self._address = address
        self._url = queue_url
        self._signed = Signed()

    def send(self, body: str, count: int) -> bytes:
        if count == 1:
            return self._call("SendMessage", MessageBody=body)
        return self._call("SendMessageBatch", Entries=[{"Id": str(n), "MessageBody": body} for n in range(count)])

    def receive(self, count: int) -> bytes:
        return self._call("ReceiveMessage", MaxNumberOfMessages=count, VisibilityTimeout=LEASE_S)

    def receipts(self, answer: bytes) -> list[str]:
        return [receipt.decode() for receipt in _json_receipts(answer)]

    def acknowledge(self, receipts: Sequence[str]) -> bytes:
        if len(receipts) == 1:
            return self._call("DeleteMessage", ReceiptHandle=receipts[0])
        entries = [{"Id": str(number), "ReceiptHandle": receipt} for number, receipt in enumerate(receipts)]
        return self._call("DeleteMessageBatch", Entries=entries)

    def _call(self, operation: str, **parameters: Any) -> bytes:
        return self._signed.request(self._address, operation, QueueUrl=self._url, **parameters)


class Signed:
    """Requests of SQS with the headers of boto3. No two of them are signed alike, and none is signed rightly: a node on
    loopback takes any signature, and to check one is measured nowhere here."""

    def __init__(self) -> None:
        self._number = 0

    def request(self, address: str, operation: str, **parameters: Any) -> bytes:
        self._number += 1
        return request(
            "POST",
            address,
            "/",
            msgspec.json.encode(parameters),
            accept_encoding="identity",
            x_amz_target=f"AmazonSQS.{operation}",
            content_type="application/x-amz-json-1.0",
            x_amzn_query_mode="true",
            user_agent="Boto3/1.44.3 md/Botocore#1.44.3 ua/2.1 os/linux#6.18 md/arch#x86_64 lang/python#3.11.7 "
            "md/pyimpl#CPython m/b,N,Z,E,e cfg/retry-mode#standard Botocore/1.44.3",
            x_amz_date="20260101T000000Z",
            authorization="AWS4-HMAC-SHA256 Credential=bench/20260101/us-east-1/sqs/aws4_request, SignedHeaders="
            f"content-type;host;x-amz-date;x-amz-target;x-amzn-query-mode, Signature={self._number:064x}",
            amz_sdk_invocation_id=str(UUID(int=self._number)),
            amz_sdk_request="attempt=1; max=3",
        )


def call(method: str, address: str, path: str, value: Any = None, **headers: str) -> Any:
    """One request of an administrator, with its JSON answer."""
    data = None if value is None else json.dumps(value).encode()
    named = {name.replace("_", "-"): text for name, text in {"content_type": "application/json", **headers}.items()}
    wanted = urllib.request.Request(f"http://{address}{path}", data, named, method=method)
    try:
        with urllib.request.urlopen(wanted, timeout=ADMIN_DEADLINE_S) as answer:
            return json.loads(answer.read() or b"null")
    except urllib.error.HTTPError as error:
        raise RuntimeError(f"{method} {path}: {error.code} {error.read()[:500]!r}") from error


def create_queue(address: str, queue: str, *, partitions: int = 1, **config: Any) -> None:
    """On a node, by REST; every acknowledged message is synced."""
    call("PUT", address, f"/queues/{queue}", {"durability": "fsync", "partitions": partitions, "config": config})


def create_sqs_queue(address: str, queue: str) -> str:
    """On any server that speaks SQS; its URL."""
    target = "AmazonSQS.CreateQueue"
    authorization = (
        "AWS4-HMAC-SHA256 Credential=bench/20260101/us-east-1/sqs/aws4_request, SignedHeaders=host, Signature=0"
    )
    made = call(
        "POST",
        address,
        "/",
        {"QueueName": queue},
        content_type="application/x-amz-json-1.0",
        x_amz_target=target,
        authorization=authorization,
    )
    return str(made["QueueUrl"])
