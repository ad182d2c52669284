"""What the node says about itself.

`GET /` tells what is here, `GET /health` whether this node should get work, `GET /metrics` what it counts. What those
answers are made of is handed in by the composition root; nothing here reaches into the rooms below.
"""

from collections.abc import Callable, Coroutine, Mapping, Sequence
from typing import Any, NamedTuple

from headrace.gateways.http.message import Request, Response, json_response, problem
from headrace.gateways.http.router import Route

METRICS_TYPE = "text/plain; version=0.0.4; charset=utf-8"
# A node with a thousand bad partitions has one problem, not an answer of a thousand lines.
REASONS_MAX = 20


class Reason(NamedTuple):
    """Why a node should not get work: a code that does not change, and what to do."""

    code: str
    detail: str


Health = Callable[[], Sequence[Reason]]
Metrics = Callable[[], Coroutine[Any, Any, bytes]]


def node_routes(*, about: Mapping[str, Any], health: Health, metrics: Metrics) -> list[Route]:
    """The routes of a node about itself. `about` is shown at `/` as it is."""
    index = {
        "name": "headrace",
        **about,
        "links": {
            "/health": "200 while this node can serve everything it holds, else 503 with reasons",
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
        if not reasons:
            return json_response({"status": "ok"})
        return problem(
            503,
            "unhealthy",
            f"{len(reasons)} reasons not to send work to this node; each says what to do",
            more={
                "reason_count": len(reasons),
                "reasons": [reason._asdict() for reason in reasons[:REASONS_MAX]],
            },
        )

    async def get_metrics(request: Request) -> Response:
        return Response(content_type=METRICS_TYPE, body=await metrics())

    return [
        Route("GET", "/", get_index),
        Route("GET", "/health", get_health),
        Route("GET", "/metrics", get_metrics),
    ]
