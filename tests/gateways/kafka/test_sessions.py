"""Recorded sessions of real clients: whole, cut off at every byte, and damaged.

Thousands of connections are needed, so these run without sockets: bytes go to a connection's callbacks as an event loop
would hand them over.
"""

import asyncio
import random
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.gateways.kafka.fake_broker import FakeBroker
from tests.gateways.kafka.harness import run, until
from tests.gateways.kafka.requests import api_versions_frame

from headrace.gateways.kafka.connection import KafkaConnection
from headrace.gateways.kafka.context import Context
from headrace.gateways.kafka.counters import KafkaCounters
from headrace.gateways.kafka.dispatch import Dispatcher
from headrace.gateways.kafka.gateway import SERVED
from headrace.gateways.kafka.limits import KafkaLimits
from headrace.gateways.kafka.shared import Shared
from headrace.testing.clock import SimulatedClock
from headrace.wire.kafka.frame import read_response

SESSIONS = {path.stem: path.read_bytes() for path in sorted((Path(__file__).parent / "sessions").glob("*.bin"))}
TURNS_MAX = 200


class WrittenTransport(asyncio.Transport):
    """Takes everything at once, and closes when it is told to, in the next turn of the loop as a socket does."""

    def __init__(self, protocol: KafkaConnection) -> None:
        super().__init__()
        self._protocol = protocol
        self.written = bytearray()
        self.closed = False
        self.reading = True

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return ("recorded", 1) if name == "peername" else default

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        pass

    def get_write_buffer_size(self) -> int:
        return 0

    def write(self, data: "bytes | bytearray | memoryview[Any]") -> None:
        assert not self.closed
        self.written += data

    def pause_reading(self) -> None:
        assert self.reading, "paused twice"
        self.reading = False

    def resume_reading(self) -> None:
        assert not self.reading, "resumed without a pause"
        self.reading = True

    def close(self) -> None:
        if not self.closed:
            self.closed = True
            asyncio.get_running_loop().call_soon(self._protocol.connection_lost, None)

    abort = close


class Node:
    """A gateway without a listener."""

    def __init__(self) -> None:
        clock = SimulatedClock()
        counters = KafkaCounters()
        limits = KafkaLimits(fetch_wait_ms_max=1)
        broker = FakeBroker()
        for name in ("cf", "kp", "aio", "kc"):
            broker.add(name, 2)
        context = Context(broker, limits=limits, clock=clock, counters=counters)
        self.dispatcher = Dispatcher(context, SERVED)
        self.shared = Shared(serve=self.dispatcher.serve, limits=limits, clock=clock, counters=counters)
        self.counters = counters

    @contextmanager
    def connected(self) -> Iterator[tuple[KafkaConnection, WrittenTransport]]:
        connection = KafkaConnection(self.shared)
        transport = WrittenTransport(connection)
        connection.connection_made(transport)
        try:
            yield connection, transport
        finally:
            transport.close()

    async def say(self, data: bytes, rand: random.Random | None = None) -> WrittenTransport:
        """Hand over bytes in pieces, wait until nothing more happens, and hang up."""
        with self.connected() as (connection, transport):
            position = 0
            while position < len(data) and not transport.closed:
                for _ in range(TURNS_MAX):
                    if transport.reading or transport.closed:
                        break
                    await asyncio.sleep(0.001)
                assert transport.reading or transport.closed, "the connection hangs"
                buffer = connection.get_buffer(-1)
                size = min(len(buffer), len(data) - position)
                if rand is not None:
                    size = rand.randint(1, size)
                buffer[:size] = data[position : position + size]
                connection.buffer_updated(size)
                position += size
            await self._settle(connection)
        await asyncio.sleep(0)
        return transport

    async def _settle(self, connection: KafkaConnection) -> None:
        for _ in range(TURNS_MAX):
            if not connection.in_flight_count:
                return
            await asyncio.sleep(0.001)
        raise AssertionError("a request was never answered")

    async def check(self) -> None:
        """It goes on serving, and nothing is left of what was."""
        transport = await self.say(api_versions_frame(7))
        assert struct.unpack_from(">i", transport.written, 4) == (7,)
        await until(lambda: not self.shared.connections, "no connection left")
        await until(lambda: self.shared.budget.used_bytes == 0, "all frame memory given back")
        assert self.counters.handler_failures == 0


def frames(data: bytes) -> list[bytes]:
    found = []
    position = 0
    while position < len(data):
        (size,) = struct.unpack_from(">i", data, position)
        found.append(data[position + 4 : position + 4 + size])
        position += 4 + size
    return found


def test_there_are_sessions_of_every_client() -> None:
    clients = {name.rsplit("-", 1)[0] for name in SESSIONS}
    assert clients == {"aiokafka", "confluent-kafka", "kafka-python", "kcat"}


@pytest.mark.parametrize("name", SESSIONS)
def test_every_request_of_a_recorded_session_gets_an_answer_that_parses(name: str) -> None:
    async def main() -> None:
        node = Node()
        transport = await node.say(SESSIONS[name])
        requests, answers = frames(SESSIONS[name]), frames(bytes(transport.written))
        assert len(requests) == len(answers)
        for request, answer in zip(requests, answers, strict=True):
            key, version = struct.unpack_from(">hh", request)
            assert read_response(key, version, answer).correlation_id == struct.unpack_from(">i", request, 4)[0]
        await node.check()

    run(main())


@pytest.mark.parametrize("name", SESSIONS)
def test_a_session_cut_off_at_any_byte_leaves_nothing_behind(name: str) -> None:
    async def main() -> None:
        node = Node()
        session = SESSIONS[name]
        ends = {sum(len(frame) + 4 for frame in frames(session)[:n]) for n in range(len(frames(session)) + 1)}
        for cut in range(len(session)):
            transport = await node.say(session[:cut])
            whole = len([end for end in ends if 0 < end <= cut])
            assert len(frames(bytes(transport.written))) == whole, "whole requests are answered, others are not"
        await node.check()

    run(main())


@st.composite
def damaged(draw: st.DrawFn) -> bytes:
    """A session with some bytes changed, put in, taken out, or a length overwritten."""
    data = bytearray(SESSIONS[draw(st.sampled_from(sorted(SESSIONS)))])
    for _ in range(draw(st.integers(1, 6))):
        at = draw(st.integers(0, max(len(data) - 1, 0)))
        match draw(st.sampled_from(("flip", "put", "take", "number"))):
            case "flip" if data:
                data[at] ^= 1 << draw(st.integers(0, 7))
            case "put":
                data[at:at] = draw(st.binary(min_size=1, max_size=8))
            case "take":
                del data[at : at + draw(st.integers(1, 8))]
            case "number" if len(data) >= 4:
                at = min(at, len(data) - 4)
                number = draw(st.sampled_from((-1, 0, 1, 2**31 - 1, -(2**31), 65536, 100 * 1024 * 1024)))
                struct.pack_into(">i", data, at, number)
    return bytes(data)


@settings(max_examples=250, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(damaged(), st.randoms(use_true_random=False))
def test_a_damaged_session_is_answered_or_closed_and_the_node_goes_on(session: bytes, rand: random.Random) -> None:
    async def main() -> None:
        node = Node()
        await node.say(session, rand)
        await node.check()

    run(main(), "asyncio")


@settings(max_examples=200, deadline=None)
@given(st.binary(max_size=300), st.randoms(use_true_random=False))
def test_garbage_is_closed_or_waited_for_and_the_node_goes_on(garbage: bytes, rand: random.Random) -> None:
    async def main() -> None:
        node = Node()
        await node.say(garbage, rand)
        await node.say(struct.pack(">i", len(garbage)) + garbage, rand)
        await node.check()

    run(main(), "asyncio")
