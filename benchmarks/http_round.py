"""One queue by one door: send for a while, receive what was sent, acknowledge what was received."""

import re
import time
from collections.abc import Callable, Sequence
from itertools import cycle
from typing import NamedTuple

from benchmarks.door import Door
from benchmarks.http_load import CONNECTIONS, MeasuredHttp, Script, load
from benchmarks.process import Server

EMPTY_ANSWERS_MAX = 2 * CONNECTIONS
# So many that no connection sends one twice in a row, and that no server sees one again soon.
REQUESTS = 16 * CONNECTIONS
# A batch is answered with success, and says of each entry how it went. No message of a load contains these words.
_failure = re.compile(rb'error|"Failed": ?\[\{').search


def several(make: Callable[[], bytes]) -> list[bytes]:
    """Requests that are alike, made before the first is sent. Signed ones differ in their signatures."""
    return [make() for _ in range(REQUESTS)]


class Load(NamedTuple):
    """How long each of the three goes on, and over how many connections."""

    seconds: float
    warmup_s: float = 0.0
    connections: int = CONNECTIONS


class Part(NamedTuple):
    found: MeasuredHttp
    server_cpu_share: float  # of one core


class Round(NamedTuple):
    sends: Part
    receives: Part
    acknowledgements: Part


class Sending:
    """The same messages again and again. An answer that names a failure counts for nothing."""

    def __init__(self, door: Door, body: str, count: int) -> None:
        self._requests = cycle(several(lambda: door.send(body, count)))
        self._count = count

    def next(self) -> bytes | None:
        return next(self._requests)

    def answered(self, status: int, body: bytes) -> int:
        return self._count if status < 300 and not _failure(body) else 0


class Receiving:
    """Receives until the queue seems empty, and keeps the receipts."""

    def __init__(self, door: Door, count: int) -> None:
        self._door = door
        self._requests = cycle(several(lambda: door.receive(count)))
        self._empty = 0
        self.receipts: list[str] = []

    def next(self) -> bytes | None:
        return None if self._empty > EMPTY_ANSWERS_MAX else next(self._requests)

    def answered(self, status: int, body: bytes) -> int:
        found = self._door.receipts(body) if status < 300 else []
        self.receipts += found
        self._empty = 0 if found else self._empty + 1
        return len(found)


class Acknowledging:
    """Acknowledges receipts, just so many in each request. The requests are made before the first is sent."""

    def __init__(self, door: Door, receipts: Sequence[str], count: int) -> None:
        whole = len(receipts) - len(receipts) % count
        self._requests = [door.acknowledge(receipts[start : start + count]) for start in range(0, whole, count)]
        self._count = count

    def next(self) -> bytes | None:
        return self._requests.pop() if self._requests else None

    def answered(self, status: int, body: bytes) -> int:
        return self._count if status < 300 and not _failure(body) else 0


def measure_round(server: Server, door: Door, body: str, count: int, how: Load) -> Round:
    sends = _measure(server, Sending(door, body, count), how)
    receiving = Receiving(door, count)
    receives = _measure(server, receiving, how._replace(warmup_s=0.0))
    acknowledging = Acknowledging(door, receiving.receipts, count)
    return Round(sends, receives, _measure(server, acknowledging, how._replace(warmup_s=0.0)))


def _measure(server: Server, script: Script, how: Load) -> Part:
    begun_s, cpu_s = time.perf_counter(), server.cpu_s()
    found = load(server.http, script, seconds=how.seconds, warmup_s=how.warmup_s, connections=how.connections)
    return Part(found, (server.cpu_s() - cpu_s) / (time.perf_counter() - begun_s))
