"""An ASGI application behind the HTTP server: the routes that are not on the road of every message.

The server has read the whole request, within its limits, before a route is called, and an answer is written whole. So
the adapter is one call: the request as one event in, the answer collected from the events out. Nothing is streamed,
which is why no second HTTP server is needed for it (docs/decisions/0010).
"""

from collections.abc import Callable, Coroutine, Mapping, MutableMapping
from functools import partial
from typing import Any

from starlette.applications import Starlette
from starlette.routing import Match
from starlette.routing import Route as StarletteRoute

from headrace.gateways.answers import SMALL_BYTES
from headrace.gateways.http.message import PLAIN_TEXT, Request, Response
from headrace.gateways.http.router import Found, Route, Sized, decode, method_not_allowed, not_found

_NOT_OURS = frozenset({b"content-type", b"content-length", b"date", b"connection"})


# About how many bytes the answer to a GET has, by its route, what stands in the path's placeholders, and its query.
SizeOf = Callable[[str, Mapping[str, str], str], int]


class AsgiFallback:
    """What the router asks for paths that it does not have itself."""

    def __init__(self, application: Starlette, *, size_of: SizeOf) -> None:
        self._application = application
        self._size_of = size_of
        self._routes = [route for route in application.routes if isinstance(route, StarletteRoute)]

    def find(self, method: str, path: str) -> Found:
        segments = [decode(segment) for segment in path.split("/")]
        if any("/" in segment for segment in segments):
            raise not_found()
        scope = {"type": "http", "method": method, "path": "/".join(segments)}
        methods: dict[str, tuple[Route, ...]] = {}
        for route in self._routes:
            match, child = route.matches(scope)
            if match is Match.NONE:
                continue
            look = partial(self._look, route.path, child.get("path_params", {}))
            declared = Route(method, route.path, look if method in ("GET", "HEAD") else self._serve)
            if match is Match.FULL:
                return Found((declared,), ())
            methods |= dict.fromkeys(route.methods or (), (declared,))
        raise method_not_allowed(methods) if methods else not_found()

    def _look(self, path: str, params: Mapping[str, str], request: Request) -> Coroutine[Any, Any, Response] | Sized:
        size = self._size_of(path, params, request.query)
        return Sized(size, partial(self._serve, request)) if size > SMALL_BYTES else self._serve(request)

    async def _serve(self, request: Request) -> Response:
        events = [{"type": "http.request", "body": request.body, "more_body": False}]
        collector = _Collector()

        async def receive() -> MutableMapping[str, Any]:
            return events.pop() if events else {"type": "http.disconnect"}

        await self._application(_scope(request), receive, collector.send)
        return collector.response()


class _Collector:
    """An answer, put together from what the application sends."""

    def __init__(self) -> None:
        self._status = 500
        self._headers: list[tuple[bytes, bytes]] = []
        self._body: list[bytes] = []

    async def send(self, event: MutableMapping[str, Any]) -> None:
        if event["type"] == "http.response.start":
            self._status = event["status"]
            self._headers = [(bytes(name).lower(), bytes(value)) for name, value in event.get("headers", ())]
        elif event["type"] == "http.response.body":
            self._body.append(event.get("body", b""))

    def response(self) -> Response:
        content_type = dict(self._headers).get(b"content-type", PLAIN_TEXT.encode())
        return Response(
            status=self._status,
            content_type=content_type.decode("latin-1"),
            body=b"".join(self._body),
            headers=tuple(
                (name.decode("latin-1"), value.decode("latin-1"))
                for name, value in self._headers
                if name not in _NOT_OURS
            ),
        )


def _scope(request: Request) -> dict[str, Any]:
    return {
        "type": "http",
        "asgi": {"version": "3.0", "spec_version": "2.4"},
        "http_version": "1.1",
        "method": request.method,
        "scheme": "http",
        "path": "/".join(decode(segment) for segment in request.path.split("/")),
        "raw_path": request.path.encode(),
        "query_string": request.query.encode(),
        "root_path": "",
        "headers": [(name.encode("latin-1"), value.encode("latin-1")) for name, value in request.headers.items()],
        "client": None,
        "server": None,
        "state": {"request_id": request.id},
    }
