"""Order, back-pressure and memory of connections."""

import asyncio
import struct
from collections.abc import Awaitable

import msgspec
import pytest
from tests.gateways.kafka.fake_broker import FakeBroker
from tests.gateways.kafka.harness import LOOPS, batch, connect, run, serving, until
from tests.gateways.kafka.requests import ALL_TOPICS, API_VERSIONS, api_versions_frame, fetch, produce

from headrace.broker.fetch import Fetch, Fetched, Room
from headrace.gateways.kafka.connection import REQUESTS_A_TURN
from headrace.gateways.kafka.limits import KafkaLimits
from headrace.gateways.kafka.listener import KafkaListener
from headrace.wire.kafka.frame import encode_request
from headrace.wire.kafka.messages.metadata import MetadataRequest, MetadataRequestTopic

MIB = 1024 * 1024


async def assert_serves(gateway: KafkaListener) -> None:
    """The node goes on serving others."""
    other = await connect(gateway)
    response = await other.ask(*API_VERSIONS)
    assert response.error_code == 0
    await other.close()


@pytest.mark.parametrize("loop", LOOPS)
def test_answers_leave_in_the_order_of_requests(loop: str) -> None:
    async def main() -> None:
        broker = FakeBroker()
        broker.add("t")
        broker.hold = True
        async with serving(broker) as gateway:
            client = await connect(gateway)
            sent = [(request[:2], client.send(*request)) for request in (
                produce(batch(b"a")), API_VERSIONS, produce(batch(b"b")), ALL_TOPICS, API_VERSIONS,
            )]  # fmt: skip
            await until(lambda: len(broker.held) == 2, "both produces arrived, though neither is answered")
            broker.release(1)
            broker.release(0)
            for (key, version), correlation_id in sent:
                await client.receive(key, version, correlation_id)
            await client.close()

    run(main(), loop)


@pytest.mark.parametrize("loop", LOOPS)
def test_many_small_requests_in_one_read_are_all_answered(loop: str) -> None:
    async def main() -> None:
        async with serving() as gateway:
            client = await connect(gateway)
            client.send_bytes(b"".join(api_versions_frame(n) for n in range(2000)))
            for n in range(2000):
                await client.receive(18, 3, n)
            await client.close()

    run(main(), loop)


class TurnCounter(FakeBroker):
    """Knows how many fetches came before the loop turned to others."""

    def __init__(self) -> None:
        super().__init__()
        self.asked: list[Fetch] = []
        self.asked_in_turn: list[int] = []

    def fetch(self, request: Fetch, room: Room | None = None) -> list[Fetched] | Awaitable[list[Fetched]]:
        if not self.asked:
            asyncio.get_running_loop().call_soon(lambda: self.asked_in_turn.append(len(self.asked)))
        self.asked.append(request)
        return super().fetch(request)


@pytest.mark.parametrize("loop", LOOPS)
def test_a_connection_with_much_to_ask_lets_others_have_their_turn(loop: str) -> None:
    async def main() -> None:
        broker = TurnCounter()
        broker.add("t")
        async with serving(broker) as gateway:
            client = await connect(gateway)
            frames = [encode_request(*fetch(0)[:2], n, "test", fetch(0)[2]) for n in range(4 * REQUESTS_A_TURN)]
            assert len(b"".join(frames)) < KafkaLimits().receive_bytes, "all of it fits one read"
            client.send_bytes(b"".join(frames))
            await until(lambda: len(broker.asked) == len(frames), "all of it is served in the end")
            assert broker.asked_in_turn[0] <= REQUESTS_A_TURN
            await client.close()

    run(main(), loop)


def test_a_fetch_without_bounds_is_given_the_nodes() -> None:
    async def main() -> None:
        broker = TurnCounter()
        broker.add("t")
        async with serving(broker, KafkaLimits(fetch_bytes_max=5000, fetch_wait_ms_max=20)) as gateway:
            client = await connect(gateway)
            key, version, request = fetch(0)
            endless = msgspec.structs.replace(request, max_bytes=2**31 - 1, max_wait_ms=2**31 - 1, min_bytes=2**31 - 1)
            await client.ask(key, version, endless)
            assert (broker.asked[0].bytes_max, broker.asked[0].wait_ms) == (5000, 20)
            await client.close()

    run(main())


@pytest.mark.parametrize("loop", LOOPS)
def test_a_frame_that_arrives_in_any_pieces_is_the_same_frame(loop: str) -> None:
    async def main() -> None:
        broker = FakeBroker()
        broker.add("t")
        async with serving(broker, KafkaLimits(frame_ahead_bytes=64)) as gateway:
            client = await connect(gateway)
            frames = b"".join(api_versions_frame(n) for n in range(30))
            for position in range(0, len(frames), 7):
                client.send_bytes(frames[position : position + 7])
                await client.writer.drain()
                await asyncio.sleep(0)
            for n in range(30):
                await client.receive(18, 3, n)
            big = batch(bytes(range(256)) * 20_000)
            response = await client.ask(*produce(big))
            assert response.responses[0].partition_responses[0].error_code == 0
            assert broker.log("t")[0][3][61:] == big[61:]
            await client.close()

    run(main(), loop)


def test_a_connection_with_too_many_requests_in_flight_is_not_read_until_some_are_answered() -> None:
    async def main() -> None:
        broker = FakeBroker()
        broker.add("t")
        broker.hold = True
        async with serving(broker, KafkaLimits(requests_in_flight_max=4)) as gateway:
            client = await connect(gateway)
            sent = [client.send(*produce(batch(b"%d" % n))) for n in range(50)]
            await until(lambda: broker.appends == 4, "as many as the limit arrived")
            await assert_serves(gateway)
            assert broker.appends == 4
            for correlation_id in sent:
                await until(lambda: bool(broker.held), "the next one is read")
                assert len(broker.held) <= 4
                broker.release()
                await client.receive(0, 9, correlation_id)
            await client.close()

    run(main())


def test_a_connection_with_too_many_bytes_in_flight_is_not_read_until_some_are_answered() -> None:
    async def main() -> None:
        broker = FakeBroker()
        broker.add("t")
        broker.hold = True
        async with serving(broker, KafkaLimits(requests_in_flight_bytes_max=2 * MIB)) as gateway:
            client = await connect(gateway)
            sent = [client.send(*produce(batch(bytes(MIB)))) for n in range(8)]
            await until(lambda: broker.appends == 2, "as many as fit arrived")
            await assert_serves(gateway)
            assert gateway.frames_in_flight_bytes < 4 * MIB
            for correlation_id in sent:
                await until(lambda: bool(broker.held), "the next one is read")
                broker.release()
                await client.receive(0, 9, correlation_id)
            await client.close()

    run(main())


def test_a_length_that_lies_costs_no_more_memory_than_is_allocated_ahead() -> None:
    async def main() -> None:
        async with serving() as gateway:
            liars = [await connect(gateway) for _ in range(20)]
            for liar in liars:
                liar.send_bytes(struct.pack(">i", 99 * MIB) + bytes(10))
            await until(lambda: gateway.frames_in_flight_bytes == 20 * MIB, "one allocation each")
            await assert_serves(gateway)
            for liar in liars:
                await liar.close()
            await until(lambda: gateway.frames_in_flight_bytes == 0, "the memory is given back")

    run(main())


def test_frames_wait_for_the_nodes_memory_and_small_requests_of_others_do_not() -> None:
    async def main() -> None:
        broker = FakeBroker()
        broker.add("t")
        broker.hold = True
        limits = KafkaLimits(frame_bytes_max=3 * MIB, frames_in_flight_bytes_max=4 * MIB, frame_ahead_bytes=MIB // 4)
        async with serving(broker, limits) as gateway:
            clients = [await connect(gateway) for _ in range(6)]
            sent = [client.send(*produce(batch(bytes(3 * MIB - 1000)))) for client in clients]
            await until(lambda: broker.appends >= 1, "one frame fits")
            for _ in clients:
                await until(lambda: bool(broker.held), "a frame is whole")
                # The total, what is allocated ahead, and one frame beyond.
                assert gateway.frames_in_flight_bytes <= 8 * MIB
                broker.release()
            for client, correlation_id in zip(clients, sent, strict=True):
                await client.receive(0, 9, correlation_id)
                await client.close()
            await assert_serves(gateway)

    run(main())


def test_a_change_goes_on_to_its_end_though_its_peer_goes_away_and_a_wait_does_not() -> None:
    async def main() -> None:
        broker = FakeBroker()
        broker.add("t")
        broker.gate = asyncio.Event()
        async with serving(broker) as gateway:
            client = await connect(gateway)
            client.send(*fetch(wait_ms=60_000))
            client.send(3, 9, MetadataRequest((MetadataRequestTopic(name="new"),)))
            await until(lambda: broker.waiting_count == 1, "the fetch waits")
            await until(lambda: broker.making == 1, "the topic is being made")
            await client.close()
            await until(lambda: gateway.connection_count == 0, "the peer is gone")
            await until(lambda: broker.waiting_count == 0, "nobody waits for it")
            broker.gate.set()
            await until(lambda: "new" in broker.catalog.topics, "the topic is made")

    run(main())


def test_a_topic_without_all_of_its_files_gets_them_when_it_is_asked_for() -> None:
    async def main() -> None:
        broker = FakeBroker(auto_create=False)
        topic = broker.add("t")
        async with serving(broker) as gateway:
            client = await connect(gateway)
            for asked in (MetadataRequestTopic(name="t"), MetadataRequestTopic(topic_id=topic.id, name=None)):
                broker.incomplete = {"t"}
                response = await client.ask(3, 12, MetadataRequest((asked,)))
                assert response.topics[0].error_code == 0
                assert not broker.incomplete
            await client.close()

    run(main())


def test_connections_above_the_cap_are_closed_at_once_and_a_freed_place_is_given_again() -> None:
    async def main() -> None:
        async with serving(limits=KafkaLimits(connections_max=2)) as gateway:
            first, second = await connect(gateway), await connect(gateway)
            await first.ask(*API_VERSIONS)
            await second.ask(*API_VERSIONS)
            third = await connect(gateway)
            assert await third.closed() == b""
            assert gateway.counters.connections_refused == 1
            await third.close()
            await first.close()
            await until(lambda: gateway.connection_count == 1, "the place is free")
            await assert_serves(gateway)
            await second.close()

    run(main())


def test_stopping_answers_what_is_in_flight_and_then_closes() -> None:
    async def main() -> None:
        broker = FakeBroker()
        broker.add("t")
        broker.hold = True
        async with serving(broker) as gateway:
            client = await connect(gateway)
            idle = await connect(gateway)
            await idle.ask(*API_VERSIONS)
            sent = client.send(*produce(batch(b"last")))
            await until(lambda: len(broker.held) == 1, "the request is in flight")
            stopping = asyncio.ensure_future(gateway.stop())
            assert await idle.closed() == b""
            broker.release()
            response = await client.receive(0, 9, sent)
            assert response.responses[0].partition_responses[0].base_offset == 0
            assert await client.closed() == b""
            await stopping
            with pytest.raises(OSError, match=r"refused|reset"):
                await connect(gateway)
            await client.close()
            await idle.close()

    run(main())


def test_stopping_cuts_what_does_not_finish_in_time() -> None:
    async def main() -> None:
        broker = FakeBroker()
        broker.add("t")
        async with serving(broker, KafkaLimits(stop_deadline_ms=20)) as gateway:
            client = await connect(gateway)
            client.send(*fetch(0, wait_ms=50_000))
            await until(lambda: gateway.counters.requests_by_api.get(1) == 1, "the long poll began")
            await gateway.stop()
            assert await client.closed() == b""
            await client.close()

    run(main())


def test_a_long_poll_of_a_lost_connection_ends() -> None:
    async def main() -> None:
        broker = FakeBroker()
        broker.add("t")
        async with serving(broker) as gateway:
            client = await connect(gateway)
            client.send(*fetch(0, wait_ms=50_000))
            await until(lambda: broker.waiting_count == 1, "the long poll waits")
            await client.close()
            await until(lambda: broker.waiting_count == 0, "nobody waits any more")

    run(main())


def test_an_append_of_a_lost_connection_is_stored_all_the_same() -> None:
    async def main() -> None:
        broker = FakeBroker()
        broker.add("t")
        broker.hold = True
        async with serving(broker) as gateway:
            client = await connect(gateway)
            client.send(*produce(batch(b"kept")))
            await until(lambda: len(broker.held) == 1, "the request is in flight")
            await client.close()
            await until(lambda: gateway.connection_count == 0, "the connection is gone")
            broker.release()
            assert len(broker.log("t")) == 1

    run(main())
