"""The gateway with nothing around it: a request in, an answer out, in either protocol."""

import asyncio
from collections.abc import Coroutine
from typing import Any
from urllib.parse import urlencode

import msgspec
from tests.gateways.sqs.fake_queues import FakeQueues

from headrace.broker.queue.port import Queues
from headrace.gateways.http.message import Request, Response
from headrace.gateways.http.router import Later
from headrace.gateways.sqs.config import SqsConfig
from headrace.gateways.sqs.gateway import SqsGateway
from headrace.model.errors import HeadraceError
from headrace.security.access_keys import AccessKeys
from headrace.testing.clock import SimulatedClock

HOST = "localhost:8080"


class Refused(Exception):
    """An error as a client sees it: its type and its code in the older protocol."""

    def __init__(self, type: str, code: str, message: str, status: int) -> None:
        super().__init__(f"{type}: {message}")
        self.type = type
        self.code = code
        self.status = status


class Door:
    def __init__(self, *, keys: AccessKeys | None = None, may_delete: bool = True) -> None:
        self.clock = SimulatedClock()
        self.headers: dict[str, str] = {}  # beside those of the protocol, of the requests to come
        self.queues = FakeQueues(self.clock)
        port: Queues = self.queues
        self.gateway = SqsGateway(port, clock=self.clock, config=SqsConfig(), keys=keys, may_delete=may_delete)

    def answer(self, request: Request) -> Response:
        """What the server would write. Nothing here may take a turn of a loop but the coroutines."""
        found = self.gateway.handle(request)
        if isinstance(found, Response):
            return found
        if isinstance(found, Later):
            try:
                return found.render(found.promise.result())
            except HeadraceError as error:
                return self.gateway.failed(request, error)
        assert isinstance(found, Coroutine)
        return asyncio.run(found)

    def call(self, operation: str, **parameters: Any) -> dict[str, Any]:
        """One operation over JSON."""
        headers = {"host": HOST, "x-amz-target": f"AmazonSQS.{operation}", **self.headers}
        response = self.answer(Request("POST", "/", "", headers, msgspec.json.encode(parameters), (), "request-1"))
        body = msgspec.json.decode(response.body)
        assert response.id_header == "x-amzn-RequestId"
        assert response.content_type == "application/x-amz-json-1.0"
        if response.status != 200:
            code, fault = dict(response.headers)["x-amzn-query-error"].split(";")
            assert fault == ("Sender" if response.status < 500 else "Receiver")
            raise Refused(body["__type"].rpartition("#")[2], code, body["message"], response.status)
        assert isinstance(body, dict)
        return body

    def form(self, fields: dict[str, str], *, queue: str | None = None, method: str = "POST") -> Response:
        """One operation over the query protocol."""
        path, values = ("/", ()) if queue is None else (f"/000000000000/{queue}", ("000000000000", queue))
        text = urlencode(fields)
        query, body = (text, b"") if method == "GET" else ("", text.encode())
        return self.answer(Request(method, path, query, {"host": HOST, **self.headers}, body, values, "request-1"))

    def create(self, name: str, **attributes: str) -> str:
        if name.endswith(".fifo"):
            attributes["FifoQueue"] = "true"
        url: str = self.call("CreateQueue", QueueName=name, Attributes=attributes)["QueueUrl"]
        return url

    def receive_one(self, url: str, **parameters: Any) -> dict[str, Any]:
        [message] = self.call("ReceiveMessage", QueueUrl=url, **parameters)["Messages"]
        assert isinstance(message, dict)
        return message
