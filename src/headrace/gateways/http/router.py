"""Which route serves a request. Refused before its body is read, if none does."""

from collections.abc import Callable, Coroutine, Iterable
from typing import Any, NamedTuple

from headrace.gateways.http.message import RefusedError, Request, Response

# A route that answers at once is answered from the parser's callback; one that has to wait gives a coroutine.
Handler = Callable[[Request], Response | Coroutine[Any, Any, Response]]


class Route(NamedTuple):
    method: str
    path: str
    handler: Handler


class Router:
    def __init__(self, routes: Iterable[Route]) -> None:
        self._by_path: dict[str, dict[str, Route]] = {}
        for route in routes:
            methods = self._by_path.setdefault(route.path, {})
            assert route.method not in methods, f"{route.method} {route.path} is declared twice"
            methods[route.method] = route

    def find(self, method: str, path: str) -> Route:
        methods = self._by_path.get(path)
        if methods is None:
            raise RefusedError(404, "not_found", "nothing is served at this path; GET / lists what is")
        route = methods.get("GET" if method == "HEAD" else method)
        if route is None:
            allowed = sorted({*methods, "HEAD"} if "GET" in methods else methods)
            raise RefusedError(
                405,
                "method_not_allowed",
                f"this path takes {', '.join(allowed)}; use one of them",
                headers=(("Allow", ", ".join(allowed)),),
            )
        return route
