"""The simulated network: order, flow control, both kinds of protocol, and each of its faults."""

import asyncio
import random
from collections.abc import Callable, Coroutine, Iterator
from typing import Any

import pytest

from headrace.testing.event_loop import VirtualLoop
from headrace.testing.network import Network, NetworkTransport

Work = Callable[[], Coroutine[Any, Any, None]]
SERVER, CLIENT, PORT = "10.0.0.1", "10.0.1.1", 9092


class Nothing:
    def note(self, kind: str, *values: object) -> None: ...


class Peer(asyncio.Protocol):
    """Keeps what it is told."""

    def __init__(self) -> None:
        self.received = bytearray()
        self.events: list[str] = []
        self.lost: Exception | None = None
        self.is_lost = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        self.received += data

    def eof_received(self) -> bool:
        self.events.append("eof")
        return False

    def pause_writing(self) -> None:
        self.events.append("pause")

    def resume_writing(self) -> None:
        self.events.append("resume")

    def connection_lost(self, exc: Exception | None) -> None:
        self.is_lost, self.lost = True, exc


class BufferedPeer(asyncio.BufferedProtocol):
    """Has a small buffer, so that what arrives is taken in many pieces."""

    def __init__(self) -> None:
        self.buffer = bytearray(7)
        self.received = bytearray()

    def get_buffer(self, sizehint: int) -> memoryview:
        return memoryview(self.buffer)

    def buffer_updated(self, nbytes: int) -> None:
        self.received += self.buffer[:nbytes]


class Place:
    """Two machines, and a server that accepts."""

    def __init__(self, seed: int) -> None:
        self.loop = VirtualLoop(random.Random(seed))
        self.network = Network(self.loop, random.Random(seed), Nothing(), window_bytes=1024)
        self.server = self.network.add_machine(SERVER, self.loop.make_actor("server"))
        self.client = self.network.add_machine(CLIENT, self.loop.make_actor("client"))
        self.accepted: list[Any] = []

    def run(self, work: Work) -> None:
        self.loop.run_until_complete(self.loop.spawn(self.client.actor, work()))

    def listen(self, kind: Callable[[], Any] = Peer) -> None:
        def accept() -> Any:
            self.accepted.append(kind())
            return self.accepted[-1]

        self.network.listen(self.server, PORT, accept)

    async def connect(self) -> Peer:
        _, peer = await NetworkTransport(self.network, self.client).connect(SERVER, PORT, Peer)
        return peer


@pytest.fixture(params=range(3))
def place(request: pytest.FixtureRequest) -> Iterator[Place]:
    place = Place(request.param)
    yield place
    place.loop.close()


@pytest.mark.parametrize("kind", [Peer, BufferedPeer])
def test_bytes_arrive_whole_and_in_order(place: Place, kind: Callable[[], Any]) -> None:
    data = bytes(range(256)) * 100

    async def work() -> None:
        place.listen(kind)
        peer = await place.connect()
        for start in range(0, len(data), 999):
            peer.transport.writelines([data[start : start + 500], data[start + 500 : start + 999]])
        await asyncio.sleep(10)
        assert place.accepted[0].received == data

    place.run(work)


def test_a_paused_reader_holds_its_writer_back(place: Place) -> None:
    async def work() -> None:
        place.listen()
        peer = await place.connect()
        await asyncio.sleep(1)
        place.accepted[0].transport.pause_reading()
        peer.transport.set_write_buffer_limits(high=10_000, low=1_000)
        peer.transport.write(bytes(50_000))
        await asyncio.sleep(10)
        assert peer.events == ["pause"]
        assert peer.transport.get_write_buffer_size() > 10_000
        place.accepted[0].transport.resume_reading()
        await asyncio.sleep(10)
        assert peer.events == ["pause", "resume"]
        assert len(place.accepted[0].received) == 50_000

    place.run(work)


def test_close_sends_what_is_left_and_then_the_end(place: Place) -> None:
    async def work() -> None:
        place.listen()
        peer = await place.connect()
        peer.transport.write(bytes(20_000))
        peer.transport.close()
        await asyncio.sleep(10)
        assert len(place.accepted[0].received) == 20_000
        assert place.accepted[0].events == ["eof"]
        assert (peer.is_lost, peer.lost) == (True, None)
        assert place.accepted[0].is_lost

    place.run(work)


def test_abort_resets_the_peer(place: Place) -> None:
    async def work() -> None:
        place.listen()
        peer = await place.connect()
        await asyncio.sleep(1)
        peer.transport.abort()
        await asyncio.sleep(1)
        assert (peer.is_lost, peer.lost) == (True, None)
        assert isinstance(place.accepted[0].lost, ConnectionResetError)

    place.run(work)


def test_nothing_listens_is_refused(place: Place) -> None:
    async def work() -> None:
        with pytest.raises(ConnectionRefusedError):
            await place.connect()

    place.run(work)


def test_a_one_way_cut_holds_one_direction_until_it_is_healed(place: Place) -> None:
    async def work() -> None:
        place.listen()
        peer = await place.connect()
        await asyncio.sleep(1)
        place.network.cut(CLIENT, SERVER)
        peer.transport.write(b"there")
        place.accepted[0].transport.write(b"back")
        await asyncio.sleep(100)
        assert (bytes(place.accepted[0].received), bytes(peer.received)) == (b"", b"back")
        place.network.heal()
        await asyncio.sleep(1)
        assert place.accepted[0].received == b"there"

    place.run(work)


def test_a_killed_process_resets_and_a_machine_without_power_says_nothing(place: Place) -> None:
    async def work() -> None:
        for loses_power in (False, True):
            place.listen()
            peer = await place.connect()
            await asyncio.sleep(1)
            place.network.crash(place.server, loses_power=loses_power)
            place.loop.kill(place.server.actor)
            await asyncio.sleep(100)
            assert peer.is_lost is not loses_power
            place.server.actor, place.server.has_power = place.loop.make_actor("again"), True
        # The half-open connection ends when something is said on it.
        peer.transport.write(b"still there?")
        await asyncio.sleep(5)
        assert isinstance(peer.lost, ConnectionResetError)

    place.run(work)


def test_a_reset_ends_both_sides(place: Place) -> None:
    async def work() -> None:
        place.listen()
        peer = await place.connect()
        await asyncio.sleep(1)
        assert place.network.reset_some(1.0) == 1
        await asyncio.sleep(1)
        assert isinstance(peer.lost, ConnectionResetError)
        assert isinstance(place.accepted[0].lost, ConnectionResetError)

    place.run(work)


def test_what_comes_after_a_close_is_refused(place: Place) -> None:
    async def work() -> None:
        place.listen()
        peer = await place.connect()
        await asyncio.sleep(1)
        place.accepted[0].transport.pause_reading()
        peer.transport.write(bytes(50_000))
        await asyncio.sleep(1)
        place.accepted[0].transport.close()
        await asyncio.sleep(5)
        assert peer.is_lost

    place.run(work)
