"""The load of a Python program: `AsyncClient` sends, receives and acknowledges, in a process of its own.

With a batch of one, many tasks send a message each and wait for it, as the handlers of a web server do; the client
itself puts what is under way together into one request. With more, each task sends so many at once.

Run as `python -m benchmarks.client_load ADDRESS QUEUE --batch 100 --seconds 2`; it prints what it measured as JSON.
"""

import argparse
import asyncio
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable

import msgspec
import uvloop

from benchmarks.process import clean_environment
from headrace import AsyncClient, AsyncMessage, AsyncQueue

LEASE_S = 600
SINGLE_TASKS = 64
BATCH_TASKS = 8
DEADLINE_S = 120.0


class Rate(msgspec.Struct, frozen=True, kw_only=True):
    messages: int
    seconds: float
    cpu_share: float  # of the client's own core

    @property
    def messages_per_s(self) -> float:
        return self.messages / self.seconds if self.seconds else 0.0


class MeasuredClient(msgspec.Struct, frozen=True, kw_only=True):
    sends: Rate
    receives: Rate
    acknowledgements: Rate


def measure(address: str, queue: str, *, batch: int, size_bytes: int, seconds: float) -> MeasuredClient:
    """Start the load and wait for it."""
    command = [sys.executable, "-m", "benchmarks.client_load", address, queue]
    command += ["--batch", str(batch), "--size", str(size_bytes), "--seconds", str(seconds)]
    done = subprocess.run(command, capture_output=True, env=clean_environment(), timeout=DEADLINE_S)
    if done.returncode != 0:
        raise RuntimeError(f"the client failed: {done.stderr[-2000:].decode(errors='replace')}")
    return msgspec.json.decode(done.stdout, type=MeasuredClient)


class _Load:
    def __init__(self, queue: AsyncQueue, batch: int, body: bytes, seconds: float) -> None:
        self._queue = queue
        self._batch = batch
        self._body = body
        self._seconds = seconds
        self._tasks = SINGLE_TASKS if batch == 1 else BATCH_TASKS
        self._received: list[AsyncMessage] = []

    async def send(self) -> int:
        if self._batch == 1:
            await self._queue.send(self._body)
        else:
            await self._queue.send_many([self._body] * self._batch)
        return self._batch

    async def receive(self) -> int:
        found = await self._queue.receive(self._batch, wait=0, lease=LEASE_S)
        self._received += found
        return len(found)

    async def acknowledge(self) -> int:
        taken = [self._received.pop() for _ in range(min(self._batch, len(self._received)))]
        await asyncio.gather(*(message.ack() for message in taken))
        return len(taken)

    async def rate(self, work: Callable[[], Awaitable[int]]) -> Rate:
        """Some tasks that do this until the time is over or there is nothing left to do."""
        begun_s, cpu_s = time.perf_counter(), time.process_time()
        end_s = begun_s + self._seconds
        count = 0

        async def go_on() -> None:
            nonlocal count
            while time.perf_counter() < end_s:
                done = await work()
                if not done:
                    return
                count += done

        async with asyncio.TaskGroup() as group:
            for _ in range(self._tasks):
                group.create_task(go_on())
        seconds = time.perf_counter() - begun_s
        return Rate(messages=count, seconds=seconds, cpu_share=(time.process_time() - cpu_s) / seconds)


async def run(address: str, queue: str, batch: int, size_bytes: int, seconds: float) -> MeasuredClient:
    async with AsyncClient(address) as client:
        load = _Load(client.queue(queue), batch, b"x" * size_bytes, seconds)
        for _ in range(10):
            await load.send()
        sends = await load.rate(load.send)
        receives = await load.rate(load.receive)
        return MeasuredClient(sends=sends, receives=receives, acknowledgements=await load.rate(load.acknowledge))


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.client_load")
    parser.add_argument("address")
    parser.add_argument("queue")
    parser.add_argument("--batch", type=int, default=100)
    parser.add_argument("--size", type=int, default=1024)
    parser.add_argument("--seconds", type=float, default=2.0)
    given = parser.parse_args()
    found = uvloop.run(run(given.address, given.queue, given.batch, given.size, given.seconds))
    sys.stdout.buffer.write(msgspec.json.encode(found))


if __name__ == "__main__":
    main()
