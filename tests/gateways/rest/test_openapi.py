"""The description is valid, complete, and readable without a network."""

import json
from typing import Any

import msgspec
import pytest
from openapi_spec_validator import validate
from tests.gateways.rest.door import Door
from tests.gateways.rest.scripted_queues import ScriptedQueues
from tests.gateways.rest.scripted_transactions import ScriptedTransactions

from headrace.gateways.rest import raw
from headrace.gateways.rest.config_form import ABOUT_SETTINGS
from headrace.gateways.rest.message import message_routes
from headrace.gateways.rest.operation import operations
from headrace.gateways.rest.queue import QueueRoutes
from headrace.gateways.rest.transaction import transaction_routes
from headrace.model.message import Received


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


ONLY_LOOK = {
    "/queues",
    "/queues/{queue}",
    "/queues/{queue}/browse",
    "/queues/{queue}/explain",
    "/queues/{queue}/redrives",
    "/queues/{queue}/readers",
    "/queues/{queue}/readers/{name}",
}


def test_a_link_on_another_site_leads_only_to_routes_that_look() -> None:
    router = Door().router
    safe = set()
    for one in operations(wait_seconds_max=50):
        [route] = router.find(one.method.upper(), one.path.replace("{", "").replace("}", "")).routes
        if route.only_looks(one.method.upper()):
            safe.add(one.path)
    # A route that is new here and changes nothing when it is asked joins the list; any other declares that it acts.
    assert safe == ONLY_LOOK


def _operation(name: str) -> dict[str, Any]:
    paths = Door().json("GET", "/openapi.json")["paths"]
    return next(one for methods in paths.values() for one in methods.values() if one["operationId"] == name)


def _shape(body: dict[str, Any]) -> dict[str, Any]:
    """What a body's reference leads to."""
    name = body["schema"]["$ref"].rpartition("/")[2]
    shape: dict[str, Any] = Door().json("GET", "/openapi.json")["components"]["schemas"][name]
    return shape


@pytest.mark.parametrize("name", ["send", "send_in_transaction"])
def test_a_message_can_be_sent_in_each_form_that_is_taken(name: str) -> None:
    operation = _operation(name)
    content = operation["requestBody"]["content"]
    assert set(content) == {"application/json", "application/msgpack", "application/octet-stream"}
    assert content["application/octet-stream"]["schema"]["format"] == "binary"
    assert {field["name"] for field in operation["parameters"] if field["in"] == "query"} == raw.OPTIONS
    entries = _shape(content["application/msgpack"])["properties"]["messages"]["items"]
    body = _shape({"schema": entries})["properties"]["body"]
    assert (body["format"], body["contentMediaType"]) == ("binary", "application/octet-stream")
    assert "contentEncoding" not in body


def test_messages_are_described_as_they_come_back_in_messagepack() -> None:
    door = Door()
    door.queues.messages = [
        Received("0-7", b"\xff", b"k", (("a", b"b"),), 5, None, 1, 2, 3, "r7", 30_500, 0, 7),
    ]
    for name, path in (("receive", "/queues/tasks/messages"), ("browse_queue", "/queues/orders/browse")):
        content = _operation(name)["responses"]["200"]["content"]
        assert set(content) == {"application/json", "application/msgpack"}
        entries = _shape(content["application/msgpack"])["properties"]["messages"]["items"]
        described = _shape({"schema": entries})
        assert described["properties"]["body"]["format"] == "binary"
        for message in door.packed("GET", path)["messages"]:
            assert set(described["required"]) <= set(message) <= set(described["properties"])


def test_every_answer_in_messagepack_is_described_beside_the_one_in_json() -> None:
    """By the routes themselves: what answers MessagePack when it is asked for it says so."""
    door = Door()
    bodies = {
        "acknowledge_batch": {"receipt_handles": ["r"]},
        "extend_batch": {"extensions": [{"receipt_handle": "r", "lease": 1}]},
        "release_batch": {"releases": [{"receipt_handle": "r"}]},
        "reject_batch": {"rejections": [{"receipt_handle": "r"}]},
        "begin": {},
        "create_queue": {},
    }
    for one in operations(wait_seconds_max=50):
        if one.name in bodies:
            value = bodies[one.name]
            body = msgspec.msgpack.encode(value)
            path = one.path.format(queue="orders")
            answer = door.ask(one.method.upper(), path, body, type="application/msgpack", accept="application/msgpack")
            assert answer.status in one.answers, answer.body
            assert (answer.content_type == "application/msgpack") == (answer.status in one.answers_packed), one.name


def test_nothing_that_can_be_left_out_is_described_with_a_default() -> None:
    """Generators would make a required field of it, and take an answer's for one that is always there."""
    for schema in Door().json("GET", "/openapi.json")["components"]["schemas"].values():
        for field in schema.get("properties", {}).values():
            assert "default" not in field


def test_every_setting_of_a_queue_says_what_it_means() -> None:
    settings = Door().json("GET", "/openapi.json")["components"]["schemas"]["ConfigForm"]["properties"]
    assert set(ABOUT_SETTINGS) == set(settings)
    for name, field in settings.items():
        assert field["description"] == ABOUT_SETTINGS[name]


def test_the_examples_of_the_page_are_for_the_node_that_was_asked() -> None:
    page = Door().ask("GET", "/docs", host="queue.internal:9000").body.decode()
    assert "queue.internal:9000/queues/tasks/messages" in page
    assert "localhost:8080" not in page
    assert "<b>" not in Door().ask("GET", "/docs", host="<b>x").body.decode().partition("<nav>")[0]


def test_the_page_names_every_operation_and_loads_nothing() -> None:
    answer = Door().ask("GET", "/docs")
    assert answer.content_type == "text/html; charset=utf-8"
    assert dict(answer.headers)["content-security-policy"].startswith("default-src 'none'")
    page = answer.body.decode()
    for path, methods in json.loads(Door().ask("GET", "/openapi.json").body)["paths"].items():
        assert path in page
        for operation in methods.values():
            assert f'id="{operation["operationId"]}"' in page
            assert f'href="#{operation["operationId"]}"' in page
    assert "<script" not in page
    assert "src=" not in page
