"""A short measurement of a node that serves: what it does in a second, by the CPU time that it takes for it.

Our own client is in Python and slower than a node, so counting messages a second would measure the client. What is
counted is the node's CPU (`process_cpu_seconds_total` of its metrics): a rate here is what the node would do with one
core full. The load is some seconds long, goes to a topic and a queue of its own, and both are deleted afterwards.
"""

import asyncio
import re
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass

from headrace.client.http.caller import Caller
from headrace.client.http.pool import Pool
from headrace.client.portal import BackgroundLoop
from headrace.client.queue.client import AsyncClient
from headrace.client.queue.message import AsyncMessage
from headrace.client.queue.queue import AsyncQueue
from headrace.client.settings import QueueClientConfig
from headrace.client.stream import StreamClient
from headrace.client.values import Outgoing, TopicPartition
from headrace.host.clock import Clock, SystemClock
from headrace.host.rand import SystemRand
from headrace.host.transport import TcpTransport
from headrace.model.address import parse_address
from headrace.model.errors import HeadraceError
from headrace.spark.errors import OptionError
from headrace.spark.pipeline.figures import (
    ACKNOWLEDGE,
    CONSUME,
    PARTITION,
    PRODUCE,
    RECEIVE,
    RECORD_OVERHEAD,
    SEND,
    Figure,
)

_IN_FLIGHT = 8
_PRODUCE_BATCH = 400
_FETCH_BYTES = 4 * 1024 * 1024
_CPU = re.compile(r"^process_cpu_seconds_total (\S+)$", re.MULTILINE)
_PREFIX = "headrace.capacity."


@dataclass(frozen=True, slots=True, kw_only=True)
class Measurement:
    """What to measure against, and how long each thing takes."""

    server: str
    http: str
    message_bytes: int
    batch: int
    seconds: float


def measure(wanted: Measurement, report: Callable[[str], None]) -> dict[str, Figure]:
    """Figures of the node at these addresses. Tells what it does as it goes."""
    loop = BackgroundLoop(name="headrace-measure")
    try:
        return loop.run(_measure(wanted, report, SystemClock()))
    finally:
        loop.close()


async def _measure(wanted: Measurement, report: Callable[[str], None], clock: Clock) -> dict[str, Figure]:
    name = _PREFIX + SystemRand().bytes(4).hex()
    meter = _Meter(wanted.http, clock)
    found: dict[str, Figure] = {}
    try:
        async with StreamClient(wanted.server) as streams, AsyncClient(wanted.http) as queues:
            await streams.admin.create_topic(name, partition_count=1)
            try:
                found |= await _stream_figures(streams, meter, wanted, name, report)
                queue = queues.queue(f"{name}.queue")
                found |= await _queue_figures(queue, meter, wanted, report)
            finally:
                # Deleting a queue is its administrator's; its topic goes with the same call as any other's.
                with suppress(HeadraceError):
                    await streams.admin.delete_topics([name, f"{name}.queue"])
    finally:
        await meter.close()
    return found


class _Meter:
    """How many messages a core of the node does in a second of its own time."""

    def __init__(self, http: str, clock: Clock) -> None:
        config = QueueClientConfig()
        try:
            addresses = [parse_address(one.strip().removeprefix("http://")) for one in http.split(",")]
        except ValueError as error:
            raise OptionError(f"--http {error}") from None

        def pool() -> Pool:
            return Pool(
                addresses,
                clock=clock,
                transport=TcpTransport(),
                connections_max=1,
                connect_timeout_ms=config.connect_timeout_ms,
                answer_bytes_max=config.answer_bytes_max,
            )

        self._caller = Caller(pool(), pool(), config, clock=clock, rand=SystemRand())
        self._clock = clock
        self._http = http

    async def close(self) -> None:
        await self._caller.close()

    async def text(self) -> str:
        return bytes((await self._caller.call("GET", "/metrics")).body).decode()

    async def _cpu_s(self) -> float:
        match = _CPU.search(await self.text())
        if match is None:
            raise OptionError(f"--http {self._http} has no metrics of a headrace node")
        return float(match[1])

    async def rate(self, name: str, work: Callable[[], Awaitable[int]]) -> Figure:
        """Do the work, which says how many messages it was."""
        before_s, began_ms = await self._cpu_s(), self._clock.monotonic_ms()
        count = await work()
        seconds = (self._clock.monotonic_ms() - began_ms) / 1000
        cpu_s = max(await self._cpu_s() - before_s, 1e-6)
        source = f"measured now: {count:,} messages in {seconds:.1f} s took {cpu_s:.2f} s of the node's CPU"
        return Figure(name, count / cpu_s, source)


async def _stream_figures(
    client: StreamClient, meter: _Meter, wanted: Measurement, topic: str, report: Callable[[str], None]
) -> dict[str, Figure]:
    messages = [Outgoing(bytes(wanted.message_bytes), partition=0)] * _PRODUCE_BATCH

    async def produce_one() -> int:
        return sum(one.message_count for one in await client.produce(topic, messages))

    report("producing")
    produced = await meter.rate(PRODUCE, lambda: _again(produce_one, wanted.seconds))
    at = TopicPartition(topic, 0)
    end = (await client.end_offsets([at]))[at]

    async def consume() -> int:
        offset, count = 0, 0
        while offset < end:
            (fetched,) = await client.fetch({at: offset}, bytes_max=_FETCH_BYTES)
            offset, count = fetched.next_offset, count + len(fetched.messages)
        return count

    report("consuming")
    consumed = await meter.rate(CONSUME, consume)
    sizes = re.search(rf'^headrace_topic_size_bytes{{topic="{re.escape(topic)}"}} (\S+)$', await meter.text(), re.M)
    found = {PRODUCE: produced, CONSUME: consumed, PARTITION: produced._replace(name=PARTITION)}
    if sizes is not None and end:
        overhead = float(sizes[1]) / end - wanted.message_bytes
        source = f"measured now: {float(sizes[1]):,.0f} bytes on disk for {end:,} messages"
        found[RECORD_OVERHEAD] = Figure(RECORD_OVERHEAD, max(overhead, 0.0), source)
    return found


async def _queue_figures(
    queue: AsyncQueue, meter: _Meter, wanted: Measurement, report: Callable[[str], None]
) -> dict[str, Figure]:
    bodies = [bytes(wanted.message_bytes)] * wanted.batch
    leased: list[list[AsyncMessage]] = []

    async def send_one() -> int:
        return len(await queue.send_many(bodies))

    report("sending")
    sent = await meter.rate(SEND, lambda: _again(send_one, wanted.seconds))

    async def receive_one() -> int:
        messages = await queue.receive(wanted.batch, 0, 600)
        if messages:
            leased.append(messages)
        return len(messages)

    report("receiving")
    received = await meter.rate(RECEIVE, lambda: _again(receive_one, wanted.seconds))

    async def acknowledge_one() -> int:
        batch = leased.pop() if leased else []
        await queue.acknowledge_all(batch)
        return len(batch)

    report("acknowledging")
    done = await meter.rate(ACKNOWLEDGE, lambda: _again(acknowledge_one, wanted.seconds))
    return {SEND: sent, RECEIVE: received, ACKNOWLEDGE: done}


async def _again(work: Callable[[], Awaitable[int]], seconds: float) -> int:
    """Several at a time, until the time is over or there is nothing left."""
    clock = SystemClock()
    end_ms = clock.monotonic_ms() + int(seconds * 1000)

    async def one_after_another() -> int:
        total = 0
        while clock.monotonic_ms() < end_ms:
            count = await work()
            if not count:
                break
            total += count
        return total

    return sum(await asyncio.gather(*(one_after_another() for _ in range(_IN_FLIGHT))))
