"""Time, passed in. Monotonic for every deadline; wall time only for what people and protocols see."""

import asyncio
import time
from collections.abc import Callable
from typing import Protocol


class Timer(Protocol):
    def cancel(self) -> None: ...


class Clock(Protocol):
    def monotonic_ms(self) -> int:
        """Never goes back, goes on while the machine sleeps; its zero means nothing."""

    def monotonic_us(self) -> int:
        """The same in microseconds, for what takes less than a millisecond."""

    def wall_ms(self) -> int:
        """Milliseconds since 1970, as the machine believes. It may jump."""

    def steady_ms(self) -> int:
        """Counts the time that passes, in a node over restarts too. No jump moves it."""

    def trusted_ms(self) -> int:
        """The time of day without the jumps of `wall_ms` that are not believed yet."""

    def call_later(self, delay_ms: float, callback: Callable[[], None]) -> Timer:
        """Call once on the event loop after a delay."""

    async def sleep(self, delay_ms: float) -> None: ...


def past_ms(clock: Clock) -> int:
    """A time of day that has come for certain: what is dropped by age is judged by it."""
    return min(clock.wall_ms(), clock.trusted_ms())


def stamp_ms(clock: Clock) -> int:
    """The latest that it can be: what is written down to be judged by `past_ms` later is never too old."""
    return max(clock.wall_ms(), clock.trusted_ms())


class SystemClock:
    """The machine's clocks and the running event loop's timers."""

    def monotonic_ms(self) -> int:
        # Boot time, unlike CLOCK_MONOTONIC, counts suspension: a lease must not outlive a closed lid.
        return time.clock_gettime_ns(time.CLOCK_BOOTTIME) // 1_000_000

    def monotonic_us(self) -> int:
        return time.clock_gettime_ns(time.CLOCK_BOOTTIME) // 1_000

    def wall_ms(self) -> int:
        return time.time_ns() // 1_000_000

    def steady_ms(self) -> int:
        return self.monotonic_ms()

    def trusted_ms(self) -> int:
        return self.wall_ms()

    def call_later(self, delay_ms: float, callback: Callable[[], None]) -> Timer:
        return asyncio.get_running_loop().call_later(delay_ms / 1000, callback)

    async def sleep(self, delay_ms: float) -> None:
        await asyncio.sleep(delay_ms / 1000)
