"""What a node says about itself over HTTP."""

import asyncio
import json

from headrace.gateways.http.message import Request, Response
from headrace.gateways.http.router import Later
from headrace.gateways.rest.about import REASONS_MAX, Reason, node_routes


def answer(path: str, *, reasons: list[Reason]) -> Response:
    async def metrics() -> bytes:
        return b"up 1\n"

    routes = node_routes(about={"node_id": 7}, health=lambda: reasons, metrics=metrics)
    route = next(route for route in routes if route.path == path)
    outcome = route.handler(Request("GET", path, "", {}, b""))
    assert not isinstance(outcome, Later)
    return outcome if isinstance(outcome, Response) else asyncio.run(outcome)


def test_the_front_page_says_what_it_is_and_where_to_go() -> None:
    page = json.loads(answer("/", reasons=[]).body)
    assert (page["name"], page["node_id"]) == ("headrace", 7)
    assert set(page["links"]) == {"/health", "/metrics", "/queues", "/docs", "/openapi.json"}


def test_a_healthy_node_answers_200() -> None:
    assert answer("/health", reasons=[]).status == 200


def test_an_unhealthy_node_answers_503_with_reasons_bounded_in_number() -> None:
    health = answer("/health", reasons=[Reason("partition_offline", f"orders-{n} is offline") for n in range(1000)])
    assert health.status == 503
    value = json.loads(health.body)
    assert (value["code"], value["reason_count"]) == ("unhealthy", 1000)
    assert len(value["reasons"]) == REASONS_MAX
    assert value["reasons"][0] == {"code": "partition_offline", "detail": "orders-0 is offline"}


def test_metrics_have_the_text_formats_type() -> None:
    metrics = answer("/metrics", reasons=[])
    assert metrics.content_type == "text/plain; version=0.0.4; charset=utf-8"
    assert metrics.body == b"up 1\n"
