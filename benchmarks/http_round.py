"""One queue by one door: send for a while, receive what was sent, acknowledge what was received."""

import re
from collections.abc import Sequence
from typing import NamedTuple

import msgspec

from benchmarks.door import Door
from benchmarks.http_load import CONNECTIONS, MeasuredHttp, load

EMPTY_ANSWERS_MAX = 2 * CONNECTIONS
# A batch is answered with success, and says of each entry how it went. No message of a load contains these words.
_failure = re.compile(rb'error|"Failed": ?\[\{').search


class Load(NamedTuple):
    """How long each of the three goes on, and over how many connections."""

    seconds: float
    warmup_s: float = 0.0
    connections: int = CONNECTIONS


class Round(msgspec.Struct, frozen=True, kw_only=True):
    sends: MeasuredHttp
    receives: MeasuredHttp
    acknowledgements: MeasuredHttp


class Sending:
    """One request again and again. An answer that names a failure counts for nothing."""

    def __init__(self, door: Door, body: str, count: int) -> None:
        self._request = door.send(body, count)
        self._count = count

    def next(self) -> bytes | None:
        return self._request

    def answered(self, status: int, body: bytes) -> int:
        return self._count if status < 300 and not _failure(body) else 0


class Receiving:
    """Receives until the queue seems empty, and keeps the receipts."""

    def __init__(self, door: Door, count: int) -> None:
        self._door = door
        self._request = door.receive(count)
        self._empty = 0
        self.receipts: list[str] = []

    def next(self) -> bytes | None:
        return None if self._empty > EMPTY_ANSWERS_MAX else self._request

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


def measure_sends(address: str, door: Door, body: str, count: int, how: Load) -> MeasuredHttp:
    script = Sending(door, body, count)
    return load(address, script, seconds=how.seconds, warmup_s=how.warmup_s, connections=how.connections)


def measure_round(address: str, door: Door, body: str, count: int, how: Load) -> Round:
    sends = measure_sends(address, door, body, count, how)
    receiving = Receiving(door, count)
    receives = load(address, receiving, seconds=how.seconds, connections=how.connections)
    acknowledging = Acknowledging(door, receiving.receipts, count)
    acknowledgements = load(address, acknowledging, seconds=how.seconds, connections=how.connections)
    return Round(sends=sends, receives=receives, acknowledgements=acknowledgements)
