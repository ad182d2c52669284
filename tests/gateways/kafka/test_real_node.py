"""A real node under bad peers: it answers or closes, keeps its memory, and goes on."""

import contextlib
import random
import socket
import struct
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
from tests.gateways.kafka.requests import api_versions_frame
from tests.support.node import NodeProcess, running
from tests.support.wait import wait_until

from headrace.wire.kafka.frame import encode_request, read_response
from headrace.wire.kafka.messages.metadata import MetadataRequest, MetadataRequestTopic

SESSIONS = {path.stem: path.read_bytes() for path in sorted((Path(__file__).parent / "sessions").glob("*.bin"))}
MIB = 1024 * 1024
DAMAGED_COUNT = 300


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NodeProcess]:
    with running(tmp_path_factory.mktemp("node") / "data") as node:
        yield node


def connect(node: NodeProcess) -> socket.socket:
    return socket.create_connection(("127.0.0.1", node.port), timeout=10)


def receive(connection: socket.socket, size: int) -> bytes:
    data = b""
    while len(data) < size:
        piece = connection.recv(size - len(data))
        assert piece, "closed before the answer was whole"
        data += piece
    return data


def assert_serves(node: NodeProcess) -> None:
    with connect(node) as connection:
        connection.sendall(api_versions_frame(7))
        assert struct.unpack(">ii", receive(connection, 8))[1] == 7


def assert_unharmed(node: NodeProcess) -> None:
    assert_serves(node)
    assert node.exit_code() is None
    assert not [line for line in node.log_lines() if line["level"] in ("ERROR", "CRITICAL")]


def request_count(session: bytes) -> int:
    count = position = 0
    while position < len(session):
        position += 4 + int(struct.unpack_from(">i", session, position)[0])
        count += 1
    return count


@pytest.mark.parametrize("name", SESSIONS)
def test_a_recorded_session_is_answered_request_for_request(node: NodeProcess, name: str) -> None:
    with connect(node) as connection:
        connection.sendall(SESSIONS[name])
        for _ in range(request_count(SESSIONS[name])):
            (size,) = struct.unpack(">i", receive(connection, 4))
            receive(connection, size)
    assert_unharmed(node)


def damage(session: bytes, rand: random.Random) -> bytes:
    data = bytearray(session)
    for _ in range(rand.randint(1, 5)):
        at = rand.randrange(len(data))
        match rand.randrange(3):
            case 0:
                data[at] ^= 1 << rand.randrange(8)
            case 1:
                del data[at : at + rand.randint(1, 4)]
            case 2:
                data[at:at] = rand.randbytes(rand.randint(1, 4))
        if not data:
            break
    return bytes(data)


def test_damaged_sessions_do_the_node_no_harm(node: NodeProcess) -> None:
    rand = random.Random(2)
    sessions = list(SESSIONS.values())
    for _ in range(DAMAGED_COUNT):
        with connect(node) as connection, contextlib.suppress(ConnectionError):
            connection.sendall(damage(rand.choice(sessions), rand))
            connection.shutdown(socket.SHUT_WR)
            # Whatever it was, an end comes: the node answers what is whole and closes.
            while connection.recv(65536):
                pass
    assert_unharmed(node)


def test_lengths_that_lie_and_readers_that_never_read_do_not_fill_the_memory(node: NodeProcess) -> None:
    process = psutil.Process(node.pid)
    before = process.memory_info().rss
    with contextlib.ExitStack() as stack:
        for _ in range(100):
            connection = stack.enter_context(connect(node))
            connection.sendall(struct.pack(">i", 99 * MIB) + bytes(1000))
        flood = api_versions_frame(1) * 20_000
        for _ in range(10):
            connection = stack.enter_context(connect(node))
            connection.setblocking(False)
            # As much as the node takes from a peer that reads no answer.
            with contextlib.suppress(BlockingIOError):
                while True:
                    connection.send(flood)
        assert_serves(node)
        grown = process.memory_info().rss - before
    assert grown < 200 * MIB, f"{grown / MIB:.0f} MiB"
    assert_unharmed(node)


def leaders(node: NodeProcess, names: list[str]) -> dict[str, int]:
    """Of those of the topics that there are."""
    asked = tuple(MetadataRequestTopic(name=name) for name in names)
    with connect(node) as connection:
        connection.sendall(encode_request(3, 9, 2, "test", MetadataRequest(asked, allow_auto_topic_creation=False)))
        (size,) = struct.unpack(">i", receive(connection, 4))
        response = read_response(3, 9, receive(connection, size)).value
    return {topic.name: topic.partitions[0].leader_id for topic in response.topics if topic.error_code == 0}


def test_topics_whose_first_askers_hang_up_at_once_are_whole(node: NodeProcess) -> None:
    names = [f"hung-up-{number}" for number in range(60)]
    for number, name in enumerate(names):
        with connect(node) as connection:
            connection.sendall(encode_request(3, 9, 1, "test", MetadataRequest((MetadataRequestTopic(name=name),))))
            # The node is anywhere between the request and its answer.
            time.sleep(number % 20 / 10_000)
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    # Some requests are read before their sender is gone. What the node has begun for them goes on, perhaps still now.
    wait_until(
        lambda: set(leaders(node, names).values()) == {1},
        deadline_s=60,
        what=lambda: f"leaders of all: {leaders(node, names)}",
    )
    assert_unharmed(node)
