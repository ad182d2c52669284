"""A queue's long past: messages sent, received and acknowledged by `AsyncClient`, but for a few with a long delay.

A named reader registers first and begins late, when half of all is sent: it reads the log from its start by offset,
over the Kafka wire, and says now and then how far it is. Every message has its number, so it is known which came.

Run as `python -m benchmarks.past_load HTTP KAFKA QUEUE --messages 100000`; it prints what it saw as JSON.
"""

import argparse
import asyncio
import subprocess
import sys
import time

import msgspec
import uvloop

from benchmarks.process import clean_environment
from headrace import AsyncClient, AsyncQueue, OutgoingMessage
from headrace.client.stream import StreamClient
from headrace.client.values import TopicPartition

BATCH = 100
SENDERS = 4
WORKERS = 6
WAITING_MAX = 20_000  # senders wait while so many are not acknowledged: what is measured is a past, not a backlog
DELAY_S = 30 * 24 * 60 * 60
LEASE_S = 600
NUMBER_BYTES = 8
READER = "mirror"
READER_STEP_BYTES = 512 * 1024 * 1024
FETCH_BYTES = 16 * 1024 * 1024
DEADLINE_S = 7200.0


class MeasuredPast(msgspec.Struct, frozen=True, kw_only=True):
    sent: int
    acknowledged: int
    worked_s: float  # until the last one was acknowledged
    read: int  # different messages that the reader saw
    read_s: float  # until it had seen all
    repeated: int  # messages that workers got more than once


class Past(msgspec.Struct, frozen=True, kw_only=True):
    """How long a past, and how much of it stays."""

    messages: int
    size_bytes: int
    delayed: int

    def is_delayed(self, number: int) -> bool:
        step = self.messages // self.delayed
        return number % step == step // 2 and number // step < self.delayed


def start(http: str, kafka: str, queue: str, past: Past) -> "subprocess.Popen[bytes]":
    command = [sys.executable, "-m", "benchmarks.past_load", http, kafka, queue]
    command += ["--messages", str(past.messages), "--size", str(past.size_bytes), "--delayed", str(past.delayed)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=clean_environment())


def result(process: "subprocess.Popen[bytes]") -> MeasuredPast:
    out, errors = process.communicate(timeout=DEADLINE_S)
    if process.returncode != 0:
        raise RuntimeError(f"the client failed: {errors[-2000:].decode(errors='replace')}")
    return msgspec.json.decode(out, type=MeasuredPast)


class _Load:
    def __init__(self, queue: AsyncQueue, stream: StreamClient, past: Past) -> None:
        self._queue = queue
        self._stream = stream
        self._past = past
        self._filler = b"x" * (past.size_bytes - NUMBER_BYTES)
        self._next = 0
        self._sent = 0
        self._done = bytearray(past.messages)
        self._done_count = self._repeated = 0
        self._seen = bytearray(past.messages)

    async def run(self) -> MeasuredPast:
        await self._queue.move_reader(READER, {0: 0})
        begun_s = time.monotonic()
        async with asyncio.TaskGroup() as group:
            reading = group.create_task(self._read())
            async with asyncio.TaskGroup() as work:
                for _ in range(SENDERS):
                    work.create_task(self._send())
                for _ in range(WORKERS):
                    work.create_task(self._work())
            worked_s = time.monotonic() - begun_s
            read = await reading
        return MeasuredPast(
            sent=self._sent,
            acknowledged=self._done_count,
            worked_s=worked_s,
            read=read,
            read_s=time.monotonic() - begun_s,
            repeated=self._repeated,
        )

    @property
    def _is_over(self) -> bool:
        return self._done_count == self._past.messages - self._past.delayed

    async def _send(self) -> None:
        past = self._past
        while self._next < past.messages:
            numbers = range(self._next, min(self._next + BATCH, past.messages))
            self._next = numbers.stop
            await self._queue.send_many(
                [
                    OutgoingMessage(
                        body=number.to_bytes(NUMBER_BYTES, "big") + self._filler,
                        delay=DELAY_S if past.is_delayed(number) else None,
                    )
                    for number in numbers
                ]
            )
            self._sent += len(numbers)
            while self._sent - self._done_count > WAITING_MAX:  # noqa: ASYNC110 - workers of this process change it
                await asyncio.sleep(0.01)

    async def _work(self) -> None:
        while not self._is_over:
            messages = await self._queue.receive(BATCH, wait=1, lease=LEASE_S)
            if not messages:
                continue
            await self._queue.acknowledge_all(messages)
            for message in messages:
                number = int.from_bytes(message.body[:NUMBER_BYTES], "big")
                self._repeated += self._done[number]
                self._done_count += 1 - self._done[number]
                self._done[number] = 1

    async def _read(self) -> int:
        """Read all from the start to the end, acknowledgements of the last message too."""
        while self._sent < self._past.messages // 2:  # noqa: ASYNC110 - senders of this process change it
            await asyncio.sleep(0.1)
        at = TopicPartition(self._queue.name, 0)
        offset = told_bytes = read_bytes = count = 0
        is_end = False
        while not is_end:
            is_over = self._is_over
            (fetched,) = await self._stream.fetch({at: offset}, bytes_max=FETCH_BYTES)
            for message in fetched.messages:
                assert message.value is not None
                number = int.from_bytes(message.value[:NUMBER_BYTES], "big")
                count += 1 - self._seen[number]
                self._seen[number] = 1
                read_bytes += len(message.value)
            offset = fetched.next_offset
            is_end = is_over and offset >= fetched.high_watermark
            if is_end or read_bytes - told_bytes > READER_STEP_BYTES:
                told_bytes = read_bytes
                await self._queue.move_reader(READER, {0: offset})
        return count


async def run(http: str, kafka: str, queue: str, past: Past) -> MeasuredPast:
    async with AsyncClient(http) as client, StreamClient(kafka) as stream:
        return await _Load(client.queue(queue), stream, past).run()


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.past_load")
    parser.add_argument("http")
    parser.add_argument("kafka")
    parser.add_argument("queue")
    parser.add_argument("--messages", type=int, required=True)
    parser.add_argument("--size", type=int, required=True)
    parser.add_argument("--delayed", type=int, required=True)
    given = parser.parse_args()
    past = Past(messages=given.messages, size_bytes=given.size, delayed=given.delayed)
    found = uvloop.run(run(given.http, given.kafka, given.queue, past))
    sys.stdout.buffer.write(msgspec.json.encode(found))


if __name__ == "__main__":
    main()
