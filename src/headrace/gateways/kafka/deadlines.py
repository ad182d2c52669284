"""Time-outs of requests in flight, without a timer for each.

A timer of the event loop costs more than parsing the request that it guards. Requests with the same time-out fall due
in the order in which they came, so each time-out has one queue and one timer for its head; what is done by then, nearly
all, is dropped from the head as others are added.

A process that was stopped for a while (SIGSTOP, a machine that was suspended) wakes with every deadline past. What its
requests wait for is often a moment away: so they get a grace, and only then are told REQUEST_TIMED_OUT. That answer has
a price even where the records are stored. librdkafka takes the success of a later request for that of the earlier one
too, which it then reports as delivered without an offset.
"""

from collections import deque
from typing import Protocol

from headrace.host.clock import Clock

# A timer that is so late says that the process did not run, or was busy.
_STALL_MS = 20
_GRACE_MS = 2000


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
            self._set_timer(timeout_ms, self._clock.monotonic_ms() + timeout_ms)
        while queue and queue[0][1].done:
            queue.popleft()
        queue.append((self._clock.monotonic_ms() + timeout_ms, timed))

    def _set_timer(self, timeout_ms: int, due_ms: int) -> None:
        delay_ms = max(due_ms - self._clock.monotonic_ms(), 1)
        self._clock.call_later(delay_ms, lambda: self._wake(timeout_ms, due_ms))

    def _wake(self, timeout_ms: int, due_ms: int) -> None:
        now_ms = self._clock.monotonic_ms()
        if now_ms - due_ms < _STALL_MS:
            self._expire(timeout_ms, upto_ms=now_ms)
        else:
            self._clock.call_later(_GRACE_MS, lambda: self._expire(timeout_ms, upto_ms=now_ms))

    def _expire(self, timeout_ms: int, *, upto_ms: int) -> None:
        """Time out what was due by then. What came later has a wait of its own."""
        queue = self._queues[timeout_ms]
        while queue and (queue[0][1].done or queue[0][0] <= upto_ms):
            _, timed = queue.popleft()
            if not timed.done:
                timed.time_out(timeout_ms)
        if queue:
            self._set_timer(timeout_ms, queue[0][0])
        else:
            del self._queues[timeout_ms]
