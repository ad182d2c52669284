"""REST with nothing around it: a request in, an answer out, as the server would route and answer it."""

import asyncio
import json
from collections.abc import Coroutine
from typing import Any

import msgspec
from tests.gateways.rest.scripted_queues import ScriptedQueues
from tests.gateways.rest.scripted_transactions import ScriptedTransactions

from headrace.gateways.http.limits import HttpLimits
from headrace.gateways.http.message import RefusedError, Request, Response, refusal
from headrace.gateways.http.router import Later, Sized
from headrace.gateways.http.slot import choose
from headrace.gateways.rest.gateway import rest_router
from headrace.model.errors import HeadraceError

JSON = "application/json"
MSGPACK = "application/msgpack"


class Door:
    def __init__(self, *, is_admin: bool = False) -> None:
        self.queues = ScriptedQueues()
        self.transactions = ScriptedTransactions()
        self.router = rest_router(
            self.queues,
            self.transactions,
            limits=HttpLimits(),
            is_admin=is_admin,
            admin_address=lambda: "127.0.0.1:8081",
        )

    def ask(self, method: str, target: str, body: bytes = b"", *, type: str | None = JSON, **headers: str) -> Response:
        path, _, query = target.partition("?")
        given = {name.replace("_", "-"): value for name, value in headers.items()}
        if type is not None and body:
            given["content-type"] = type
        try:
            found = self.router.find(method, path)
        except RefusedError as error:
            return refusal(error)
        request = Request(method, path, query, given, body, found.values, "request-1")
        route = choose(found, request)
        try:
            outcome = route.handler(request)
            if isinstance(outcome, Sized):
                outcome = outcome.begin()
            if isinstance(outcome, Later):
                return outcome.render(outcome.promise.result())
            return asyncio.run(outcome) if isinstance(outcome, Coroutine) else outcome
        except (RefusedError, HeadraceError) as error:
            return route.failed(request, error)

    def json(self, method: str, target: str, value: Any = None, *, status: int = 200) -> Any:
        """Ask in JSON, and give back the answer's value."""
        answer = self.ask(method, target, b"" if value is None else json.dumps(value).encode())
        assert answer.status == status, answer.body
        if not answer.body:
            return None
        assert answer.content_type == (JSON if status < 400 else "application/problem+json")
        return json.loads(answer.body)

    def packed(self, method: str, target: str, value: Any = None, *, status: int = 200) -> Any:
        body = b"" if value is None else msgspec.msgpack.encode(value)
        answer = self.ask(method, target, body, type=MSGPACK, accept=MSGPACK)
        assert answer.status == status, answer.body
        assert answer.content_type == MSGPACK
        return msgspec.msgpack.decode(answer.body)
