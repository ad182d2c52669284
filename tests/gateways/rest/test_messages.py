"""Messages over REST: what is stored for what was sent, what is given back, and what is refused and how."""

import json
from typing import Any

import msgspec
import pytest
from tests.gateways.rest.door import Door

from headrace.broker.queue.port import Extension, Rejection, Release
from headrace.model.errors import QueueFullError, StaleReceiptError, UnknownQueueError
from headrace.model.message import Message, Received

SEND = "/queues/orders/messages"


@pytest.fixture
def door() -> Door:
    return Door()


def received(body: bytes = b"hello", **more: Any) -> Received:
    values = {"key": None, "headers": (), "deduplication_id": None} | more
    return Received(
        id="0-7",
        body=body,
        priority=5,
        sent_ms=1,
        attempt=2,
        first_received_ms=3,
        receipt="r7",
        lease_ms=30_500,
        partition=0,
        offset=7,
        **values,
    )


def test_a_message_with_all_options_is_stored_as_it_was_meant(door: Door) -> None:
    stored = door.json(
        "POST",
        SEND,
        {
            "message": "héllo",
            "priority": 9,
            "delay": 0.5,
            "ttl": 60,
            "key": "customer-1",
            "headers": {"a": "b", "c": {"base64": "/w=="}, "d": ["1", "2"]},
            "deduplication_id": "once",
        },
        status=201,
    )
    assert stored == {"id": "0-0", "partition": 0, "offset": 0, "duplicate": False}
    assert door.queues.sent == [
        Message(
            "héllo".encode(),
            b"customer-1",
            (("a", b"b"), ("c", b"\xff"), ("d", b"1"), ("d", b"2")),
            9,
            500,
            60_000,
            "once",
        )
    ]


@pytest.mark.parametrize("text", ['{"a": [1, 2.50]}', "17", "null", "true", "[]", "123456789012345678901234567890"])
def test_a_value_that_is_no_text_comes_back_as_it_was_written(door: Door, text: str) -> None:
    assert door.ask("POST", SEND, b'{"message": %b}' % text.encode()).status == 201
    [message] = door.queues.sent
    assert message.headers == (("content-type", b"application/json"),)
    door.queues.messages = [received(message.body, headers=message.headers)]
    assert f'"body":{text}'.encode() in door.ask("GET", SEND).body


def test_text_and_bytes_come_back_as_json_can_say_them(door: Door) -> None:
    door.queues.messages = [
        received("grüße".encode()),
        received(b"\xff\x00"),
        received(b"{not json", headers=(("content-type", b"application/json"),)),
        received(b"x", key=b"\xfe", headers=(("a", b"1"), ("a", b"\xff"), ("a", b"3")), deduplication_id="once"),
    ]
    text, data, wrong, full = door.json("GET", f"{SEND}?batch_size=10")["messages"]
    assert text["body"] == "grüße"
    assert (data["body"], data["encoding"]) == ("/wA=", "base64")
    assert wrong["body"] == "{not json"
    assert full["key"] == {"base64": "/g=="}
    assert full["headers"] == {"a": ["1", {"base64": "/w=="}, "3"]}
    assert text.keys() == {
        *("id", "body", "receipt_handle", "attempt", "priority", "sent_ms", "first_received_ms", "lease", "partition"),
        "offset",
    }
    assert (text["receipt_handle"], text["lease"], text["attempt"]) == ("r7", 30.5, 2)


def test_a_batch_has_a_result_for_each_message(door: Door) -> None:
    door.queues.errors = [None, QueueFullError("orders holds 10 messages, its limit; consume some")]
    answer = door.json("POST", SEND, {"messages": [{"message": "a"}, {"message": "b", "priority": 1}, {"message": 3}]})
    assert answer["results"][0] == {"id": "0-0", "partition": 0, "offset": 0, "duplicate": False}
    assert answer["results"][1]["error"]["code"] == "queue_full"
    assert answer["results"][2]["offset"] == 1
    assert [message.body for message in door.queues.sent] == [b"a", b"3"]


def test_a_batch_may_have_an_id_of_its_own(door: Door) -> None:
    door.json("POST", SEND, {"messages": [{"message": "a"}], "request_id": "r1"})
    door.packed("POST", SEND, {"messages": [{"body": b"a"}], "request_id": "r2"})
    assert door.queues.asked == [("send", "r1"), ("send", "r2")]
    assert door.json("POST", SEND, {"message": "a", "request_id": "r"}, status=422)["field"] == "request_id"


def test_a_single_message_that_is_not_stored_is_a_problem(door: Door) -> None:
    door.queues.errors = [QueueFullError("orders holds 10 messages, its limit; consume some")]
    answer = door.ask("POST", SEND, b'{"message": "a"}')
    assert (answer.status, dict(answer.headers)["Retry-After"]) == (429, "1")
    assert json.loads(answer.body)["code"] == "queue_full"


def test_a_raw_body_is_the_message_and_its_options_stand_beside_it(door: Door) -> None:
    answer = door.ask(
        "POST",
        f"{SEND}?priority=7&key=a%20b",
        b"\x00\xff",
        type="image/png",
        headrace_delay="1.5",
        headrace_header_trace="t\xc3\xa9",
        headrace_key="overridden",
    )
    assert answer.status == 201
    assert door.queues.sent == [
        Message(b"\x00\xff", b"a b", (("trace", "té".encode()), ("content-type", b"image/png")), 7, 1_500, None, None)
    ]


@pytest.mark.parametrize(
    ("type", "body"),
    [
        ("application/json", b'{"message": "a"}'),
        ("application/json", b'{"messages": [{"message": "a"}]}'),
        ("application/msgpack", msgspec.msgpack.encode({"messages": [{"body": b"a"}]})),
    ],
)
def test_options_beside_a_body_that_has_places_for_them_are_refused(door: Door, type: str, body: bytes) -> None:
    for header in ("priority", "header_trace", "colour"):
        answer = door.ask("POST", SEND, body, type=type, **{f"headrace_{header}": "9"})
        assert answer.status == 422
        assert json.loads(answer.body)["field"] == f"headrace-{header}".replace("_", "-")
    answer = door.ask("POST", f"{SEND}?priority=9", body, type=type)
    assert (answer.status, json.loads(answer.body)["field"]) == (422, "priority")
    assert door.queues.sent == []


def test_messagepack_carries_bytes_both_ways(door: Door) -> None:
    entry = {"body": b"\xff", "key": b"\xfe", "headers": [["a", b"\xfd"]], "delay": 1.25}
    answer = door.packed("POST", SEND, {"messages": [entry, {"body": b""}]})
    assert [result["offset"] for result in answer["results"]] == [0, 1]
    assert door.queues.sent[0] == Message(b"\xff", b"\xfe", (("a", b"\xfd"),), 5, 1_250, None, None)
    door.queues.messages = [received(b"\xff", key=b"\xfe", headers=(("a", b"\xfd"),))]
    [message] = door.packed("GET", SEND)["messages"]
    assert (message["body"], message["key"], message["headers"]) == (b"\xff", b"\xfe", [["a", b"\xfd"]])
    assert "deduplication_id" not in message


def test_a_receive_asks_for_what_its_query_says(door: Door) -> None:
    door.json("GET", SEND)
    door.json("GET", f"{SEND}?batch_size=10&wait=2.5&lease=0&attempt_id=x")
    assert door.queues.asked == [("orders", 1, None, 0, None), ("orders", 10, 0, 2_500, "x")]


@pytest.mark.parametrize(
    ("query", "field"),
    [
        ("batch_size=0", "batch_size"),
        ("batch_size=1001", "batch_size"),
        ("batch_size=x", "batch_size"),
        ("wait=51", "wait"),
        ("wait=-1", "wait"),
        ("wait=nan", "wait"),
        ("wait=1e3", "wait"),
        ("wait=1e999", "wait"),
        ("lease=43201", "lease"),
        ("batchsize=1", "batchsize"),
        ("wait=1&wait=2", "wait"),
        ("attempt_id=", "attempt_id"),
    ],
)
def test_a_wrong_query_is_refused_with_its_field(door: Door, query: str, field: str) -> None:
    problem = door.json("GET", f"{SEND}?{query}", status=422)
    assert (problem["code"], problem["field"]) == ("invalid_field", field)


@pytest.mark.parametrize(
    ("body", "status", "field"),
    [
        (b"", 400, None),
        (b"{", 400, None),
        (b'{"message": "\\ud800"}', 400, None),
        (b'{"message": "\xff"}', 400, "message"),
        (b'{"message": ["\xff"]}', 400, "message"),
        (b'{"message": 1e999}', 422, "message"),
        (b'{"message": ' + b"9" * 5_000 + b"}", 422, "message"),
        (b'{"message": ' + b"[" * 100_000 + b"]" * 100_000 + b"}", 400, None),
        (b"[]", 422, ""),
        (b"{}", 422, "message"),
        (b'{"mesage": 1}', 422, "mesage"),
        (b'{"message": 1, "priority": 10}', 422, "priority"),
        (b'{"message": 1, "priority": "9"}', 422, "priority"),
        (b'{"message": 1, "delay": -1}', 422, "delay"),
        (b'{"message": 1, "ttl": 0}', 422, "ttl"),
        (b'{"message": 1, "key": ""}', 422, "key"),
        (b'{"message": 1, "headers": {"a": 1}}', 422, "headers[...]"),
        (b'{"message": 1, "headers": {"headrace-id": "x"}}', 422, "headers"),
        (b'{"message": 1, "headers": {"a": {"base64": "?"}}}', 422, "headers[...].base64"),
        (b'{"messages": []}', 422, "messages"),
        (b'{"messages": [{"message": 1, "delay": "x"}]}', 422, "messages[0].delay"),
        (b'{"messages": [{"message": 1}, {"message": {"a": 1e999}}]}', 422, "messages[1].message"),
        (b'{"messages": [{"message": 1}, {"message": "\xff"}]}', 400, "messages[1].message"),
        (b'{"messages": [{"message": 1}, {"message": 1, "ttk": 5}]}', 422, "messages[1].ttk"),
        (b'{"messages": [{"message": 1}, {"priority": 5}]}', 422, "messages[1].message"),
        (b'{"messages": [{"message": 1}], "priority": 3}', 422, "priority"),
        (b'{"messages": [{"message": 1}], "message": 3}', 422, "message"),
    ],
)
def test_a_wrong_body_is_refused_with_its_place(door: Door, body: bytes, status: int, field: str | None) -> None:
    answer = door.ask("POST", SEND, body)
    problem = json.loads(answer.body)
    assert (answer.status, problem.get("field")) == (status, field), problem
    assert door.queues.sent == []


def test_a_form_is_refused_since_it_is_a_forgotten_content_type(door: Door) -> None:
    answer = door.ask("POST", SEND, b'{"message": 1}', type="application/x-www-form-urlencoded")
    assert answer.status == 415
    assert "--json" in json.loads(answer.body)["detail"]
    assert door.ask("POST", SEND, b'{"message": 1}', type=None).status == 201
    assert door.ask("POST", "/queues/orders/releases", b"x", type="text/plain").status == 415


def test_a_lease_is_acknowledged_extended_released_and_rejected_by_its_handle(door: Door) -> None:
    door.json("DELETE", f"{SEND}/r%2B1", status=204)
    door.json("PATCH", f"{SEND}/r1", {"lease": 1.5}, status=204)
    door.json("PATCH", f"{SEND}/r1", {"release": {}}, status=204)
    door.json("PATCH", f"{SEND}/r1", {"release": {"delay": 2}}, status=204)
    door.json("PATCH", f"{SEND}/r1", {"reject": {"reason": "bad"}}, status=204)
    assert door.queues.asked == [
        ("acknowledge", "orders", ["r+1"]),
        ("extend", "orders", [Extension("r1", 1_500)]),
        ("release", "orders", [Release("r1", None)]),
        ("release", "orders", [Release("r1", 2_000)]),
        ("reject", "orders", [Rejection("r1", "bad")]),
    ]
    assert door.json("PATCH", f"{SEND}/r1", {}, status=422)["field"] == "lease"
    door.json("PATCH", f"{SEND}/r1", {"lease": 1, "reject": {}}, status=422)


def test_a_stale_receipt_is_gone(door: Door) -> None:
    door.queues.errors = [StaleReceiptError("the lease is over; receive the message again")]
    assert door.json("DELETE", f"{SEND}/r1", status=410)["code"] == "stale_receipt"


@pytest.mark.parametrize(
    ("route", "body", "asked"),
    [
        ("acknowledgements", {"receipt_handles": ["a", "b"]}, ["a", "b"]),
        (
            "extensions",
            {"extensions": [{"receipt_handle": "a", "lease": 1}, {"receipt_handle": "b", "lease": 0}]},
            [Extension("a", 1_000), Extension("b", 0)],
        ),
        (
            "releases",
            {"releases": [{"receipt_handle": "a"}, {"receipt_handle": "b", "delay": 1}]},
            [Release("a"), Release("b", 1_000)],
        ),
        (
            "rejections",
            {"rejections": [{"receipt_handle": "a"}, {"receipt_handle": "b", "reason": "x"}]},
            [Rejection("a", "rejected"), Rejection("b", "x")],
        ),
    ],
)
def test_batches_of_leases_have_a_result_for_each(
    door: Door, route: str, body: dict[str, Any], asked: list[Any]
) -> None:
    for ask in (door.json, door.packed):
        door.queues.errors = [None, StaleReceiptError("the lease is over")]
        first, second = ask("POST", f"/queues/orders/{route}", body)["results"]
        assert first == {}
        assert second["error"] == {"code": "stale_receipt", "detail": "the lease is over", "retriable": False}
        assert door.queues.asked[-1][2] == asked


def test_an_unknown_queue_is_not_found(door: Door) -> None:
    def receive(*_: object, **__: object) -> Any:
        raise UnknownQueueError("there is no queue orders; create it, or check the name")

    door.queues.receive = receive  # type: ignore[method-assign]
    assert door.json("GET", SEND, status=404)["code"] == "unknown_queue"


@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        ("POST", "acknowledgements", {"receipt_handles": ["r"]}),
        ("POST", "extensions", {"extensions": [{"receipt_handle": "r", "lease": 1}]}),
        ("POST", "releases", {"releases": [{"receipt_handle": "r"}]}),
        ("POST", "rejections", {"rejections": [{"receipt_handle": "r"}]}),
        ("PATCH", "messages/r", {"release": {}}),
    ],
)
def test_a_field_in_the_query_that_nobody_would_obey_is_refused(
    door: Door, method: str, path: str, body: dict[str, Any]
) -> None:
    assert door.json(method, f"/queues/orders/{path}?delay=5", body, status=422)["field"] == "delay"
    assert door.queues.asked == []


@pytest.mark.parametrize(
    ("accept", "is_packed"),
    [
        ("application/msgpack", True),
        ("application/x-msgpack", True),
        ("application/json", False),
        ("application/json, application/msgpack, application/problem+json", False),
        ("application/msgpack, application/json", True),
        ("application/msgpack, */*;q=0.1", True),
        ("application/msgpack;q=0.1, application/json", False),
        ("application/json;q=0.1, application/msgpack;q=0.5", True),
        ("application/msgpack;q=0", False),
        ("application/msgpack;q=high", False),
        ("*/*", False),
        ("text/html", False),
    ],
)
def test_an_answer_has_the_form_that_is_preferred(door: Door, accept: str, is_packed: bool) -> None:
    for path in (SEND, "/queues/orders/browse"):
        answer = door.ask("GET", path, accept=accept)
        assert answer.content_type == ("application/msgpack" if is_packed else "application/json")


@pytest.mark.parametrize("option", ["key", "deduplication-id"])
@pytest.mark.parametrize("length", [0, 1025])
def test_a_raw_bodys_options_are_no_longer_than_those_in_json(door: Door, option: str, length: int) -> None:
    headers = {f"headrace_{option}".replace("-", "_"): "x" * length}
    answer = door.ask("POST", SEND, b"body", type="application/octet-stream", **headers)
    assert answer.status == 422
    assert option.replace("-", "_").encode() in answer.body
