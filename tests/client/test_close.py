"""A client can be closed while its node takes nothing: the wait for what was written has a deadline."""

import asyncio
import random
from collections.abc import Callable, Coroutine, Iterator
from typing import Any

import pytest

from headrace.client.connection import Connection
from headrace.client.deadline import CLOSE_MS_MAX
from headrace.client.http.connection import HttpConnection
from headrace.model.address import Address
from headrace.testing.clock import LoopClock
from headrace.testing.event_loop import VirtualLoop
from headrace.testing.network import Network, NetworkTransport

ADDRESS = Address("10.0.0.1", 9092)


class Nothing:
    def note(self, kind: str, *values: object) -> None: ...


@pytest.fixture
def loop() -> Iterator[VirtualLoop]:
    loop = VirtualLoop(random.Random(1))
    yield loop
    loop.close()


async def close_kafka(connection: Any) -> None:
    connection.close()
    await connection.wait_closed()


async def close_http(connection: Any) -> None:
    await connection.close()


def make_kafka(clock: LoopClock) -> Connection:
    return Connection(ADDRESS, clock=clock, client_id="test", frame_bytes_max=1024)


def make_http(clock: LoopClock) -> HttpConnection:
    return HttpConnection(ADDRESS, clock=clock, answer_bytes_max=1024)


@pytest.mark.parametrize(("make", "close"), [(make_kafka, close_kafka), (make_http, close_http)])
def test_a_close_does_not_wait_for_a_node_that_takes_nothing(
    loop: VirtualLoop,
    make: Callable[[LoopClock], asyncio.BaseProtocol],
    close: Callable[[Any], Coroutine[Any, Any, None]],
) -> None:
    network = Network(loop, random.Random(1), Nothing(), window_bytes=1024)
    server = network.add_machine(ADDRESS.host, loop.make_actor("server"))
    client = network.add_machine("10.0.1.1", loop.make_actor("client"))
    network.listen(server, ADDRESS.port, asyncio.Protocol)

    async def work() -> float:
        transport, connection = await NetworkTransport(network, client).connect(
            ADDRESS.host, ADDRESS.port, lambda: make(LoopClock(loop))
        )
        network.cut(client.host, server.host)
        transport.write(bytes(10_000))
        began_s = loop.time()
        await close(connection)
        return loop.time() - began_s

    assert loop.run_until_complete(loop.spawn(client.actor, work())) <= CLOSE_MS_MAX / 1000
