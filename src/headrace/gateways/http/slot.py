"""A request that is being served: its place in the order of its connection's answers."""

import asyncio
from typing import Any, Protocol

from headrace.broker.promise import Promise
from headrace.gateways.http.message import Request, Response
from headrace.gateways.http.router import Found, Later, Route, not_found, refusing


class Owner(Protocol):
    """The connection, as a slot sees it."""

    def finish_later(self, slot: "Slot", promise: Promise[Any]) -> None: ...


# Of requests that were refused before a route was looked for.
NOWHERE = refusing(not_found()).routes[0]


class Slot:
    """A request's place in the order of answers."""

    __slots__ = ("_owner", "connection", "is_last", "later", "request", "response", "route", "since_ms", "task")

    def __init__(self, owner: Owner, request: Request, route: Route, *, since_ms: int) -> None:
        self._owner = owner
        self.request = request
        self.route = route
        self.since_ms = since_ms
        self.is_last = False
        self.connection: str | None = None
        self.task: asyncio.Task[Response] | None = None
        self.later: Later[Any] | None = None
        self.response: Response | None = None

    def kept(self, promise: Promise[Any]) -> None:
        """The promise that this request waits for is kept or broken."""
        self._owner.finish_later(self, promise)

    def cancel(self) -> None:
        """Nobody waits any longer: end the task or the wait, if it can be ended."""
        if self.task is not None:
            self.task.cancel()
        elif self.later is not None and self.later.cancel is not None:
            self.later.cancel()


def choose(found: Found, request: Request) -> Route:
    """The one of these routes that serves the request."""
    for route in found.routes:
        if route.when is None or route.when(request):
            return route
    return NOWHERE
