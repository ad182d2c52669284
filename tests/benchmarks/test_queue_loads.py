"""The loads of queues do on a node what they say: every message that is counted has been there."""

from collections.abc import Iterator

import pytest
from benchmarks import boto_load, client_load
from benchmarks.door import Door, MsgpackDoor, RestDoor, SqsDoor, call, create_queue
from benchmarks.http_round import Load, measure_round
from benchmarks.process import Server, running_node
from benchmarks.waiting import Pace, Waiting

SIZE_BYTES = 100


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with running_node(tmp_path_factory.mktemp("node") / "data") as started:
        yield started


def counts(node: Server, queue: str) -> dict[str, int]:
    found: dict[str, int] = call("GET", node.http, f"/queues/{queue}")["counts"]
    return found


@pytest.mark.parametrize("kind", [RestDoor, MsgpackDoor, SqsDoor])
@pytest.mark.parametrize("batch", [1, 10])
def test_what_a_door_counts_is_what_the_node_counts(node: Server, kind: type[RestDoor | SqsDoor], batch: int) -> None:
    queue = f"{kind.__name__}-{batch}"
    create_queue(node.http, queue)
    place = f"http://{node.http}/000000000000/{queue}" if kind is SqsDoor else queue
    door: Door = kind(node.http, place)
    sends, receives, acknowledgements = (
        part.found for part in measure_round(node, door, "x" * SIZE_BYTES, batch, Load(0.2, connections=4))
    )
    assert sends.failed == receives.failed == acknowledgements.failed == 0
    stored = counts(node, queue)
    assert stored["sent"] == sends.messages
    assert stored["acknowledged"] == acknowledgements.messages
    assert acknowledgements.messages > 0


def test_the_python_client_counts_as_the_node_does(node: Server) -> None:
    create_queue(node.http, "client")
    found = client_load.measure(node.http, "client", batch=10, size_bytes=SIZE_BYTES, seconds=0.3)
    stored = counts(node, "client")
    assert stored["sent"] == found.sends.messages + 100  # ten batches before the measured part
    assert stored["acknowledged"] == found.acknowledgements.messages > 0


def test_boto3_sends_receives_and_deletes(node: Server) -> None:
    create_queue(node.http, "boto")
    url = f"http://{node.http}/000000000000/boto"
    found = boto_load.measure(node.http, url, "x", seconds=0.2)
    assert min(found.sends_per_s, found.receives_per_s, found.acknowledgements_per_s) > 0
    assert counts(node, "boto")["acknowledged"] > 0


def test_waiting_consumers_get_every_message(node: Server) -> None:
    create_queue(node.http, "waiting")
    found = Waiting(node.http, "waiting", Pace(rate=200, seconds=0.5, warmup_s=0.1, size_bytes=SIZE_BYTES)).run()
    assert found.sent == found.received == counts(node, "waiting")["sent"]
    assert 0 < found.latency_ms.p50 <= found.latency_ms.max
