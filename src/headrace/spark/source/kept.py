"""What a worker process keeps from task to task: connections to the leaders, and how large messages are.

Spark forks its workers from one process and uses them again, so nothing here is made before a task asks for it, and
nothing is taken over a fork: the thread that runs the loop would not be there.
"""

import gc
import os
from collections.abc import Iterable, Mapping
from concurrent.futures import Future

import msgspec

from headrace.client.portal import BackgroundLoop
from headrace.client.raw_fetch import Position, RawFetched, RawFetcher
from headrace.client.router import ClientConfig, Router
from headrace.client.values import TopicPartition
from headrace.host.clock import Clock, SystemClock
from headrace.host.rand import SystemRand
from headrace.host.transport import TcpTransport
from headrace.model.address import parse_address
from headrace.model.batch import read_prefix
from headrace.model.errors import UnknownTopicError

_UNKNOWN_BYTES = 1 << 30
_FETCH_BYTES_MIN = 256 * 1024
_FETCH_MARGIN = 1.1


class Kept:
    """Of one cluster."""

    def __init__(self, servers: str, config: ClientConfig) -> None:
        self.clock: Clock = SystemClock()
        self._loop = BackgroundLoop(name="headrace-source")
        self._router = Router(
            [parse_address(server) for server in servers.split(",")],
            config,
            clock=self.clock,
            rand=SystemRand(),
            transport=TcpTransport(),
        )
        self._fetcher = RawFetcher(self._router)
        self._offset_bytes: dict[str, float] = {}  # of one offset, in each topic

    def fetch(
        self, positions: Mapping[TopicPartition, Position], *, committed: bool, wait_ms: int, bytes_max: int
    ) -> Future[list[RawFetched]]:
        """Have bytes fetched, and go on."""
        return self._loop.start(
            self._fetcher.fetch(positions, committed=committed, wait_ms=wait_ms, bytes_max=bytes_max)
        )

    def missing(self, topics: Iterable[str]) -> set[str]:
        """Those that there are not, or not any more."""
        return {topic for topic in topics if not self._loop.run(self._is_there(topic))}

    async def _is_there(self, topic: str) -> bool:
        deadline = self._router.deadline()
        try:
            await self._router.retrying((topic,), lambda: self._router.refresh((topic,), deadline), deadline)
        except UnknownTopicError:
            return False
        return True

    def learn(self, fetched: RawFetched) -> None:
        base_offset, _ = read_prefix(fetched.records, 0)
        self._offset_bytes[fetched.at.topic] = len(fetched.records) / max(1, fetched.next_offset - base_offset)

    def bytes_for(self, topic: str, count: int) -> int:
        """What to ask for, to get so many offsets: not much more, as what is behind them would be thrown away."""
        expected = self._offset_bytes.get(topic)
        return _UNKNOWN_BYTES if expected is None else int(count * expected * _FETCH_MARGIN) + _FETCH_BYTES_MIN


_kept: dict[tuple[int, str, bytes], Kept] = {}


def kept(servers: str, config: ClientConfig) -> Kept:
    """This process's, made by the first task that wants it."""
    key = (os.getpid(), servers, msgspec.json.encode(config))
    found = _kept.get(key)
    if found is None:
        # What was imported stays, and is much: a collection that looks at it takes as long as thousands of rows.
        gc.freeze()
        found = _kept[key] = Kept(servers, config)
    return found
