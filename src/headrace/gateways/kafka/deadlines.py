"""Time-outs of requests in flight, without a timer for each.

A timer of the event loop costs more than parsing the request that it guards. Requests with the same time-out fall due
in the order in which they came, so each time-out has one queue and one timer for its head; what is done by then, nearly
all, is dropped from the head as others are added.
"""

from collections import deque
from typing import Protocol

from headrace.host.clock import Clock


class Timed(Protocol):
    """Something that is done at some time, or else told that its time is over."""

    @property
    def done(self) -> bool: ...

    def time_out(self, timeout_ms: int) -> None: ...


class Deadlines:
    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        # Each with the time at which it falls due.
        self._queues: dict[int, deque[tuple[int, Timed]]] = {}

    def add(self, timeout_ms: int, timed: Timed) -> None:
        """Call `time_out` after so long, unless it is done by then."""
        queue = self._queues.get(timeout_ms)
        if queue is None:
            queue = self._queues[timeout_ms] = deque()
            self._clock.call_later(timeout_ms, lambda: self._expire(timeout_ms))
        while queue and queue[0][1].done:
            queue.popleft()
        queue.append((self._clock.monotonic_ms() + timeout_ms, timed))

    def _expire(self, timeout_ms: int) -> None:
        queue = self._queues[timeout_ms]
        now_ms = self._clock.monotonic_ms()
        while queue and (queue[0][1].done or queue[0][0] <= now_ms):
            _, timed = queue.popleft()
            if not timed.done:
                timed.time_out(timeout_ms)
        if queue:
            self._clock.call_later(max(queue[0][0] - now_ms, 1), lambda: self._expire(timeout_ms))
        else:
            del self._queues[timeout_ms]
