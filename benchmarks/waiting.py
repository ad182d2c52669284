"""Messages sent at a steady rate to consumers that wait for them, with the time from one to the other.

Open-loop: each message is due at a moment fixed before the run, and its latency counts from there, so that a stall is
seen by every message that fell due in it. One thread does both sides and reads one clock; at a few thousand messages a
second it is busy for a fraction of a core.
"""

import re
import select
import time
from collections import deque
from typing import NamedTuple

import msgspec

from benchmarks.door import RestDoor, request
from benchmarks.http_load import Connection
from headrace.cli.load import Percentiles, percentiles

SENDERS = 64
CONSUMERS = 8
RECEIVE_MAX = 10
WAIT_S = 20
DRAIN_S = 10.0
TICK_NS = 1_000_000
STAMP_DIGITS = 20

_stamps = re.compile(rb'"body": ?"(\d{%d})' % STAMP_DIGITS).findall


class MeasuredWaiting(msgspec.Struct, frozen=True, kw_only=True):
    sent: int
    received: int
    acknowledged_ms: Percentiles
    latency_ms: Percentiles


class Pace(NamedTuple):
    rate: int
    seconds: float
    warmup_s: float
    size_bytes: int


class Waiting:
    """The state of one run."""

    def __init__(self, address: str, queue: str, pace: Pace) -> None:
        self._door = RestDoor(address, queue)
        self._receive = request(
            "GET", address, f"/queues/{queue}/messages?batch_size={RECEIVE_MAX}&wait={WAIT_S}&lease=60"
        )
        self._address = address
        self._filler = "x" * (pace.size_bytes - STAMP_DIGITS)
        self._pace = pace
        self._due: deque[int] = deque()
        self._idle: list[Connection] = []
        self._sending: dict[Connection, int] = {}
        self._acknowledging: set[Connection] = set()
        self._sent = self._received = 0
        self._acknowledged_ns: list[int] = []
        self._latencies_ns: list[int] = []

    def run(self) -> MeasuredWaiting:
        by_number: dict[int, Connection] = {}
        with select.epoll() as poll:
            try:
                self._idle = [Connection(self._address, poll, by_number) for _ in range(SENDERS)]
                for _ in range(CONSUMERS):
                    Connection(self._address, poll, by_number).send(self._receive)
                self._drive(poll, by_number)
            finally:
                for connection in list(by_number.values()):
                    connection.close()
        acknowledged, latency = percentiles(self._acknowledged_ns), percentiles(self._latencies_ns)
        if acknowledged is None or latency is None:
            raise RuntimeError("no message arrived")
        return MeasuredWaiting(
            sent=self._sent, received=self._received, acknowledged_ms=acknowledged, latency_ms=latency
        )

    def _drive(self, poll: select.epoll, by_number: dict[int, Connection]) -> None:
        begun_ns = time.perf_counter_ns()
        self._warm_ns = begun_ns + int(self._pace.warmup_s * 1e9)
        end_ns = self._warm_ns + int(self._pace.seconds * 1e9)
        step_ns = 1e9 / self._pace.rate
        due_count = 0
        while (now_ns := time.perf_counter_ns()) < end_ns + DRAIN_S * 1e9:
            while now_ns < end_ns and begun_ns + due_count * step_ns <= now_ns:
                self._due.append(int(begun_ns + due_count * step_ns))
                due_count += 1
            if now_ns >= end_ns and self._received >= due_count:
                return
            while self._due and self._idle:
                self._send(self._idle.pop(), self._due.popleft())
            for number, _ in poll.poll(TICK_NS / 1e9):
                self._answered(by_number[number])

    def _send(self, connection: Connection, due_ns: int) -> None:
        self._sending[connection] = due_ns
        self._sent += 1
        connection.send(self._door.send(f"{due_ns:0{STAMP_DIGITS}d}{self._filler}", 1))

    def _answered(self, connection: Connection) -> None:
        answer = connection.receive()
        if answer is None:
            return
        status, body = answer
        if status >= 300:
            raise RuntimeError(f"the server answered {status}: {body[:300]!r}")
        now_ns = time.perf_counter_ns()
        if connection in self._sending:
            due_ns = self._sending.pop(connection)
            if due_ns >= self._warm_ns:
                self._acknowledged_ns.append(now_ns - due_ns)
            self._idle.append(connection)
        elif connection in self._acknowledging or not (receipts := self._door.receipts(body)):
            self._acknowledging.discard(connection)
            connection.send(self._receive)
        else:
            stamps = [int(stamp) for stamp in _stamps(body)]
            self._received += len(stamps)
            self._latencies_ns += [now_ns - stamp for stamp in stamps if stamp >= self._warm_ns]
            self._acknowledging.add(connection)
            connection.send(self._door.acknowledge(receipts))
