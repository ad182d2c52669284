"""REST on a real node: what a user's first hour meets, and what an enemy's would."""

import http.client
import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from tests.support.node import NodeProcess, running
from tests.support.wait import wait_until

DEADLINE_S = 10.0


class User:
    """Asks one listener, each time over a connection of its own."""

    def __init__(self, node: NodeProcess, listener: str = "http") -> None:
        self.address = next(line[listener] for line in node.said("listening") if listener in line)

    def connect(self) -> http.client.HTTPConnection:
        return http.client.HTTPConnection(self.address, timeout=DEADLINE_S)

    def ask(self, method: str, target: str, value: Any = None, *, status: int = 200, **headers: str) -> Any:
        body = None if value is None else value if isinstance(value, bytes) else json.dumps(value).encode()
        given = {"content-type": "application/json"} if body is not None else {}
        with closing(self.connect()) as connection:
            connection.request(method, target, body, given | headers)
            answer = connection.getresponse()
            data = answer.read()
        assert answer.status == status, data
        return json.loads(data) if data else None

    def receive(self, target: str) -> list[dict[str, Any]]:
        messages: list[dict[str, Any]] = self.ask("GET", target)["messages"]
        return messages


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NodeProcess]:
    with running(tmp_path_factory.mktemp("rest") / "data", settings={"http.limits.body_bytes_max": 100_000}) as started:
        yield started


@pytest.fixture
def user(node: NodeProcess) -> User:
    return User(node)


def test_a_message_is_sent_received_and_acknowledged(user: User) -> None:
    queue = "/queues/first/messages"
    sent = user.ask("POST", queue, {"message": {"n": 1}, "priority": 7, "key": "k", "headers": {"a": "b"}}, status=201)
    [message] = user.receive(f"{queue}?batch_size=10&wait=5")
    assert (message["id"], message["body"], message["priority"], message["key"]) == (sent["id"], {"n": 1}, 7, "k")
    assert message["headers"] == {"a": "b", "content-type": "application/json"}
    assert user.receive(queue) == []
    user.ask("DELETE", f"{queue}/{message['receipt_handle']}", status=204)
    counts = user.ask("GET", "/queues/first")["counts"]
    assert (counts["sent"], counts["acknowledged"], counts["leased"]) == (1, 1, 0)


def test_a_released_message_comes_back_and_its_old_receipt_is_gone(user: User) -> None:
    queue = "/queues/released/messages"
    user.ask("POST", queue, {"message": "x"}, status=201)
    [first] = user.receive(f"{queue}?wait=5")
    user.ask("PATCH", f"{queue}/{first['receipt_handle']}", {"release": {"delay": 0}}, status=204)
    [again] = user.receive(f"{queue}?wait=5")
    assert (again["id"], again["attempt"]) == (first["id"], 2)
    problem = user.ask("DELETE", f"{queue}/{first['receipt_handle']}", status=410)
    assert problem["code"] == "stale_receipt"


def test_priorities_and_delays_are_obeyed(user: User) -> None:
    queue = "/queues/ranks/messages"
    entries = [
        {"message": "late", "delay": 3600},
        {"message": "low", "priority": 1},
        {"message": "high", "priority": 9},
    ]
    assert len(user.ask("POST", queue, {"messages": entries})["results"]) == 3
    assert [one["body"] for one in user.receive(f"{queue}?batch_size=10")] == ["high", "low"]
    [delayed] = user.ask("GET", "/queues/ranks/browse?state=delayed")["messages"]
    assert delayed["body"] == "late"
    assert user.ask("GET", f"/queues/ranks/explain?id={delayed['id']}")["state"] == "delayed"


def test_a_long_poll_of_a_client_that_went_away_takes_nothing(user: User) -> None:
    queue = "/queues/abandoned/messages"
    user.ask("PUT", "/queues/abandoned", status=201)
    for _ in range(5):
        with closing(user.connect()) as gone:
            gone.request("GET", f"{queue}?wait=30")
    # Whether the node has seen the ends yet is not known; once it has, messages stay for those who are there.
    for number in range(3):
        user.ask("POST", queue, {"message": number}, status=201)
    seen: list[dict[str, Any]] = []

    def has_all() -> bool:
        seen.extend(user.receive(f"{queue}?batch_size=10"))
        return len(seen) == 3

    wait_until(has_all, deadline_s=DEADLINE_S, what="all three are handed out to the one who is there")
    assert {message["body"] for message in seen} == {0, 1, 2}


@pytest.mark.parametrize("handle", ["x", "AQAAAAAAAAAAAAAAAQAAAAB0WuqvdBrujBoFvC_I", "..", "%00", "a" * 2000])
def test_a_forged_receipt_is_not_known(user: User, handle: str) -> None:
    user.ask("POST", "/queues/forged/messages", {"message": "x"}, status=201)
    assert user.ask("DELETE", f"/queues/forged/messages/{handle}", status=404)["code"] == "invalid_receipt"
    body = {"receipt_handles": ["AQAAAAAAAAAAAAAAAQAAAAB0WuqvdBrujBoFvC_I"]}
    [result] = user.ask("POST", "/queues/forged/acknowledgements", body)["results"]
    assert result["error"]["code"] == "invalid_receipt"


def test_a_receipt_of_one_queue_is_none_of_another(user: User) -> None:
    for queue in ("mine", "yours"):
        user.ask("POST", f"/queues/{queue}/messages", {"message": "x"}, status=201)
    [message] = user.receive("/queues/mine/messages?wait=5")
    handle = message["receipt_handle"]
    assert user.ask("DELETE", f"/queues/yours/messages/{handle}", status=404)["code"] == "invalid_receipt"
    user.ask("DELETE", f"/queues/mine/messages/{handle}", status=204)


def test_what_is_too_large_is_refused_and_says_so(node: NodeProcess) -> None:
    problem = User(node).ask("POST", "/queues/large/messages", {"message": "x" * 200_000}, status=413)
    assert problem["code"] == "body_too_large"


@pytest.mark.parametrize("name", ["%2e%2e", "%00", "a%20b", "a%2Fb", "%C3%A9", "x" * 250])
def test_a_name_outside_the_grammar_makes_no_queue(user: User, name: str) -> None:
    problem = user.ask("POST", f"/queues/{name}/messages", {"message": "x"}, status=400)
    assert problem["code"] == "invalid_name"
    user.ask("PUT", f"/queues/{name}", status=404 if "%2F" in name else 400)


def test_a_queue_that_is_not_there_is_said_so(user: User) -> None:
    for method, target in (("GET", "messages"), ("GET", "browse"), ("POST", "purge"), ("GET", "redrives")):
        assert user.ask(method, f"/queues/nowhere/{target}", status=404)["code"] == "unknown_queue"


def test_one_of_those_who_make_a_queue_at_once_makes_it_and_the_others_find_it(user: User) -> None:
    body = json.dumps({"config": {"lease": 7}, "partitions": 2})

    def make(name: str) -> int:
        with closing(user.connect()) as connection:
            connection.request("PUT", f"/queues/{name}", body, {"content-type": "application/json"})
            return connection.getresponse().status

    with ThreadPoolExecutor(8) as threads:
        for name in ("race-0", "race-1", "race-2"):
            assert sorted(threads.map(make, [name] * 8)) == [200] * 7 + [201]


def test_those_who_change_different_settings_at_once_all_have_their_way(user: User) -> None:
    user.ask("PUT", "/queues/changing", status=201)
    settings = {"lease": 7.0, "delay": 8.0, "retention": 900.0, "history": 10.0, "max_deliveries": 11, "fair": True}
    with ThreadPoolExecutor(6) as threads:
        changes = [{"config": {name: value}} for name, value in settings.items()]
        list(threads.map(lambda change: user.ask("PATCH", "/queues/changing", change), changes))
    config = user.ask("GET", "/queues/changing")["config"]
    assert {name: config[name] for name in settings} == settings


def test_a_queue_is_deleted_by_administrators_alone(node: NodeProcess, user: User) -> None:
    user.ask("PUT", "/queues/doomed", status=201)
    admin = User(node, "admin")
    assert admin.address in user.ask("DELETE", "/queues/doomed", status=403)["detail"]
    admin.ask("DELETE", "/queues/doomed", status=204)
    user.ask("GET", "/queues/doomed", status=404)


def test_what_was_sent_is_there_after_a_crash(tmp_path: Path) -> None:
    with running(tmp_path / "data") as node:
        user = User(node)
        results = user.ask("POST", "/queues/kept/messages", {"messages": [{"message": n} for n in range(100)]})[
            "results"
        ]
        assert len(results) == 100
        node.kill()
        node.start()
        messages = User(node).receive("/queues/kept/messages?batch_size=100&wait=5")
        assert [message["body"] for message in messages] == list(range(100))
