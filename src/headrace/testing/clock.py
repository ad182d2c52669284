"""Time that passes when the test says so."""

import asyncio
import heapq
from collections.abc import Callable
from itertools import count

# Turns of the event loop given to the tasks that a timer woke, before time goes on. A chain of awaits longer than this
# within one instant would see a later time than it should.
_SETTLE_TURNS = 20


class SimulatedTimer:
    """One pending call."""

    __slots__ = ("callback", "cancelled")

    def __init__(self, callback: Callable[[], None]) -> None:
        self.callback = callback
        self.cancelled = False

    def cancel(self) -> None:
        self.cancelled = True


class SimulatedClock:
    """A `headrace.host.clock.Clock`. Time moves by `advance` and `elapse` only; wall time also by `jump_wall`."""

    def __init__(self, *, monotonic_ms: int = 0, wall_ms: int = 1_700_000_000_000) -> None:
        self._now_ms: float = monotonic_ms
        self._wall_offset_ms = self._trusted_offset_ms = self._steady_offset_ms = wall_ms - monotonic_ms
        self._timers: list[tuple[float, int, SimulatedTimer]] = []
        self._order = count()

    def monotonic_ms(self) -> int:
        return int(self._now_ms)

    def monotonic_us(self) -> int:
        return int(self._now_ms * 1000)

    def wall_ms(self) -> int:
        return int(self._now_ms) + self._wall_offset_ms

    def steady_ms(self) -> int:
        return int(self._now_ms) + self._steady_offset_ms

    def trusted_ms(self) -> int:
        return int(self._now_ms) + self._trusted_offset_ms

    def call_later(self, delay_ms: float, callback: Callable[[], None]) -> SimulatedTimer:
        timer = SimulatedTimer(callback)
        heapq.heappush(self._timers, (self._now_ms + max(delay_ms, 0), next(self._order), timer))
        return timer

    async def sleep(self, delay_ms: float) -> None:
        woken = asyncio.Event()
        timer = self.call_later(delay_ms, woken.set)
        try:
            await woken.wait()
        finally:
            timer.cancel()

    def jump_wall(self, delta_ms: int, *, is_believed: bool = True) -> None:
        """Set the wall clock forward or back, as an operator or a time daemon does. No timer notices."""
        self._wall_offset_ms += delta_ms
        if is_believed:
            self._trusted_offset_ms = self._wall_offset_ms

    def next_timer_ms(self) -> int | None:
        """When the next timer is due, in monotonic time."""
        self._drop_cancelled()
        return int(self._timers[0][0]) if self._timers else None

    def advance(self, delta_ms: float) -> None:
        """Let time pass and call what falls due, in order, each at its own instant."""
        until_ms = self._now_ms + delta_ms
        while self._fire_next(until_ms):
            pass
        # A callback may itself have advanced the clock beyond this point.
        self._now_ms = max(self._now_ms, until_ms)

    async def elapse(self, delta_ms: float) -> None:
        """Like `advance`, and whatever task a timer wakes runs on before time passes further."""
        until_ms = self._now_ms + delta_ms
        await settle()
        while self._fire_next(until_ms):
            await settle()
        self._now_ms = max(self._now_ms, until_ms)
        await settle()

    def _fire_next(self, until_ms: float) -> bool:
        self._drop_cancelled()
        if not self._timers or self._timers[0][0] > until_ms:
            return False
        due_ms, _, timer = heapq.heappop(self._timers)
        self._now_ms = max(self._now_ms, due_ms)
        timer.callback()
        return True

    def _drop_cancelled(self) -> None:
        while self._timers and self._timers[0][2].cancelled:
            heapq.heappop(self._timers)


async def settle() -> None:
    """Let the tasks that can run now do so."""
    for _ in range(_SETTLE_TURNS):
        await asyncio.sleep(0)
