"""What a node says about itself over HTTP."""

import asyncio
import json

from headrace.gateways.http.message import Request, Response
from headrace.gateways.http.router import Later, Sized
from headrace.gateways.rest.about import REASONS_MAX, Reason, node_routes


def answer(path: str, *, reasons: list[Reason], warnings: list[Reason] | None = None) -> Response:
    async def metrics() -> bytes:
        return b"up 1\n"

    async def unready() -> list[Reason]:
        return reasons

    routes = node_routes(
        about={"node_id": 7},
        health=lambda: reasons,
        unready=unready,
        metrics=metrics,
        warnings=lambda: warnings or [],
    )
    route = next(route for route in routes if route.path == path)
    outcome = route.handler(Request("GET", path, "", {}, b""))
    if isinstance(outcome, Sized):
        outcome = outcome.begin()
    assert not isinstance(outcome, Later)
    return outcome if isinstance(outcome, Response) else asyncio.run(outcome)


def test_the_front_page_says_what_it_is_and_where_to_go() -> None:
    page = json.loads(answer("/", reasons=[]).body)
    assert (page["name"], page["node_id"]) == ("headrace", 7)
    assert set(page["links"]) == {"/health", "/livez", "/readyz", "/metrics", "/queues", "/docs", "/openapi.json"}


def test_a_healthy_node_answers_200() -> None:
    assert answer("/health", reasons=[]).status == 200


def test_an_unhealthy_node_answers_503_with_reasons_bounded_in_number() -> None:
    health = answer("/health", reasons=[Reason("partition_offline", f"orders-{n} is offline") for n in range(1000)])
    assert health.status == 503
    value = json.loads(health.body)
    assert (value["code"], value["reason_count"]) == ("unhealthy", 1000)
    assert len(value["reasons"]) == REASONS_MAX
    assert value["reasons"][0] == {"code": "partition_offline", "detail": "orders-0 is offline"}


def test_a_warning_is_told_and_takes_no_node_out_of_service() -> None:
    warnings = [Reason("clock_jumped", "confirm it")]
    healthy = answer("/health", reasons=[], warnings=warnings)
    assert healthy.status == 200
    assert json.loads(healthy.body) == {
        "status": "ok",
        "warnings": [{"code": "clock_jumped", "detail": "confirm it"}],
    }
    unhealthy = answer("/health", reasons=[Reason("disk_full", "free space")], warnings=warnings)
    assert unhealthy.status == 503
    assert json.loads(unhealthy.body)["warnings"] == [{"code": "clock_jumped", "detail": "confirm it"}]


def test_a_node_that_is_not_ready_lives() -> None:
    reasons = [Reason("stopping", "the node stops; send work elsewhere")]
    ready = answer("/readyz", reasons=reasons)
    assert ready.status == 503
    value = json.loads(ready.body)
    assert (value["code"], value["reasons"][0]["code"], value["retriable"]) == ("unready", "stopping", True)
    assert answer("/livez", reasons=reasons).status == 200
    assert answer("/readyz", reasons=[]).status == 200


def test_metrics_have_the_text_formats_type() -> None:
    metrics = answer("/metrics", reasons=[])
    assert metrics.content_type == "text/plain; version=0.0.4; charset=utf-8"
    assert metrics.body == b"up 1\n"
