"""Liveness and readiness: of a real process from its start to its end, and of a node whose metadata cannot be read."""

import asyncio
import http.client
import json
import os
import signal
from contextlib import closing
from pathlib import Path
from typing import Any, cast

import pytest
from tests.support.node import NodeProcess, free_port, running
from tests.support.wait import wait_until

from headrace.app import health
from headrace.cluster.store import Item, Store
from headrace.model.errors import StoreUnavailableError

DEADLINE_S = 60.0


def ask(address: str, path: str, method: str = "GET") -> tuple[int, dict[str, Any]]:
    with closing(http.client.HTTPConnection(address, timeout=DEADLINE_S)) as connection:
        connection.request(method, path)
        answer = connection.getresponse()
        body = answer.read()
        return answer.status, json.loads(body) if body else {}


def test_a_node_that_stops_is_not_ready_before_it_stops_serving(tmp_path: Path) -> None:
    admin = f"127.0.0.1:{free_port()}"
    settings = {"stop_delay_ms": 600_000}
    with running(tmp_path / "data", settings=settings, arguments=["--admin-listen", admin]) as node:
        for address in (node.http, admin):
            assert ask(address, "/livez") == (200, {"status": "ok"})
            assert ask(address, "/readyz") == (200, {"status": "ok"})
        os.kill(node.pid, signal.SIGTERM)
        wait_until(lambda: ask(admin, "/readyz")[0] == 503, deadline_s=DEADLINE_S, what="the node is not ready")
        status, problem = ask(node.http, "/readyz")
        assert (status, problem["code"], problem["reasons"][0]["code"]) == (503, "unready", "stopping")
        assert ask(node.http, "/livez")[0] == 200
        assert ask(node.http, "/queues")[0] == 200, "it serves until load balancers have noticed"
        os.kill(node.pid, signal.SIGTERM)
        assert node.wait_exit(deadline_s=60) == 0, "a second signal cuts the delay short"


def test_queues_are_deleted_at_the_administrators_address_only(tmp_path: Path) -> None:
    admin = f"127.0.0.1:{free_port()}"
    with running(tmp_path / "data", arguments=["--admin-listen", admin]) as node:
        assert ask(node.http, "/queues/orders", "PUT")[0] == 201
        status, problem = ask(node.http, "/queues/orders", "DELETE")
        assert (status, problem["code"]) == (403, "administrators_only")
        assert admin in problem["detail"]
        assert ask(admin, "/queues/orders", "DELETE")[0] == 204


def test_an_administrators_address_that_is_taken_is_named_with_its_flag(tmp_path: Path) -> None:
    with running(tmp_path / "first") as first:
        node = NodeProcess(tmp_path / "second", arguments=["--admin-listen", first.http])
        node.launch()
        try:
            assert node.wait_exit(deadline_s=60) == 1
        finally:
            node.clean_up()
        assert "--admin-listen" in node.log_text()


class Unreachable:
    """A metadata store that refuses, or says nothing."""

    def __init__(self, *, is_silent: bool) -> None:
        self._is_silent = is_silent

    async def get(self, key: str) -> Item | None:
        if self._is_silent:
            await asyncio.Event().wait()
        raise StoreUnavailableError("the store did not answer; retry")


@pytest.mark.parametrize("is_silent", [False, True])
def test_a_node_whose_metadata_cannot_be_read_is_not_ready(is_silent: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(health, "STORE_MS_MAX", 10)
    store = cast(Store, Unreachable(is_silent=is_silent))
    (reason,) = asyncio.run(health.unready(is_started=True, is_stopping=False, store=store, key="cluster"))
    assert reason.code == "metadata_unavailable"


def test_a_node_that_starts_or_stops_is_not_ready() -> None:
    store = cast(Store, Unreachable(is_silent=True))
    for is_started, is_stopping, code in ((False, False, "starting"), (True, True, "stopping")):
        reasons = asyncio.run(health.unready(is_started=is_started, is_stopping=is_stopping, store=store, key="k"))
        assert [reason.code for reason in reasons] == [code]
