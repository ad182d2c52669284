"""How late the event loop is: the one number that shows a blocking call, whoever made it (failure row 24)."""

import logging

from headrace.host.clock import Clock

_logger = logging.getLogger(__name__)

_INTERVAL_MS = 100
_ALARM_MS = 250
_QUIET_MS = 10_000  # between two alarms


class LoopLag:
    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self.last_ms = 0
        self.max_ms = 0
        self.alarms = 0

    async def watch(self) -> None:
        alarmed_ms = self._clock.monotonic_ms() - _QUIET_MS
        while True:
            before_ms = self._clock.monotonic_ms()
            await self._clock.sleep(_INTERVAL_MS)
            now_ms = self._clock.monotonic_ms()
            self.last_ms = max(now_ms - before_ms - _INTERVAL_MS, 0)
            self.max_ms = max(self.max_ms, self.last_ms)
            if self.last_ms >= _ALARM_MS:
                self.alarms += 1
                if now_ms - alarmed_ms >= _QUIET_MS:
                    alarmed_ms = now_ms
                    _logger.warning("the event loop was blocked", extra={"lag_ms": self.last_ms})
