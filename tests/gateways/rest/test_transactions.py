"""Transactions over REST: what is asked of them for what was sent, and what is refused and how."""

import json

import pytest
from tests.gateways.rest.door import Door

from headrace.model.errors import QueueFullError, StaleReceiptError
from headrace.model.message import Message


@pytest.fixture
def door() -> Door:
    return Door()


def begin(door: Door) -> str:
    id: str = door.json("POST", "/transactions", status=201)["id"]
    return f"/transactions/{id}"


def test_a_transaction_begins_with_the_time_that_it_is_given(door: Door) -> None:
    assert door.json("POST", "/transactions", status=201) == {"id": "t1", "timeout": 60.0}
    assert door.json("POST", "/transactions", {"timeout": 2.5}, status=201) == {"id": "t2", "timeout": 2.5}
    assert door.json("POST", "/transactions", {"timeout": 0}, status=422)["field"] == "timeout"
    assert door.json("POST", "/transactions", {"timeouts": 1}, status=422)["field"] == "timeouts"


def test_messages_and_acknowledgements_go_to_their_transaction(door: Door) -> None:
    at = begin(door)
    one = door.json("POST", f"{at}/queues/out/messages", {"message": "a", "priority": 9}, status=201)
    assert one == {"id": "0-0", "partition": 0, "offset": 0, "duplicate": False}
    many = door.json("POST", f"{at}/queues/out/messages", {"messages": [{"message": "b"}, {"message": 3}]})
    assert [result["offset"] for result in many["results"]] == [0, 1]
    door.packed("POST", f"{at}/queues/out/messages", {"messages": [{"body": b"\xff", "key": b"k"}]})
    assert door.ask("POST", f"{at}/queues/out/messages?key=k", b"raw", type="text/plain").status == 201
    assert door.json("POST", f"{at}/queues/in/acknowledgements", {"receipt_handles": ["r1", "r2"]}) == {
        "results": [{}, {}]
    }
    assert [(what, queue) for what, _, queue, _ in door.transactions.asked] == [
        *[("send", "out")] * 4,
        ("acknowledge", "in"),
    ]
    assert door.transactions.asked[0][3] == [Message(b"a", priority=9)]
    assert door.transactions.asked[2][3] == [Message(b"\xff", b"k")]
    assert door.transactions.asked[4] == ("acknowledge", "t1", "in", ["r1", "r2"])


def test_entries_that_fail_say_so_one_by_one(door: Door) -> None:
    at = begin(door)
    door.transactions.errors = [None, QueueFullError("out is full; consume some")]
    answer = door.json("POST", f"{at}/queues/out/messages", {"messages": [{"message": "a"}, {"message": "b"}]})
    assert [result.get("error", {}).get("code") for result in answer["results"]] == [None, "queue_full"]
    door.transactions.errors = [QueueFullError("out is full; consume some")]
    assert door.json("POST", f"{at}/queues/out/messages", {"message": "a"}, status=429)["code"] == "queue_full"
    door.transactions.errors = [StaleReceiptError("the lease is over")]
    answer = door.json("POST", f"{at}/queues/in/acknowledgements", {"receipt_handles": ["r1"]})
    assert answer["results"][0]["error"]["code"] == "stale_receipt"


def test_commit_and_abort_may_be_repeated_and_not_mixed(door: Door) -> None:
    at = begin(door)
    door.json("POST", f"{at}/commit", status=204)
    door.json("POST", f"{at}/commit", status=204)
    assert door.json("POST", f"{at}/abort", status=409)["code"] == "transaction_state"
    assert door.json("POST", f"{at}/queues/out/messages", {"message": "a"}, status=409)["code"] == "transaction_state"
    other = begin(door)
    door.json("POST", f"{other}/abort", status=204)
    door.json("POST", f"{other}/abort", status=204)
    door.json("POST", f"{other}/commit", status=409)
    assert door.transactions.ended == {"t1": "committed", "t2": "aborted"}


def test_a_transaction_that_nobody_knows_is_not_found(door: Door) -> None:
    assert door.json("POST", "/transactions/forged/commit", status=404)["code"] == "unknown_transaction"
    assert door.ask("GET", "/transactions/forged/commit").status == 405


def test_a_send_that_asks_to_be_repeated_is_refused(door: Door) -> None:
    at = begin(door)
    body = {"messages": [{"message": "a"}], "request_id": "r1"}
    assert door.json("POST", f"{at}/queues/out/messages", body, status=422)["field"] == "request_id"
    assert door.transactions.asked == []


@pytest.mark.parametrize(
    ("body", "status", "field"),
    [
        (b"{", 400, None),
        (b"{}", 422, "message"),
        (b'{"message": 1, "priority": 10}', 422, "priority"),
        (b'{"messages": []}', 422, "messages"),
    ],
)
def test_a_wrong_body_is_refused_as_it_is_outside(door: Door, body: bytes, status: int, field: str | None) -> None:
    at = begin(door)
    answer = door.ask("POST", f"{at}/queues/out/messages", body)
    assert (answer.status, json.loads(answer.body).get("field")) == (status, field)
