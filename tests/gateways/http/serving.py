"""An HTTP server on a real loopback socket, with time that passes when the test says so, and a client that can be rude.

The server has a thread and an event loop of its own, so that tests are written with plain sockets and http.client.
"""

import asyncio
import json
import select
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import uvloop
from tests.support.wait import wait_until

from headrace.broker.promise import Promise
from headrace.gateways.answers import AnswerBudget, AnswersConfig
from headrace.gateways.http.counters import HttpCounters
from headrace.gateways.http.limits import HttpLimits
from headrace.gateways.http.listener import HttpListener, listen_http
from headrace.gateways.http.message import RefusedError, Request, Response, json_response
from headrace.gateways.http.origin import Hosts
from headrace.gateways.http.router import Later, Route, Router, Sized
from headrace.host.transport import TcpTransport
from headrace.model.errors import UnknownTopicError
from headrace.testing.clock import SimulatedClock
from headrace.testing.rand import SeededRand

DEADLINE_S = 10.0
BIG_BYTES = 1024 * 1024
UNSPEAKABLE = "unspeakable"


class Server:
    def __init__(self, limits: HttpLimits, hosts: Hosts | None = None, answers: AnswersConfig | None = None) -> None:
        self.limits = limits
        self.answers = AnswerBudget(answers)
        self.hosts = hosts
        self.promises: dict[str, Promise[str]] = {}
        self.ended: list[str] = []
        self.rendered: list[str] = []
        self.clock = SimulatedClock()
        self.counters = HttpCounters()
        self.listener: HttpListener
        self.served: list[str] = []
        self.cancelled: list[str] = []
        self.finished: list[str] = []
        self.loop = uvloop.new_event_loop()
        self.gates: dict[str, asyncio.Event] = {}
        self._thread = threading.Thread(target=self.loop.run_forever)

    @property
    def address(self) -> tuple[str, int]:
        return self.listener.address

    def start(self) -> None:
        self._thread.start()
        self.listener = self.run(
            listen_http(
                TcpTransport(),
                "127.0.0.1",
                0,
                router=Router(self._routes()),
                clock=self.clock,
                rand=SeededRand(1),
                hosts=self.hosts,
                counters=self.counters,
                limits=self.limits,
                answers=self.answers,
            )
        )

    def stop(self) -> None:
        stopped = asyncio.run_coroutine_threadsafe(self.listener.stop(), self.loop)
        try:
            # Whatever a failed test left unanswered is cut by the deadline.
            self.elapse(self.limits.stop_deadline_ms)
            stopped.result(DEADLINE_S)
        finally:
            self.loop.call_soon_threadsafe(self.loop.stop)
            self._thread.join(DEADLINE_S)
            self.loop.close()

    def run(self, work: Any) -> Any:
        return asyncio.run_coroutine_threadsafe(work, self.loop).result(DEADLINE_S)

    def call(self, function: Callable[[], Any]) -> Any:
        """Call something on the server's loop."""

        async def work() -> Any:
            return function()

        return self.run(work())

    def elapse(self, delta_ms: int) -> None:
        """Let time pass, and a little more, since deadlines are looked at by a sweep."""
        self.call(lambda: self.clock.advance(delta_ms + self.limits.sweep_ms))

    def wait(self, condition: Callable[[], bool], what: str) -> None:
        wait_until(condition, deadline_s=DEADLINE_S, what=lambda: what)

    def wait_received(self, count: int) -> None:
        self.wait(lambda: self.counters.bytes_in >= count, f"{count} bytes have arrived")

    def open_gate(self, name: str) -> None:
        self.call(lambda: self.gates.setdefault(name, asyncio.Event()).set())

    def _routes(self) -> list[Route]:
        def hello(request: Request) -> Response:
            self.served.append(request.path)
            return json_response({"query": request.query})

        def echo(request: Request) -> Response:
            return Response(body=request.body)

        async def gated(request: Request) -> Response:
            self.served.append(request.query)
            try:
                await self.gates.setdefault(request.query, asyncio.Event()).wait()
            except asyncio.CancelledError:
                self.cancelled.append(request.query)
                raise
            self.finished.append(request.query)
            return Response(body=request.query.encode())

        def promised(request: Request) -> Later[str]:
            self.served.append(request.query)
            promise = self.promises[request.query] = Promise()

            def cancel() -> None:
                self.ended.append(request.query)

            def render(text: str) -> Response:
                self.rendered.append(text)
                if text == UNSPEAKABLE:
                    raise ZeroDivisionError("nobody expected this")
                return Response(body=text.encode())

            return Later(promise, render, cancel)

        def named(request: Request) -> Response:
            return json_response([request.id, *request.values])

        def fail(request: Request) -> Response:
            raise ZeroDivisionError("nobody expected this")

        async def fail_later(request: Request) -> Response:
            raise UnknownTopicError("topic orders does not exist; create it, or check the name")

        def refuse(request: Request) -> Response:
            raise RefusedError(409, "busy", "come back later")

        def big(request: Request) -> Response:
            return Response(body=b"x" * BIG_BYTES)

        def sized(request: Request) -> Sized:
            size = int(request.query)

            def begin() -> Response:
                self.served.append(request.query)
                return Response(body=b"x" * size)

            return Sized(size, begin)

        return [
            Route("GET", "/hello", hello),
            Route("GET", "/sized", sized),
            Route("GET", "/gated", gated),
            Route("POST", "/gated", gated),
            Route("GET", "/gated-change", gated, is_safe=False),
            Route("GET", "/promised", promised, is_safe=False),
            Route("GET", "/named/{name}/of/{other}", named),
            Route("GET", "/fail", fail),
            Route("GET", "/fail-later", fail_later),
            Route("GET", "/refuse", refuse),
            Route("GET", "/big", big),
            Route("POST", "/echo", echo),
            Route("PUT", "/echo", echo),
        ]


@contextmanager
def serving(*, hosts: Hosts | None = None, answers: AnswersConfig | None = None, **limits: int) -> Iterator[Server]:
    server = Server(HttpLimits(**limits), hosts, answers)
    server.start()
    try:
        yield server
    finally:
        server.stop()


class Answer(NamedTuple):
    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def problem(self) -> dict[str, Any]:
        assert self.headers["content-type"] == "application/problem+json"
        value: dict[str, Any] = json.loads(self.body)
        assert value["status"] == self.status
        assert value["detail"]
        return value


class Client:
    """A raw socket that reads answers one by one."""

    def __init__(self, server: Server, *, receive_bytes: int | None = None) -> None:
        self.socket = socket.socket()
        if receive_bytes is not None:
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_bytes)
        self.socket.settimeout(DEADLINE_S)
        self.socket.connect(server.address)
        self._file = self.socket.makefile("rb")

    def __enter__(self) -> "Client":
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()
        self.socket.close()

    def send(self, data: bytes) -> None:
        self.socket.sendall(data)

    def answer(self, *, to_head: bool = False) -> Answer:
        line = self._file.readline()
        version, status, _ = line.split(b" ", 2)
        assert version == b"HTTP/1.1"
        headers = {}
        while (line := self._file.readline()) != b"\r\n":
            assert line.endswith(b"\r\n"), line
            name, value = line[:-2].decode().split(": ", 1)
            headers[name.lower()] = value
        size = 0 if to_head or status == b"100" else int(headers["content-length"])
        return Answer(int(status), headers, self._file.read(size))

    def has_answer(self) -> bool:
        """Whether anything has come that was not read."""
        return bool(select.select([self.socket], [], [], 0)[0])

    def is_at_end(self) -> bool:
        """Whether the server has closed its half, with nothing left to read."""
        return self._file.read(1) == b""


def ask(server: Server, raw: bytes) -> Answer:
    """Send bytes over a connection of their own and read the one answer, after which the server must close."""
    with Client(server) as client:
        client.send(raw)
        answer = client.answer()
        assert answer.headers["connection"] == "close"
        assert client.is_at_end()
        return answer


def get(target: str = "/hello", *headers: str, method: str = "GET", version: str = "1.1") -> bytes:
    lines = [f"{method} {target} HTTP/{version}", "Host: localhost", *headers, "", ""]
    return "\r\n".join(lines).encode("latin-1")
