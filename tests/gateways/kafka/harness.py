"""A gateway on loopback over a fake broker, and a client that speaks frames."""

import asyncio
import struct
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager, suppress
from typing import Any

import uvloop
from tests.gateways.kafka.fake_broker import FakeBroker

from headrace.broker.group.port import GroupPort
from headrace.broker.group.share_port import SharePort
from headrace.gateways.answers import AnswerBudget
from headrace.gateways.kafka.gateway import start_kafka
from headrace.gateways.kafka.limits import KafkaLimits
from headrace.gateways.kafka.listener import KafkaListener
from headrace.gateways.kafka.port import BrokerPort, TransactionPort
from headrace.host.clock import Clock, SystemClock
from headrace.host.transport import TcpTransport
from headrace.model.batch import CRC_POSITION, CRC_START, HEADER_SIZE
from headrace.wire.crc import crc32c
from headrace.wire.kafka.frame import encode_request, read_correlation_id, read_response

DEADLINE_S = 10.0

LOOPS: dict[str, Callable[[], asyncio.AbstractEventLoop]] = {
    "uvloop": uvloop.new_event_loop,
    "asyncio": asyncio.new_event_loop,
}


def run(main: Coroutine[Any, Any, None], loop: str = "uvloop") -> None:
    """Run a test's coroutine, which has to end by itself."""

    async def bounded() -> None:
        try:
            await asyncio.wait_for(main, 60)
        finally:
            # A test that failed half-way leaves no connection behind for the next one to be blamed for.
            for client in _connected:
                client.writer.transport.abort()
            if _connected:
                _connected.clear()
                await asyncio.sleep(0.01)

    with asyncio.Runner(loop_factory=LOOPS[loop]) as runner:
        runner.run(bounded())


async def until(condition: Callable[[], bool], what: str) -> None:
    """Wait for a condition, failing after the deadline."""
    end = asyncio.get_running_loop().time() + DEADLINE_S
    while not condition():
        assert asyncio.get_running_loop().time() < end, f"not seen in {DEADLINE_S} s: {what}"
        await asyncio.sleep(0.002)


class Client:
    """Sends requests built by the codec, or any bytes, and reads answers."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer
        self._correlation_id = 100

    def send(self, api_key: int, version: int, request: Any) -> int:
        self._correlation_id += 1
        self.writer.write(encode_request(api_key, version, self._correlation_id, "test", request))
        return self._correlation_id

    def send_bytes(self, data: bytes) -> None:
        self.writer.write(data)

    async def frame(self) -> bytes:
        async with asyncio.timeout(DEADLINE_S):
            (size,) = struct.unpack(">i", await self.reader.readexactly(4))
            return await self.reader.readexactly(size)

    async def receive(self, api_key: int, version: int, correlation_id: int) -> Any:
        frame = await self.frame()
        assert read_correlation_id(frame) == correlation_id, "answers come in the order of the requests"
        return read_response(api_key, version, frame).value

    async def ask(self, api_key: int, version: int, request: Any) -> Any:
        return await self.receive(api_key, version, self.send(api_key, version, request))

    async def closed(self) -> bytes:
        """Wait until the gateway has closed the connection; returns what it still said."""
        async with asyncio.timeout(DEADLINE_S):
            try:
                return await self.reader.read()
            except ConnectionResetError:
                return b""

    async def close(self) -> None:
        self.writer.close()
        with suppress(ConnectionResetError, BrokenPipeError):
            await self.writer.wait_closed()


_connected: list[Client] = []


async def connect(gateway: KafkaListener) -> Client:
    client = Client(*await asyncio.open_connection(*gateway.address))
    _connected.append(client)
    return client


@asynccontextmanager
async def serving(
    broker: BrokerPort | None = None,
    limits: KafkaLimits | None = None,
    clock: Clock | None = None,
    groups: GroupPort | None = None,
    shares: SharePort | None = None,
    transactions: TransactionPort | None = None,
    answers: AnswerBudget | None = None,
) -> AsyncIterator[KafkaListener]:
    gateway = await start_kafka(
        broker or FakeBroker(),
        groups=groups,
        shares=shares,
        transactions=transactions,
        transport=TcpTransport(),
        clock=clock or SystemClock(),
        host="127.0.0.1",
        port=0,
        limits=limits,
        answers=answers,
    )
    try:
        yield gateway
    finally:
        await gateway.stop()
        await until(lambda: gateway.connection_count == 0, "no connection left")
        await until(lambda: gateway.frames_in_flight_bytes == 0, "all frame memory given back")


def batch(
    body: bytes = b"records", *, count: int = 1, timestamp_ms: int = 1_700_000_000_000, attributes: int = 0
) -> bytes:
    """One batch with a right header. The gateway never looks at records, so here they are any bytes."""
    header = struct.pack(
        ">qiibIhiqqqhii",
        0, HEADER_SIZE - 12 + len(body), -1, 2, 0, attributes, count - 1, timestamp_ms, timestamp_ms, -1, -1, -1, count,
    )  # fmt: skip
    data = bytearray(header + body)
    struct.pack_into(">I", data, CRC_POSITION, crc32c(memoryview(data)[CRC_START:]))
    return bytes(data)
