"""Puts load on an HTTP server from one process, costing little itself.

Many connections with one request on the way in each: the requests are bytes that a script hands out, and the answers
go back to the script. There is no event loop and no parser of headers: `epoll` says which sockets have an answer, and
of an answer the status, the content length and the body are found by searching. So the server is what is measured, and
how much of a core the generator took stands beside the figures.

Answers have a content length; no server here sends chunks to requests of these kinds.
"""

import re
import select
import socket
import time
from collections import Counter
from collections.abc import Sequence
from itertools import cycle
from typing import Protocol

import msgspec

from headrace.cli.load import Percentiles, percentiles

CONNECTIONS = 64
ANSWER_DEADLINE_S = 60.0
READ_BYTES = 1 << 18

_content_length = re.compile(rb"\r\ncontent-length: *(\d+)", re.IGNORECASE).search
_closing = re.compile(rb"\r\nconnection: *close", re.IGNORECASE).search


class Script(Protocol):
    """What is sent, and what becomes of the answers."""

    def next(self) -> bytes | None:
        """The bytes of a request; None when there is no more to send."""

    def answered(self, status: int, body: bytes) -> int:
        """Take an answer, and say how many messages it stands for."""


class Repeat:
    """The same requests again and again."""

    def __init__(self, requests: Sequence[bytes]) -> None:
        self._requests = cycle(requests)

    def next(self) -> bytes | None:
        return next(self._requests)

    def answered(self, status: int, body: bytes) -> int:
        return 1 if status < 300 else 0


class MeasuredHttp(msgspec.Struct, frozen=True, kw_only=True):
    """What happened in the measured part of a load."""

    requests: int
    messages: int
    seconds: float
    statuses: dict[str, int]
    latency_ms: Percentiles | None
    client_cpu_share: float  # of one core; near 1 the generator is the limit

    @property
    def requests_per_s(self) -> float:
        return self.requests / self.seconds if self.seconds else 0.0

    @property
    def messages_per_s(self) -> float:
        return self.messages / self.seconds if self.seconds else 0.0

    @property
    def failed(self) -> int:
        return sum(count for status, count in self.statuses.items() if not status.startswith("2"))


class Connection:
    """A socket, with at most one request on its way. Opened again where the server closes after each answer."""

    def __init__(self, address: str, poll: select.epoll, by_number: "dict[int, Connection]") -> None:
        host, _, port = address.rpartition(":")
        self._place = (host, int(port))
        self._poll = poll
        self._by_number = by_number
        self._parts = b""
        self.sent_ns = 0
        self._open()

    def _open(self) -> None:
        self._socket = socket.create_connection(self._place, timeout=ANSWER_DEADLINE_S)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._is_ending = False
        self._by_number[self._socket.fileno()] = self
        self._poll.register(self._socket, select.EPOLLIN)

    def close(self) -> None:
        del self._by_number[self._socket.fileno()]
        self._poll.unregister(self._socket)
        self._socket.close()

    def send(self, request: bytes) -> None:
        self.sent_ns = time.perf_counter_ns()
        if self._is_ending:
            self.close()
            self._open()
        self._socket.sendall(request)

    def receive(self) -> tuple[int, bytes] | None:
        """Status and body, once all of an answer is here."""
        data = self._socket.recv(READ_BYTES)
        if not data:
            raise RuntimeError(f"the server closed a connection in the middle of an answer: {self._parts[:200]!r}")
        if self._parts:
            data = self._parts + data
        head_end = data.find(b"\r\n\r\n") + 4
        length = _content_length(data, 0, head_end)
        if head_end < 4 or len(data) < head_end + (int(length[1]) if length else 0):
            self._parts = data
            return None
        self._parts = b""
        self._is_ending = _closing(data, 0, head_end) is not None
        return int(data[9:12]), data[head_end:]


class _Tally:
    """What is counted; begun anew after the warm-up."""

    def __init__(self) -> None:
        self.begun_ns = self.last_ns = time.perf_counter_ns()
        self.cpu_s = time.process_time()
        self.messages = 0
        self.statuses: Counter[int] = Counter()
        self.latencies_ns: list[int] = []

    def measured(self) -> MeasuredHttp:
        seconds = (self.last_ns - self.begun_ns) / 1e9
        return MeasuredHttp(
            requests=len(self.latencies_ns),
            messages=self.messages,
            seconds=seconds,
            statuses={str(status): count for status, count in sorted(self.statuses.items())},
            latency_ms=percentiles(self.latencies_ns),
            client_cpu_share=(time.process_time() - self.cpu_s) / seconds if seconds else 0.0,
        )


def load(
    address: str, script: Script, *, seconds: float, warmup_s: float = 0.0, connections: int = CONNECTIONS
) -> MeasuredHttp:
    """Keep every connection busy until the time is over or the script has no more; then wait for the last answers."""
    by_number: dict[int, Connection] = {}
    with select.epoll() as poll:
        try:
            for _ in range(connections):
                Connection(address, poll, by_number)
            return _drive(poll, by_number, script, seconds, warmup_s)
        finally:
            for connection in list(by_number.values()):
                connection.close()


def _drive(
    poll: select.epoll, by_number: dict[int, Connection], script: Script, seconds: float, warmup_s: float
) -> MeasuredHttp:
    tally = _Tally()
    warm_ns = tally.begun_ns + int(warmup_s * 1e9)
    end_ns = warm_ns + int(seconds * 1e9)
    is_warm = warmup_s == 0.0
    busy = 0
    for connection in list(by_number.values()):
        busy += _go_on(connection, script)
    while busy:
        ready = poll.poll(ANSWER_DEADLINE_S)
        if not ready:
            raise RuntimeError(f"{busy} requests had no answer within {ANSWER_DEADLINE_S:.0f} s")
        for number, _ in ready:
            connection = by_number[number]
            answer = connection.receive()
            if answer is None:
                continue
            now_ns = time.perf_counter_ns()
            status, body = answer
            tally.messages += script.answered(status, body)
            tally.statuses[status] += 1
            tally.latencies_ns.append(now_ns - connection.sent_ns)
            tally.last_ns = now_ns
            if not is_warm and now_ns >= warm_ns:
                is_warm, tally = True, _Tally()
            busy -= 1
            if now_ns < end_ns:
                busy += _go_on(connection, script)
            else:
                connection.close()
    return tally.measured()


def _go_on(connection: Connection, script: Script) -> int:
    """Send the next request, and say how many are on their way by that. Without one the connection is done."""
    request = script.next()
    if request is None:
        connection.close()
        return 0
    connection.send(request)
    return 1
