"""Transactions over REST on a real node: all or nothing, for those who look from outside."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.gateways.rest.test_real_node import User
from tests.support.node import NodeProcess, running
from tests.support.wait import wait_until


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NodeProcess]:
    with running(tmp_path_factory.mktemp("transactions") / "data") as started:
        yield started


@pytest.fixture
def user(node: NodeProcess) -> User:
    return User(node)


@pytest.fixture
def queue(request: pytest.FixtureRequest) -> str:
    """A name that no other test has."""
    name: str = request.node.name
    return name.removeprefix("test_").replace("_", "-")


def begin(user: User, **options: Any) -> str:
    id: str = user.ask("POST", "/transactions", options, status=201)["id"]
    return f"/transactions/{id}"


def lease(user: User, queue: str, body: str) -> dict[str, Any]:
    user.ask("POST", f"/queues/{queue}/messages", {"message": body}, status=201)
    [message] = user.receive(f"/queues/{queue}/messages?wait=5")
    return message


def test_a_committed_transaction_counts_as_a_whole(user: User, queue: str) -> None:
    message = lease(user, f"{queue}-in", "order")
    at = begin(user)
    user.ask("POST", f"{at}/queues/{queue}-out/messages", {"message": "invoice", "priority": 7}, status=201)
    acknowledged = {"receipt_handles": [message["receipt_handle"]]}
    assert user.ask("POST", f"{at}/queues/{queue}-in/acknowledgements", acknowledged) == {"results": [{}]}
    assert user.receive(f"/queues/{queue}-out/messages") == []
    user.ask("POST", f"{at}/commit", status=204)
    user.ask("POST", f"{at}/commit", status=204)
    [invoice] = user.receive(f"/queues/{queue}-out/messages?wait=5")
    assert (invoice["body"], invoice["priority"]) == ("invoice", 7)
    counts = user.ask("GET", f"/queues/{queue}-in")["counts"]
    assert (counts["acknowledged"], counts["leased"], counts["visible"]) == (1, 0, 0)
    assert user.ask("POST", f"{at}/abort", status=409)["code"] == "transaction_state"


def test_an_aborted_transaction_leaves_no_trace(user: User, queue: str) -> None:
    message = lease(user, f"{queue}-in", "order")
    at = begin(user)
    user.ask("POST", f"{at}/queues/{queue}-out/messages", {"messages": [{"message": "a"}, {"message": "b"}]})
    acknowledged = {"receipt_handles": [message["receipt_handle"]]}
    user.ask("POST", f"{at}/queues/{queue}-in/acknowledgements", acknowledged)
    user.ask("POST", f"{at}/abort", status=204)
    user.ask("POST", f"{at}/abort", status=204)
    [again] = user.receive(f"/queues/{queue}-in/messages?wait=5")
    assert (again["id"], again["attempt"]) == (message["id"], 2)
    user.ask("POST", f"/queues/{queue}-out/messages", {"message": "c"}, status=201)
    [only] = user.receive(f"/queues/{queue}-out/messages?batch_size=10&wait=5")
    assert only["body"] == "c"
    assert user.ask("POST", f"{at}/commit", status=409)["code"] == "transaction_state"


def test_a_transaction_whose_time_is_over_is_aborted(user: User, queue: str) -> None:
    message = lease(user, queue, "order")
    at = begin(user, timeout=2)
    user.ask("POST", f"{at}/queues/{queue}/acknowledgements", {"receipt_handles": [message["receipt_handle"]]})
    [again] = user.receive(f"/queues/{queue}/messages?wait=9")
    assert (again["id"], again["attempt"]) == (message["id"], 2)
    assert user.ask("POST", f"{at}/commit", status=409)["code"] == "transaction_state"


def test_times_beyond_the_nodes_limit_are_refused(user: User) -> None:
    problem = user.ask("POST", "/transactions", {"timeout": 901}, status=400)
    assert problem["code"] == "invalid_transaction_timeout"


def test_a_restart_aborts_what_was_open(tmp_path: Path) -> None:
    with running(tmp_path / "data") as node:
        user = User(node)
        message = lease(user, "orders", "order")
        at = begin(user)
        user.ask("POST", f"{at}/queues/orders/acknowledgements", {"receipt_handles": [message["receipt_handle"]]})
        user.ask("POST", f"{at}/queues/invoices/messages", {"message": "invoice"}, status=201)
        node.kill()
        node.start()
        wait_until(lambda: bool(node.said("listening")), deadline_s=30, what="the node listens")
        user = User(node)
        assert user.ask("POST", f"{at}/commit", status=409)["code"] == "transaction_state"
        [again] = user.receive("/queues/orders/messages?wait=9")
        assert again["id"] == message["id"]
        assert user.receive("/queues/invoices/messages") == []
