"""What the node says about itself.

`GET /` tells what is here, `GET /livez` that its event loop turns, `GET /readyz` whether new work should come here now,
`GET /health` whether all that it holds can be served, `GET /metrics` what it counts. What those answers are made of is
handed in by the composition root; nothing here reaches into the rooms below.
"""

from collections.abc import Callable, Coroutine, Mapping, Sequence
from typing import Any, NamedTuple

from headrace.gateways.http.message import Request, Response, json_response, problem
from headrace.gateways.http.router import Route, Sized

METRICS_TYPE = "text/plain; version=0.0.4; charset=utf-8"
# A node with a thousand bad partitions has one problem, not an answer of a thousand lines.
REASONS_MAX = 20
# About how long the metrics are.
METRICS_BYTES = 256 * 1024


class Reason(NamedTuple):
    """Why a node should not get work: a code that does not change, and what to do."""

    code: str
    detail: str


Health = Callable[[], Sequence[Reason]]
# What an operator should look at, though the node serves all it holds.
Warnings = Callable[[], Sequence[Reason]]
Unready = Callable[[], Coroutine[Any, Any, Sequence[Reason]]]
Metrics = Callable[[], Coroutine[Any, Any, bytes]]


def _no_warnings() -> Sequence[Reason]:
    return ()


def node_routes(
    *,
    about: Mapping[str, Any],
    health: Health,
    unready: Unready,
    metrics: Metrics,
    warnings: Warnings = _no_warnings,
) -> list[Route]:
    """The routes of a node about itself. `about` is shown at `/` as it is."""
    index = {
        "name": "headrace",
        **about,
        "links": {
            "/health": "200 while this node can serve everything it holds, else 503 with reasons",
            "/livez": "200 while the node's event loop turns",
            "/readyz": "200 while new work may come here: started, metadata readable, not stopping; else 503",
            "/metrics": "counters and gauges in Prometheus's text format",
            "/queues": "the queues",
            "/docs": "how to use them, to read",
            "/openapi.json": "the same for programs",
        },
    }

    def get_index(request: Request) -> Response:
        return json_response(index)

    def get_health(request: Request) -> Response:
        reasons = health()
        warned = [one._asdict() for one in warnings()]
        more = {"warnings": warned} if warned else {}
        if not reasons:
            return json_response({"status": "ok", **more})
        return problem(
            503,
            "unhealthy",
            f"{len(reasons)} reasons not to send work to this node; each says what to do",
            more={
                "reason_count": len(reasons),
                "reasons": [reason._asdict() for reason in reasons[:REASONS_MAX]],
                **more,
            },
        )

    def get_livez(request: Request) -> Response:
        return json_response({"status": "ok"})

    async def get_readyz(request: Request) -> Response:
        reasons = await unready()
        if not reasons:
            return json_response({"status": "ok"})
        return problem(503, "unready", reasons[0].detail, more={"reasons": [reason._asdict() for reason in reasons]})

    async def render() -> Response:
        return Response(content_type=METRICS_TYPE, body=await metrics())

    def get_metrics(request: Request) -> Sized:
        return Sized(METRICS_BYTES, render)

    return [
        Route("GET", "/", get_index),
        Route("GET", "/health", get_health),
        Route("GET", "/livez", get_livez),
        Route("GET", "/readyz", get_readyz),
        Route("GET", "/metrics", get_metrics),
    ]
