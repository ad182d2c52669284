"""Whole numbers that REST takes: what is none is refused, with the field's name and in words."""

from typing import Any

import msgspec
import pytest
from tests.gateways.rest.door import Door

NOT_WHOLE = [b"1.5", b'"3"', b"true", b"-1", b"1e30", b"1e400", b"[1]", b"{}"]
NO_JSON = [b"NaN", b"Infinity", b"+3"]
PLACES = {
    "partitions": ("PUT", "/queues/orders", b'{"partitions": %s}'),
    "config.max_deliveries": ("PUT", "/queues/orders", b'{"config": {"max_deliveries": %s}}'),
    "config.messages_max": ("PUT", "/queues/orders", b'{"config": {"messages_max": %s}}'),
    "config.leased_max": ("PATCH", "/queues/orders", b'{"config": {"leased_max": %s}}'),
    "config.reader_lag_bytes_max": ("PATCH", "/queues/orders", b'{"config": {"reader_lag_bytes_max": %s}}'),
    "priority": ("POST", "/queues/orders/messages", b'{"message": "x", "priority": %s}'),
    "rate": ("POST", "/queues/orders/redrives", b'{"rate": %s}'),
    "positions[...]": ("PUT", "/queues/orders/readers/lake", b'{"positions": {"0": %s}}'),
}


@pytest.mark.parametrize("value", NOT_WHOLE)
@pytest.mark.parametrize("field", PLACES)
def test_what_is_no_whole_number_is_refused_by_its_field(field: str, value: bytes) -> None:
    method, target, body = PLACES[field]
    door = Door()
    answer = door.ask(method, target, body % value)
    assert answer.status == 422, answer.body
    problem = msgspec.json.decode(answer.body)
    assert problem["field"] == field
    assert "float" not in problem["detail"]
    assert not door.queues.queues


@pytest.mark.parametrize("value", NO_JSON)
def test_what_is_no_number_in_json_is_refused(value: bytes) -> None:
    assert Door().ask("PUT", "/queues/orders", b'{"partitions": %s}' % value).status == 400


@pytest.mark.parametrize("value", [1.5, "3", True, None, float("nan"), float("inf"), -1])
def test_nor_are_they_taken_in_messagepack(value: Any) -> None:
    body = msgspec.msgpack.encode({"partitions": value})
    assert Door().ask("PUT", "/queues/orders", body, type="application/msgpack").status == 422


def test_a_fraction_is_told_that_a_whole_number_is_wanted() -> None:
    answer = Door().ask("PUT", "/queues/orders", b'{"partitions": 1.5}')
    assert "Expected a whole number - at `$.partitions`" in msgspec.json.decode(answer.body)["detail"]


def test_a_whole_number_that_is_written_as_a_fraction_is_taken() -> None:
    door = Door()
    assert door.ask("PUT", "/queues/orders", b'{"partitions": 4.0}').status == 201
