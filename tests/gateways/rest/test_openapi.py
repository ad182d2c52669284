"""The description is valid, complete, and readable without a network."""

import json

from openapi_spec_validator import validate
from tests.gateways.rest.door import Door
from tests.gateways.rest.scripted_queues import ScriptedQueues
from tests.gateways.rest.scripted_transactions import ScriptedTransactions

from headrace.gateways.rest.message import message_routes
from headrace.gateways.rest.openapi import operations
from headrace.gateways.rest.queue import QueueRoutes
from headrace.gateways.rest.transaction import transaction_routes


def test_the_description_is_valid() -> None:
    description = Door().json("GET", "/openapi.json")
    assert description["openapi"].startswith("3.1")
    validate(description)


def test_every_route_is_described_and_every_description_is_a_route() -> None:
    queues = ScriptedQueues()
    application = QueueRoutes(queues, is_admin=True, admin_address=lambda: "").application()
    quick = [*message_routes(queues), *transaction_routes(ScriptedTransactions())]
    served = {(route.method.lower(), route.path) for route in quick}
    for route in application.routes:
        methods = set(getattr(route, "methods", set())) - {"HEAD"}
        served |= {(method.lower(), str(getattr(route, "path", ""))) for method in methods}
    assert served == {(one.method, one.path) for one in operations(wait_seconds_max=50)}


def test_the_page_names_every_operation_and_loads_nothing() -> None:
    answer = Door().ask("GET", "/docs")
    assert answer.content_type == "text/html; charset=utf-8"
    assert dict(answer.headers)["content-security-policy"].startswith("default-src 'none'")
    page = answer.body.decode()
    for path, methods in json.loads(Door().ask("GET", "/openapi.json").body)["paths"].items():
        assert path in page
        for operation in methods.values():
            assert operation["operationId"] in page
    assert "<script" not in page
    assert "src=" not in page
