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

    def call_later(self, delay_ms: float, callback: Callable[[], None]) -> Timer:
        """Call once on the event loop after a delay."""

    async def sleep(self, delay_ms: float) -> None: ...


class SystemClock:
    """The machine's clocks and the running event loop's timers."""

    def monotonic_ms(self) -> int:
        # Boot time, unlike CLOCK_MONOTONIC, counts suspension: a lease must not outlive a closed lid.
        return time.clock_gettime_ns(time.CLOCK_BOOTTIME) // 1_000_000

    def monotonic_us(self) -> int:
        return time.clock_gettime_ns(time.CLOCK_BOOTTIME) // 1_000

    def wall_ms(self) -> int:
        return time.time_ns() // 1_000_000

    def call_later(self, delay_ms: float, callback: Callable[[], None]) -> Timer:
        return asyncio.get_running_loop().call_later(delay_ms / 1000, callback)

    async def sleep(self, delay_ms: float) -> None:
        await asyncio.sleep(delay_ms / 1000)
