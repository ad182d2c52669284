"""A request that is being served: its place in the order of its connection's answers."""

import asyncio
from typing import Any, Protocol

import msgspec

from headrace.broker.promise import Promise
from headrace.gateways.answers import Share
from headrace.gateways.http.message import Request, Response
from headrace.gateways.http.router import Found, Later, Route, not_found, refusing


class Owner(Protocol):
    """The connection, as a slot sees it."""

    def finish_later(self, slot: "Slot", promise: Promise[Any]) -> None: ...


# Of requests that were refused before a route was looked for.
NOWHERE = refusing(not_found()).routes[0]


class Slot(msgspec.Struct, eq=False):
    """A request's place in the order of answers."""

    owner: Owner
    request: Request
    route: Route
    since_ms: int
    is_last: bool = False
    connection: str | None = None
    task: asyncio.Task[Response] | None = None
    later: Later[Any] | None = None
    response: Response | None = None
    prepared: Response | None = None  # the answer, if the promise is kept
    share: Share | None = None  # of the memory for answers, where the answer may be large

    def kept(self, promise: Promise[Any]) -> None:
        """The promise that this request waits for is kept or broken."""
        self.owner.finish_later(self, promise)

    def foreseen(self, result: Any) -> None:
        """With this the promise will be kept, if it is: have the answer ready."""
        if self.response is None and self.later is not None:
            try:
                self.prepared = self.later.render(result)
            except Exception:  # noqa: BLE001 - it fails again when it is due, and is told then
                self.prepared = None

    def cancel(self) -> None:
        """Nobody waits any longer: end what only looks or waits. A change goes on to its end."""
        if self.share is not None:
            self.share.give()
        if self.task is not None:
            if self.route.only_looks(self.request.method):
                self.task.cancel()
        elif self.later is not None and self.later.cancel is not None:
            self.later.cancel()


def choose(found: Found, request: Request) -> Route:
    """The one of these routes that serves the request."""
    for route in found.routes:
        if route.when is None or route.when(request):
            return route
    return NOWHERE
