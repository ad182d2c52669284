"""Work that has time, spread over it, unless somebody waits for its end."""

import asyncio

from headrace.host.clock import Clock

# Shorter pauses are saved up: a timer has its price.
_PAUSE_MS_MIN = 2.0


class Pace:
    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._woken = asyncio.Event()
        self._hurries = self._ended = False
        self._owed_ms = 0.0

    def hurry(self) -> None:
        """End the pauses, the one under way and all to come, until `relax`."""
        self._hurries = True
        self._woken.set()

    def relax(self) -> None:
        self._hurries = self._ended

    def end(self) -> None:
        """End the pauses for good."""
        self._ended = True
        self.hurry()

    async def pause(self, delay_ms: float) -> None:
        self._owed_ms += delay_ms
        if self._hurries or self._owed_ms < _PAUSE_MS_MIN:
            return
        owed_ms, self._owed_ms = self._owed_ms, 0.0
        self._woken.clear()
        timer = self._clock.call_later(owed_ms, self._woken.set)
        try:
            await self._woken.wait()
        finally:
            timer.cancel()
