"""The load generator of HTTP sends what it is told, reads every answer whole, and counts rightly."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from benchmarks.door import MsgpackDoor, RestDoor, SqsDoor, create_sqs_queue, request
from benchmarks.http_load import Repeat, load
from benchmarks.http_round import Acknowledging, Load, measure_round
from benchmarks.process import Server, running_module


class Counted:
    """So many requests, and the bodies of their answers."""

    def __init__(self, request: bytes, count: int) -> None:
        self._request = request
        self.left = count
        self.bodies: list[bytes] = []

    def next(self) -> bytes | None:
        self.left -= 1
        return self._request if self.left >= 0 else None

    def answered(self, status: int, body: bytes) -> int:
        self.bodies.append(body)
        return 3


@pytest.fixture(scope="module")
def bare(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with running_module("bare_http", tmp_path_factory.mktemp("bare")) as started:
        yield started


@pytest.fixture(scope="module")
def moto(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with running_module("moto_node", tmp_path_factory.mktemp("moto")) as started:
        yield started


def test_every_request_of_a_script_is_answered_once(bare: Server) -> None:
    script = Counted(request("POST", bare.http, "/", b"x" * 200_000), 500)
    found = load(bare.http, script, seconds=60.0, connections=8)
    assert (found.requests, found.messages, found.statuses, found.failed) == (500, 1500, {"200": 500}, 0)
    assert script.bodies == [b""] * 500
    assert found.latency_ms is not None


def test_a_load_ends_when_its_time_is_over(bare: Server) -> None:
    found = load(bare.http, Repeat([request("GET", bare.http, "/")]), seconds=0.2, warmup_s=0.1)
    assert found.requests > 0
    assert found.seconds < 5.0


def test_messages_go_into_and_out_of_a_server_that_closes_after_each_answer(moto: Server) -> None:
    door = SqsDoor(moto.http, create_sqs_queue(moto.http, "bench"))
    for count in door.batch_sizes:
        sends, receives, acknowledgements = (
            part.found for part in measure_round(moto, door, "x" * 100, count, Load(0.3, connections=2))
        )
        assert sends.messages == sends.requests * count
        assert 0 < receives.messages <= sends.messages
        assert acknowledgements.messages == acknowledgements.requests * count
        assert sends.failed == receives.failed == acknowledgements.failed == 0


def test_a_failure_within_an_answered_batch_counts_for_nothing(moto: Server) -> None:
    door = SqsDoor(moto.http, create_sqs_queue(moto.http, "bench"))
    script = Acknowledging(door, ["a", "b", "c"], 2)
    assert (script.next() is None, script.next() is None) == (False, True)
    assert script.answered(200, b'{"Successful": [], "Failed": [{"Id": "0"}]}') == 0
    assert script.answered(200, b'{"results":[{},{"error":{"code":"stale_receipt"}}]}') == 0
    assert script.answered(200, b'{"results":[{},{}]}') == 2
    assert script.answered(404, b"") == 0


@pytest.mark.parametrize("door", [RestDoor("localhost:1", "q"), MsgpackDoor("localhost:1", "q"), SqsDoor("h:1", "u")])
@pytest.mark.parametrize("count", [1, 10])
def test_requests_say_how_long_they_are(door: RestDoor | MsgpackDoor | SqsDoor, count: int) -> None:
    for made in (door.send("body", count), door.receive(count), door.acknowledge(["r"] * count)):
        head, _, body = made.partition(b"\r\n\r\n")
        assert f"content-length: {len(body)}".encode() in head


def test_a_server_that_does_not_start_is_reported(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError, match="No module named"), running_module("no_such_server", tmp_path):
        pass
