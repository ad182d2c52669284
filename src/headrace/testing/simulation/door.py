"""A queue as HTTP clients see it: the REST interface, and the SQS API in its JSON form. Nothing is retried here."""

from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol

import msgspec

from headrace.client.http.connection import Answer
from headrace.client.http.pool import Pool
from headrace.host.clock import Clock
from headrace.host.transport import Transport
from headrace.model.address import Address
from headrace.model.errors import HeadraceError
from headrace.testing.history import Queue

LEASE_S = 2
_WAIT_S = 2
_TIMEOUT_MS = 10_000
_BATCH_MAX = 10


class UnclearError(Exception):
    """No answer, or one that leaves open whether the call was carried out."""


class CallRefusedError(Exception):
    """An answer that says that the call was not carried out."""


class Taken(NamedTuple):
    """A message as a receive gave it."""

    body: str
    message_id: str
    attempt: int
    receipt: str


class Door(Protocol):
    async def make(self) -> None: ...

    async def send(self, body: str, *, key: str) -> None: ...

    async def receive(self, count: int) -> Sequence[Taken]: ...

    async def acknowledge(self, receipt: str) -> None: ...

    async def left_count(self) -> int:
        """How many messages the queue says it holds, in any state."""


class _Caller:
    def __init__(self, server: Address, clock: Clock, transport: Transport) -> None:
        self._pool = Pool(
            [server],
            clock=clock,
            transport=transport,
            connections_max=2,
            connect_timeout_ms=2_000,
            answer_bytes_max=64 * 1024 * 1024,
        )

    async def ask(self, line: str, value: object = None, *, head: str = "") -> Any:
        body = b"" if value is None else msgspec.json.encode(value)
        if value is not None:
            head += f"Content-Length: {len(body)}\r\n"
            if "Content-Type" not in head:
                head += "Content-Type: application/json\r\n"
        try:
            answer: Answer = await self._pool.ask(
                f"{line} HTTP/1.1\r\n".encode(), f"{head}\r\n".encode(), body, timeout_ms=_TIMEOUT_MS
            )
        except HeadraceError as error:
            raise UnclearError(str(error)) from error
        if answer.status >= 500:
            raise UnclearError(answer.body.decode())
        if answer.status >= 400:
            raise CallRefusedError(answer.body.decode())
        return msgspec.json.decode(answer.body) if answer.body else None


class RestDoor:
    def __init__(self, queue: Queue, settings: dict[str, object], caller: _Caller) -> None:
        self._caller = caller
        self._settings = settings
        self._path = f"/queues/{queue.name}"
        self._deduplicated = queue.deduplicated

    async def make(self) -> None:
        await self._caller.ask(f"PUT {self._path}", {"config": self._settings, "partitions": 2})

    async def send(self, body: str, *, key: str) -> None:
        own = {"deduplication_id": body} if self._deduplicated else {}
        await self._caller.ask(f"POST {self._path}/messages", {"message": body, "key": key, **own})

    async def receive(self, count: int) -> Sequence[Taken]:
        lease = f"&lease={LEASE_S}"
        answer = await self._caller.ask(f"GET {self._path}/messages?batch_size={count}&wait={_WAIT_S}{lease}")
        return [
            Taken(one["body"], one["id"], one["attempt"], one.get("receipt_handle") or "") for one in answer["messages"]
        ]

    async def acknowledge(self, receipt: str) -> None:
        await self._caller.ask(f"DELETE {self._path}/messages/{receipt}")

    async def left_count(self) -> int:
        counts = (await self._caller.ask(f"GET {self._path}"))["counts"]
        return int(counts["visible"] + counts["leased"] + counts["delayed"])


class SqsDoor:
    def __init__(self, queue: Queue, caller: _Caller) -> None:
        self._caller = caller
        self._name = queue.name
        self._url = f"http://sqs/000000000000/{queue.name}"
        self._is_fifo = queue.name.endswith(".fifo")

    async def make(self) -> None:
        attributes = {"FifoQueue": "true"} if self._is_fifo else {}
        await self._call("CreateQueue", QueueName=self._name, Attributes=attributes)

    async def send(self, body: str, *, key: str) -> None:
        own = {"MessageGroupId": key, "MessageDeduplicationId": body} if self._is_fifo else {}
        await self._call("SendMessage", QueueUrl=self._url, MessageBody=body, **own)

    async def receive(self, count: int) -> Sequence[Taken]:
        answer = await self._call(
            "ReceiveMessage",
            QueueUrl=self._url,
            MaxNumberOfMessages=min(count, _BATCH_MAX),
            WaitTimeSeconds=_WAIT_S,
            VisibilityTimeout=LEASE_S,
            MessageSystemAttributeNames=["ApproximateReceiveCount"],
        )
        return [
            Taken(
                one["Body"], one["MessageId"], int(one["Attributes"]["ApproximateReceiveCount"]), one["ReceiptHandle"]
            )
            for one in answer.get("Messages") or ()
        ]

    async def acknowledge(self, receipt: str) -> None:
        await self._call("DeleteMessage", QueueUrl=self._url, ReceiptHandle=receipt)

    async def left_count(self) -> int:
        names = [f"ApproximateNumberOfMessages{kind}" for kind in ("", "NotVisible", "Delayed")]
        answer = await self._call("GetQueueAttributes", QueueUrl=self._url, AttributeNames=names)
        return sum(int(answer["Attributes"][name]) for name in names)

    async def _call(self, action: str, **parameters: object) -> Any:
        head = f"X-Amz-Target: AmazonSQS.{action}\r\nContent-Type: application/x-amz-json-1.0\r\n"
        return await self._caller.ask("POST /", parameters, head=head)


def open_door(
    queue: Queue, settings: dict[str, object] | None, at: Address, clock: Clock, transport: Transport
) -> Door:
    """Settings are those of a queue of the REST interface; a queue without any is one of SQS."""
    caller = _Caller(at, clock, transport)
    return SqsDoor(queue, caller) if settings is None else RestDoor(queue, settings, caller)
