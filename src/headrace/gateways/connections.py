"""The connections of one listener: their deadlines while it serves, and their end when it stops.

Deadlines are looked at once every `sweep_ms` for all connections, against a clock that is read once a sweep. A timer
for each request would cost more than the parsing of it.
"""

import asyncio
from collections.abc import Callable
from typing import Protocol

from headrace.broker.under_way import UnderWay
from headrace.host.clock import Clock, Timer


class Connection(Protocol):
    def check_deadlines(self, now_ms: int) -> None: ...

    def drain(self) -> None: ...

    def abort(self) -> None: ...


class Connections:
    """What the connections of every gateway share.

    A gateway adds and removes them by its own rules, and calls `on_empty` when the last has gone.
    """

    def __init__(self, *, clock: Clock, sweep_ms: int) -> None:
        self.clock = clock
        self.connections: set[Connection] = set()
        self.under_way = UnderWay()
        # The time of the last sweep: late by sweep_ms at most, and free to read.
        self.now_ms = clock.monotonic_ms()
        self.on_empty: Callable[[], None] | None = None
        self._sweep_ms = sweep_ms
        self._timer: Timer | None = None

    def start_sweeping(self) -> None:
        self.now_ms = self.clock.monotonic_ms()
        self._timer = self.clock.call_later(self._sweep_ms, self._sweep)

    def stop_sweeping(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _sweep(self) -> None:
        self.start_sweeping()
        for connection in list(self.connections):
            connection.check_deadlines(self.now_ms)

    async def drain(self, *, deadline_ms: int, on_cut: Callable[[int, int], None]) -> None:
        """Answer what is in flight, then close. What is left at the deadline is cut, and told.

        `on_cut` hears how many connections, and how many requests, also of clients that have left.
        """
        empty = asyncio.Event()
        self.on_empty = empty.set
        for connection in list(self.connections):
            connection.drain()
        timer = self.clock.call_later(deadline_ms, lambda: self._cut(on_cut))
        if self.connections:
            await empty.wait()
        await self.under_way.finished()
        timer.cancel()
        self.stop_sweeping()

    def _cut(self, on_cut: Callable[[int, int], None]) -> None:
        connections = list(self.connections)
        on_cut(len(connections), self.under_way.count)
        for connection in connections:
            connection.abort()
        self.under_way.cancel()
