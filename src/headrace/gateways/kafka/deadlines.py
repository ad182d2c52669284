"""Time-outs of requests in flight, without a timer for each.

A timer of the event loop costs more than parsing the request that it guards. Requests with the same time-out fall due
in the order in which they came, so each time-out has one queue and one timer for its head; what is done by then, nearly
all, is dropped from the head as others are added.
"""

from collections import deque
from collections.abc import Callable

from headrace.host.clock import Clock


class Deadline:
    __slots__ = ("callback", "due_ms")

    def __init__(self, due_ms: int, callback: Callable[[], None]) -> None:
        self.due_ms = due_ms
        self.callback: Callable[[], None] | None = callback

    def cancel(self) -> None:
        self.callback = None


class Deadlines:
    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._queues: dict[int, deque[Deadline]] = {}

    def add(self, timeout_ms: int, callback: Callable[[], None]) -> Deadline:
        """Call after the time-out, unless cancelled."""
        deadline = Deadline(self._clock.monotonic_ms() + timeout_ms, callback)
        queue = self._queues.get(timeout_ms)
        if queue is None:
            queue = self._queues[timeout_ms] = deque()
            self._clock.call_later(timeout_ms, lambda: self._expire(timeout_ms))
        while queue and queue[0].callback is None:
            queue.popleft()
        queue.append(deadline)
        return deadline

    def _expire(self, timeout_ms: int) -> None:
        queue = self._queues[timeout_ms]
        now_ms = self._clock.monotonic_ms()
        while queue and (queue[0].callback is None or queue[0].due_ms <= now_ms):
            callback = queue.popleft().callback
            if callback is not None:
                callback()
        if queue:
            self._clock.call_later(max(queue[0].due_ms - now_ms, 1), lambda: self._expire(timeout_ms))
        else:
            del self._queues[timeout_ms]
