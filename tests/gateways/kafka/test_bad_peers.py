"""What peers do wrong costs them their connection, and nobody else anything."""

import logging
import struct
from functools import partial

import pytest
from tests.gateways.kafka.fake_broker import FakeBroker
from tests.gateways.kafka.harness import LOOPS, batch, connect, run, serving, until
from tests.gateways.kafka.requests import API_VERSIONS, api_versions_frame, fetch
from tests.gateways.kafka.test_connection import assert_serves

from headrace.gateways.kafka.limits import KafkaLimits
from headrace.gateways.kafka.listener import KafkaListener
from headrace.gateways.kafka.warning import LINES_MAX, WINDOW_MS, PeerWarnings
from headrace.testing.clock import SimulatedClock

MIB = 1024 * 1024


def framed(body: bytes) -> bytes:
    return struct.pack(">i", len(body)) + body


HEADER = struct.pack(">hhih", 3, 1, 7, -1)  # Metadata 1 without client id

BAD = {
    "a frame above the limit": struct.pack(">i", 100 * MIB + 1),
    "a negative length": struct.pack(">i", -1),
    "the most negative length": struct.pack(">i", -(2**31)),
    "a frame too short for a header": framed(b"1234567"),
    "an empty frame": framed(b""),
    "HTTP": b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n",
    "TLS": b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(200),
    "an array count that lies": framed(HEADER + struct.pack(">i", 2**31 - 1)),
    "a negative array count": framed(HEADER + struct.pack(">i", -5)),
    "a string length that lies": framed(HEADER + struct.pack(">ih", 1, 32_000)),
    "a client id that is not text": framed(struct.pack(">hhih", 3, 1, 7, 2) + b"\xff\xfe" + struct.pack(">i", 0)),
    "an API that nobody knows": framed(struct.pack(">hhih", 999, 0, 7, -1)),
    "a negative API": framed(struct.pack(">hhih", -3, 0, 7, -1)),
    "an API of Kafka that is not served": framed(struct.pack(">hhih", 4, 0, 7, -1)),
    "a version from the future": framed(struct.pack(">hhih", 3, 99, 7, -1) + b"\x00"),
    "a negative version": framed(struct.pack(">hhih", 3, -1, 7, -1)),
    "a Produce version from the future": framed(struct.pack(">hhih", 0, 99, 7, -1) + b"\x00"),
    "a Fetch version of the past": framed(struct.pack(">hhih", 1, 0, 7, -1) + bytes(20)),
    "a Produce of old that is cut off": framed(struct.pack(">hhih", 0, 1, 7, -1) + b"\x00"),
    "a varint without end": framed(struct.pack(">hhih", 3, 12, 7, -1) + b"\x00" + b"\xff" * 9),
}


@pytest.mark.parametrize("what", BAD)
def test_a_peer_that_sends_this_loses_its_connection_with_a_log_line(
    what: str, caplog: pytest.LogCaptureFixture
) -> None:
    async def main() -> None:
        async with serving() as gateway:
            bystander = await connect(gateway)
            await bystander.ask(*API_VERSIONS)
            client = await connect(gateway)
            client.send_bytes(BAD[what])
            assert await client.closed() == b""
            await client.close()
            await bystander.ask(*API_VERSIONS)
            await bystander.close()
            assert sum(gateway.counters.connections_closed_for_cause.values()) == 1

    with caplog.at_level(logging.WARNING, "headrace.gateways.kafka"):
        run(main())
    (line,) = [record for record in caplog.records if record.name == "headrace.gateways.kafka"]
    assert line.__dict__["peer"].startswith("127.0.0.1:")
    assert line.__dict__["reason"] in {
        "frame length out of bounds",
        "malformed request",
        "malformed request header",
        "unknown API",
        "unsupported version",
    }


def test_bytes_behind_a_request_are_passed_over_because_librdkafka_sends_some() -> None:
    async def main() -> None:
        async with serving() as gateway:
            client = await connect(gateway)
            header = struct.pack(">hhih", 3, 13, 9, -1) + b"\x00"
            client.send_bytes(framed(header + bytes.fromhex("00000000010000")))
            response = await client.receive(3, 13, 9)
            assert response.error_code == 0
            assert len(response.brokers) == 1
            await client.close()

    run(main())


def test_what_was_asked_before_the_garbage_is_answered() -> None:
    async def main() -> None:
        async with serving() as gateway:
            client = await connect(gateway)
            client.send_bytes(api_versions_frame(5) + BAD["a negative length"])
            await client.receive(18, 3, 5)
            assert await client.closed() == b""
            await client.close()

    run(main())


def test_warnings_about_one_reason_are_limited_and_the_rest_is_counted(caplog: pytest.LogCaptureFixture) -> None:
    clock = SimulatedClock()
    warnings = PeerWarnings(clock)
    with caplog.at_level(logging.WARNING):
        for _ in range(1000):
            warnings.warn("garbage", "somebody", {})
        assert len(caplog.records) == LINES_MAX
        warnings.warn("another reason", "somebody", {})
        assert len(caplog.records) == LINES_MAX + 1
        clock.advance(WINDOW_MS)
        warnings.warn("garbage", "somebody", {})
    assert caplog.records[-1].__dict__["lines_left_out"] == 1000 - LINES_MAX


def has_received(gateway: KafkaListener, count: int) -> bool:
    return gateway.counters.bytes_in == count


@pytest.mark.parametrize("loop", LOOPS)
def test_a_frame_that_comes_one_byte_at_a_time_is_not_waited_for_beyond_its_deadline(loop: str) -> None:
    async def main() -> None:
        clock = SimulatedClock()
        limits = KafkaLimits(frame_deadline_ms=30_000)
        async with serving(limits=limits, clock=clock) as gateway:
            slow = await connect(gateway)
            slow.send_bytes(struct.pack(">i", 1000))
            for count in range(4, 33):
                await until(partial(has_received, gateway, count), "the byte arrived")
                clock.advance(1000)
                slow.send_bytes(b"x")
            assert gateway.connection_count == 1
            clock.advance(2000)
            assert await slow.closed() == b""
            assert gateway.counters.connections_closed_for_cause == {"frame not complete in time": 1}
            await slow.close()
            await assert_serves(gateway)

    run(main(), loop)


def test_an_idle_connection_is_closed_and_one_with_a_long_poll_is_not() -> None:
    async def main() -> None:
        clock = SimulatedClock()
        broker = FakeBroker()
        broker.add("t")
        async with serving(broker, KafkaLimits(connection_idle_ms_max=60_000), clock) as gateway:
            idle, polling = await connect(gateway), await connect(gateway)
            await idle.ask(*API_VERSIONS)
            sent = polling.send(*fetch(0, wait_ms=50_000))
            await until(lambda: broker.waiting_count == 1, "the long poll waits")
            clock.advance(70_000)
            assert await idle.closed() == b""
            broker.partition("t", 0).append(memoryview(bytearray(batch(b"x"))))
            response = await polling.receive(1, 12, sent)
            assert response.responses[0].partitions[0].high_watermark == 1
            await idle.close()
            await polling.close()

    run(main())


def loaded_broker() -> FakeBroker:
    broker = FakeBroker()
    broker.add("t")
    broker.partition("t", 0).append(memoryview(bytearray(batch(bytes(8 * MIB)))))
    return broker


@pytest.mark.parametrize("loop", LOOPS)
def test_a_reader_that_never_reads_is_disconnected_after_the_deadline(loop: str) -> None:
    async def main() -> None:
        clock = SimulatedClock()
        async with serving(loaded_broker(), KafkaLimits(write_deadline_ms=30_000), clock) as gateway:
            client = await connect(gateway)
            for _ in range(20):
                client.send(*fetch(0))
            await until(lambda: gateway.counters.bytes_out > 0, "an answer was begun")
            await assert_serves(gateway)
            # The first answer fills the socket; the requests behind it are not served.
            assert gateway.counters.bytes_out < 20 * MIB
            clock.advance(70_000)
            await until(lambda: gateway.connection_count == 0, "the reader is disconnected")
            assert gateway.counters.connections_closed_for_cause == {"answers not taken": 1}
            client.writer.transport.abort()

    run(main(), loop)


def test_a_reader_is_disconnected_when_more_is_buffered_for_it_than_allowed() -> None:
    async def main() -> None:
        broker = loaded_broker()
        async with serving(broker, KafkaLimits(write_buffer_bytes_max=12 * MIB)) as gateway:
            client = await connect(gateway)
            # Long polls are dispatched while nothing is written yet, and then all find 8 MiB each.
            for _ in range(8):
                client.send(*fetch(1, wait_ms=50_000))
            await until(lambda: broker.waiting_count == 8, "all long polls wait")
            broker.partition("t", 0).append(memoryview(bytearray(batch(bytes(8 * MIB)))))
            await until(lambda: gateway.connection_count == 0, "the reader is disconnected")
            assert gateway.counters.connections_closed_for_cause == {"answers not taken": 1}
            client.writer.transport.abort()
            await assert_serves(gateway)

    run(main())


def test_a_reader_that_is_slow_and_steady_is_served() -> None:
    async def main() -> None:
        clock = SimulatedClock()
        async with serving(loaded_broker(), KafkaLimits(write_deadline_ms=30_000), clock) as gateway:
            client = await connect(gateway)
            sent = client.send(*fetch(0))
            taken = 0
            await until(lambda: gateway.counters.bytes_out > 0, "an answer was begun")
            first = await client.reader.readexactly(8)
            assert struct.unpack(">ii", first)[1] == sent
            while taken < 8 * MIB:
                taken += len(await client.reader.readexactly(MIB // 2))
                clock.advance(10_000)
            assert gateway.connection_count == 1
            client.writer.transport.abort()

    run(main())
