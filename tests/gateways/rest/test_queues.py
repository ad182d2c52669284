"""Queues over REST: made, shown, changed, listed, looked into, and deleted by administrators only."""

import json

import msgspec
import pytest
from tests.gateways.rest.door import Door

from headrace.broker.queue.port import Browsed, MessageState, RedriveFilter
from headrace.gateways.rest.config_form import ConfigForm, changed, shown
from headrace.model.errors import NotAQueueError
from headrace.model.queue import Backoff, Guarantee, QueueConfig


@pytest.fixture
def door() -> Door:
    return Door()


def test_a_queue_is_made_with_its_configuration_in_seconds(door: Door) -> None:
    config = {"guarantee": "exactly_once", "lease": 1.5, "ttl": None, "backoff": {"first": 1}, "reader_lag_max": 60}
    made = door.json("PUT", "/queues/orders", {"config": config, "partitions": 1, "durability": "fsync"}, status=201)
    assert (made["name"], made["config"]["lease"], made["config"]["backoff"]) == (
        *("orders", 1.5),
        {"first": 1.0, "last": 600.0},
    )
    assert made["counts"]["visible"] == 3
    assert door.queues.queues["orders"].config == QueueConfig(
        guarantee=Guarantee.EXACTLY_ONCE,
        lease_ms=1_500,
        ttl_ms=None,
        backoff=Backoff(first_ms=1_000),
        reader_lag_ms_max=60_000,
    )
    assert door.queues.asked == [("create", 1, "fsync")]


def test_making_a_queue_again_changes_nothing_and_differing_is_a_conflict(door: Door) -> None:
    door.json("PUT", "/queues/orders", status=201)
    door.json("PUT", "/queues/orders", {}, status=200)
    assert door.json("PUT", "/queues/orders", {"config": {"ordered": True}}, status=409)["code"] == "queue_exists"
    door.json("PUT", "/queues/orders", {"partitions": 2}, status=409)


def test_a_conflict_names_the_settings_that_differ(door: Door) -> None:
    door.json("PUT", "/queues/orders", {"config": {"lease": 5, "ttl": 10}}, status=201)
    body = {"config": {"lease": 5, "backoff": {}}, "partitions": 2, "durability": "memory"}
    detail = door.json("PUT", "/queues/orders", body, status=409)["detail"]
    assert "another value of ttl, backoff, partitions, durability; change it" in detail


def test_a_change_keeps_what_it_does_not_mention(door: Door) -> None:
    door.json("PUT", "/queues/orders", {"config": {"lease": 5, "ttl": 10}}, status=201)
    config = door.json("PATCH", "/queues/orders", {"config": {"ttl": None}})["config"]
    assert (config["lease"], config["ttl"]) == (5.0, None)
    assert door.json("GET", "/queues/orders")["config"] == config
    assert door.json("PATCH", "/queues/nowhere", {"config": {}}, status=404)["code"] == "unknown_queue"


def test_a_change_of_a_part_of_the_backoff_keeps_the_other_part(door: Door) -> None:
    door.json("PUT", "/queues/orders", {"config": {"backoff": {"first": 1, "last": 30}}}, status=201)
    changed = door.json("PATCH", "/queues/orders", {"config": {"backoff": {"last": 20}}})["config"]
    assert changed["backoff"] == {"first": 1.0, "last": 20.0}
    door.json("PATCH", "/queues/orders", {"config": {"backoff": None}})
    begun_anew = door.json("PATCH", "/queues/orders", {"config": {"backoff": {"first": 2}}})["config"]
    assert begun_anew["backoff"] == {"first": 2.0, "last": 600.0}


def test_every_setting_of_the_model_has_a_name_here_and_comes_back() -> None:
    config = QueueConfig(ordered=True, lease_ms=1, delay_ms=2, ttl_ms=3, history_ms=4, backoff=Backoff(), leased_max=9)
    assert changed(QueueConfig(), shown(config)) == config
    assert len(msgspec.structs.fields(ConfigForm)) == len(msgspec.structs.fields(QueueConfig))


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({"config": {"lease_ms": 1}}, "config.lease_ms"),
        ({"config": {"lease": 43_201}}, "config.lease"),
        ({"config": {"guarantee": "maybe"}}, "config.guarantee"),
        ({"partitions": 0}, "partitions"),
        ({"durability": "hope"}, "durability"),
        ({"ordered": True}, "ordered"),
    ],
)
def test_a_wrong_configuration_is_refused_with_its_field(door: Door, body: object, field: str) -> None:
    assert door.json("PUT", "/queues/orders", body, status=422)["field"] == field


def test_queues_are_listed_in_pages_by_prefix(door: Door) -> None:
    for number in range(5):
        door.json("PUT", f"/queues/a{number}", status=201)
    door.json("PUT", "/queues/b", status=201)
    first = door.json("GET", "/queues?prefix=a&limit=2")
    assert first == {"queues": [{"name": "a0"}, {"name": "a1"}], "next": "a1"}
    rest = door.json("GET", "/queues?prefix=a&limit=3&after=a1")
    assert rest == {"queues": [{"name": "a2"}, {"name": "a3"}, {"name": "a4"}], "next": None}
    assert len(door.json("GET", "/queues")["queues"]) == 6
    assert door.json("GET", "/queues?limit=0", status=422)["field"] == "limit"


def test_a_queue_is_deleted_on_the_administrators_listener_only(door: Door) -> None:
    problem = door.json("DELETE", "/queues/orders", status=403)
    assert problem["code"] == "administrators_only"
    assert "127.0.0.1:8081" in problem["detail"]
    admin = Door(is_admin=True)
    admin.json("PUT", "/queues/orders", status=201)
    admin.json("DELETE", "/queues/orders", status=204)
    admin.json("DELETE", "/queues/orders", status=404)


def test_purge_says_how_many_were_dropped(door: Door) -> None:
    door.json("PUT", "/queues/orders", status=201)
    assert door.json("POST", "/queues/orders/purge") == {"purged": 3}


def test_a_purge_that_says_what_to_drop_drops_nothing(door: Door) -> None:
    door.json("PUT", "/queues/orders", status=201)
    assert door.json("POST", "/queues/orders/purge", {"state": "delayed"}, status=422)["field"] == "state"
    assert door.json("POST", "/queues/orders/purge", {}) == {"purged": 3}


def test_messages_are_looked_at_in_any_state(door: Door) -> None:
    door.queues.browsed = [
        Browsed(
            id="0-1",
            state=MessageState.DELAYED,
            body=b"\xff",
            key=b"k",
            headers=(("a", b"b"),),
            priority=5,
            sent_ms=1,
            attempt=0,
            partition=0,
            offset=1,
            due_ms=9,
        )
    ]
    page = door.json("GET", "/queues/orders/browse?state=delayed&limit=5&after=0-0")
    [message] = page["messages"]
    assert (message["state"], message["body"], message["encoding"], message["due_ms"]) == (
        "delayed",
        "/w==",
        "base64",
        9,
    )
    assert page["next"] == "0-7"
    assert door.queues.asked == [("browse", "orders", MessageState.DELAYED, 5, "0-0")]
    assert door.json("GET", "/queues/orders/browse?state=lost", status=422)["field"] == "state"
    [packed] = door.packed("GET", "/queues/orders/browse")["messages"]
    assert (packed["body"], packed["headers"], packed["state"]) == (b"\xff", [["a", b"b"]], "delayed")
    assert (
        door.ask("GET", "/queues/orders/browse", accept="application/x-msgpack").content_type == "application/msgpack"
    )


def test_a_message_or_a_key_is_explained(door: Door) -> None:
    assert door.json("GET", "/queues/orders/explain?id=0-1")["state"] == "leased"
    door.json("GET", "/queues/orders/explain?key=a%20b")
    door.json("GET", "/queues/orders/explain?key_base64=/w==")
    assert door.queues.asked == [("explain", "0-1", None), ("explain", None, b"a b"), ("explain", None, b"\xff")]
    for query in ("", "?id=1&key=2", "?key_base64=x"):
        door.json("GET", f"/queues/orders/explain{query}", status=422)


def test_dead_letters_are_redriven_by_filter_and_rate(door: Door) -> None:
    started = door.json(
        "POST", "/queues/dead/redrives", {"target": "orders", "filter": {"reason": "x"}, "rate": 10}, status=202
    )
    assert (started["state"], started["rate"], started["total"]) == ("running", 10, 5)
    assert door.queues.redriven[0].filter == RedriveFilter(reason="x")
    assert door.json("GET", "/queues/dead/redrives")["redrives"] == [started]
    assert door.json("DELETE", "/queues/dead/redrives/r1") == started
    door.json("DELETE", "/queues/dead/redrives/r2", status=404)
    door.json("POST", "/queues/dead/redrives", status=202)


def test_readers_are_registered_moved_and_removed(door: Door) -> None:
    assert door.json("PUT", "/queues/orders/readers/spark", {"positions": {"0": 12}})["positions"] == {"0": 12}
    assert door.json("GET", "/queues/orders/readers")["readers"] == [{"name": "spark", "positions": {"0": 12}}]
    assert door.json("GET", "/queues/orders/readers/spark")["name"] == "spark"
    door.json("DELETE", "/queues/orders/readers/spark", status=204)
    assert door.json("GET", "/queues/orders/readers/spark", status=404)["code"] == "unknown_reader"
    door.json("PUT", "/queues/orders/readers/spark", {"positions": {"x": 12}}, status=422)


@pytest.mark.parametrize("path", ["/queues/a%2Fpurge", "/queues/", "/queue", "/queues/a/purge/b", "/docs/"])
def test_a_path_that_leads_nowhere_is_not_found(door: Door, path: str) -> None:
    assert door.json("POST", path, {}, status=404)["code"] == "not_found"


def test_a_wrong_method_is_told_the_right_ones(door: Door) -> None:
    answer = door.ask("POST", "/queues/orders")
    assert (answer.status, dict(answer.headers)["Allow"]) == (405, "DELETE, GET, HEAD, PATCH, PUT")
    assert json.loads(answer.body)["code"] == "method_not_allowed"


def test_a_topic_that_is_not_a_queue_is_answered_with_the_request_that_converts_it(door: Door) -> None:
    def refuse(name: str) -> None:
        raise NotAQueueError.of(name)

    door.queues.find = door.queues.describe = refuse  # type: ignore[assignment, method-assign]
    said = door.json("GET", "/queues/clicks", status=404)
    assert (said["code"], said["topic"]) == ("not_a_queue", "clicks")
    assert 'PUT /queues/clicks with the body {"convert": true}' in said["detail"]


def test_a_topic_that_holds_records_is_converted_when_the_body_says_so(door: Door) -> None:
    door.queues.unconverted = "clicks"
    refused = door.json("PUT", "/queues/clicks", {"config": {"lease": 5}}, status=409)
    assert (refused["code"], refused["changes"]) == ("topic_has_records", "clicks holds 3 records.")
    assert refused["detail"].startswith("clicks holds 3 records. To confirm, ")
    assert '"convert": true' in refused["detail"]
    door.json("PUT", "/queues/clicks", {"convert": False}, status=409)
    assert door.json("PUT", "/queues/clicks", {"convert": 1}, status=422)["code"] == "invalid_field"
    assert door.json("PUT", "/queues/clicks", {"convert": True}, status=201)["name"] == "clicks"


def test_a_list_describes_queues_when_it_is_asked_to(door: Door) -> None:
    for name in ("cups", "pots"):
        door.json("PUT", f"/queues/{name}", status=201)
    assert door.json("GET", "/queues")["queues"] == [{"name": "cups"}, {"name": "pots"}]
    described = door.json("GET", "/queues?describe=true&limit=1")
    assert described["queues"] == [door.json("GET", "/queues/cups")]
    assert described["next"] == "cups"
    assert door.json("GET", "/queues?describe=yes", status=422)["code"] == "invalid_field"
