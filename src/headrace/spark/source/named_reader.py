"""A queue's named reader, held by a stream: nothing that the stream has not read is cleaned away.

It is registered before the stream looks at any offset, and moved to where the stream goes on each time that Spark asks
for more: by then everything below is in Spark's checkpoint. A move is an entry in the queue's log, so there is at most
one in a while. A stream that ends leaves its reader where it is, and goes on from there when it is started again;
`headrace queue readers` shows readers and removes those that nobody needs any more.
"""

from collections.abc import Mapping

from headrace.client.queue.sync import Client
from headrace.host.clock import Clock, SystemClock

MOVE_INTERVAL_MS = 1_000


class NamedReader:
    def __init__(self, http: str, queue: str, name: str, *, clock: Clock | None = None) -> None:
        self._queue = Client(http).queue(queue)
        self._name = name
        self._clock = clock or SystemClock()
        self._moved_ms: int | None = None
        self._positions: Mapping[int, int] = self._queue.move_reader(name, {}).positions

    def move(self, positions: Mapping[int, int]) -> None:
        """Let go of what is below; by partition."""
        ahead = {at: offset for at, offset in positions.items() if offset > self._positions.get(at, -1)}
        now_ms = self._clock.monotonic_ms()
        if not ahead or (self._moved_ms is not None and now_ms - self._moved_ms < MOVE_INTERVAL_MS):
            return
        self._positions = self._queue.move_reader(self._name, ahead).positions
        self._moved_ms = now_ms
