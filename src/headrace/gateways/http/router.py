"""Which route serves a request. Refused before its body is read, if none does.

A path is declared as literals and placeholders, `/queues/{queue}/messages/{receipt}`; a placeholder may be narrowed by
a regular expression, `{account:[0-9]{12}}`. Literals win over placeholders. Percent-encoding is undone after the path
is cut at its slashes, so an encoded slash is part of a value and never a border.

Routes that share a method and a path are told apart by `when`, asked in the order in which they were declared; this is
how gateways that do not know each other share a port.
"""

import re
from collections.abc import Callable, Coroutine, Iterable
from typing import Any, Generic, NamedTuple, Protocol, TypeVar
from urllib.parse import unquote_to_bytes

import msgspec

from headrace.broker.promise import Promise
from headrace.gateways.http.counters import NO_ROUTE
from headrace.gateways.http.errors import problem_of
from headrace.gateways.http.message import RefusedError, Request, Response

T = TypeVar("T")

_SAFE_METHODS = ("GET", "HEAD")


class Later(msgspec.Struct, Generic[T], frozen=True, eq=False):
    """An answer that a promise will bring, with no task in between."""

    promise: Promise[T]
    # What it gives is sent when the promise is kept. It may be called before, with what the promise will be kept with
    # if it is, so it has no effect of its own.
    render: Callable[[T], Response]
    # Called once if the client goes away before its answer was written, or the wait has to end.
    cancel: Callable[[], None] | None = None
    # Whether nothing is on its way yet, so that no memory has to be kept for the answer.
    is_idle: Callable[[], bool] | None = None


Outcome = Response | Later[Any] | Coroutine[Any, Any, Response]


class Sized(msgspec.Struct, frozen=True, eq=False):
    """A request whose answer may be large: it begins once the node has memory for that."""

    size: int  # about how many bytes the answer has
    begin: Callable[[], Outcome]


# A route that can answers in the parser's callback; one that waits for the log gives a Later; the rest are coroutines.
Handler = Callable[[Request], Outcome | Sized]


class Route(NamedTuple):
    method: str
    path: str
    handler: Handler
    # Whether it is the one, by the request without its body. None: it is.
    when: Callable[[Request], bool] | None = None
    # How what its handler raises is answered, and what the server refuses on its behalf.
    failed: Callable[[Request, Exception], Response] = problem_of
    # Whether a GET only looks. Then HEAD is answered as GET without the body, a link on another site may lead here, and
    # the request is cut short when its client goes away. A GET that leases messages or names an operation does more.
    is_safe: bool = True
    # Whether every request is refused unless the caller signed it, which a web page cannot do.
    is_signed: bool = False

    def only_looks(self, method: str) -> bool:
        return self.is_safe and method in _SAFE_METHODS


class Found(NamedTuple):
    """The routes of a method and a path, and what stands in the path's placeholders."""

    routes: tuple[Route, ...]
    values: tuple[str, ...]


class Fallback(Protocol):
    """Whatever serves the paths that the table does not have."""

    def find(self, method: str, path: str) -> Found: ...


class _Node:
    __slots__ = ("literals", "methods", "placeholders")

    def __init__(self) -> None:
        self.literals: dict[str, _Node] = {}
        self.placeholders: list[tuple[re.Pattern[str], _Node]] = []
        self.methods: dict[str, tuple[Route, ...]] = {}


class Router:
    def __init__(self, routes: Iterable[Route], *, fallback: Fallback | None = None) -> None:
        self._root = _Node()
        self._fallback = fallback
        for route in routes:
            node = self._root
            for segment in route.path.split("/")[1:]:
                node = _below(node, segment)
            earlier = node.methods.get(route.method, ())
            assert not earlier or earlier[-1].when is not None, f"{route.method} {route.path} is declared twice"
            node.methods[route.method] = (*earlier, route)

    def find(self, method: str, path: str) -> Found:
        """The routes that may serve this. Raises RefusedError."""
        segments = path.split("/")[1:] if path.startswith("/") else [path]
        if "%" in path:
            segments = [decode(segment) for segment in segments]
        values: list[str] = []
        methods = _walk(self._root, segments, 0, values)
        if methods is None:
            if self._fallback is not None:
                return self._fallback.find(method, path)
            raise not_found()
        routes = methods.get(method)
        if routes is None and method == "HEAD":
            routes = tuple(route for route in methods.get("GET", ()) if route.is_safe)
        if not routes:
            raise method_not_allowed(methods)
        return Found(routes, tuple(values))


def _below(node: _Node, segment: str) -> _Node:
    if not (segment.startswith("{") and segment.endswith("}")):
        return node.literals.setdefault(segment, _Node())
    _, _, expression = segment[1:-1].partition(":")
    pattern = re.compile(expression or ".+", re.DOTALL)
    for known, below in node.placeholders:
        if known.pattern == pattern.pattern:
            return below
    below = _Node()
    node.placeholders.append((pattern, below))
    return below


def _walk(node: _Node, segments: list[str], at: int, values: list[str]) -> dict[str, tuple[Route, ...]] | None:
    """The methods of the path from here on, and its values. Where there is none, values may be left behind."""
    while at < len(segments):
        segment = segments[at]
        at += 1
        below, placeholders = node.literals.get(segment), node.placeholders
        if below is None and len(placeholders) == 1:
            pattern, node = placeholders[0]
            if pattern.fullmatch(segment) is None:
                return None
            values.append(segment)
        elif below is not None and not placeholders:
            node = below
        else:
            return _walk_each(below, placeholders, segments, at, values)
    return node.methods or None


def _walk_each(
    literal: _Node | None,
    placeholders: list[tuple[re.Pattern[str], _Node]],
    segments: list[str],
    at: int,
    values: list[str],
) -> dict[str, tuple[Route, ...]] | None:
    """Try one way after the other, the literal's first."""
    mark = len(values)
    if literal is not None and (methods := _walk(literal, segments, at, values)) is not None:
        return methods
    for pattern, below in placeholders:
        if pattern.fullmatch(segments[at - 1]) is None:
            continue
        values[mark:] = [segments[at - 1]]
        if (methods := _walk(below, segments, at, values)) is not None:
            return methods
    return None


def refusing(error: RefusedError) -> Found:
    """A route that refuses. It counts as none."""

    def refuse(request: Request) -> Response:
        raise error

    return Found((Route("", NO_ROUTE, refuse),), ())


def visiting() -> RefusedError:
    return RefusedError(
        403,
        "foreign_visit",
        "a browser came here from another site or did not say from where, and this would do more than look; use a "
        "program such as curl or headrace instead",
    )


_BAD_ESCAPE = re.compile("%(?![0-9A-Fa-f]{2})")


def decode(text: str) -> str:
    """Undo percent-encoding of one piece of a path or query."""
    if _BAD_ESCAPE.search(text) is None:
        try:
            return unquote_to_bytes(text).decode()
        except UnicodeDecodeError:
            pass
    raise RefusedError(
        400, "malformed_path", "the address has a percent sign that is not followed by UTF-8 in hexadecimal; encode it"
    )


def not_found() -> RefusedError:
    return RefusedError(404, "not_found", "nothing is served at this path; GET / lists what is")


def method_not_allowed(methods: dict[str, tuple[Route, ...]]) -> RefusedError:
    takes = set(methods)
    if any(route.is_safe for route in methods.get("GET", ())):
        takes.add("HEAD")
    allowed = ", ".join(sorted(takes))
    return RefusedError(
        405, "method_not_allowed", f"this path takes {allowed}; use one of them", headers=(("Allow", allowed),)
    )
