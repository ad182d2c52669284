"""Until when a call may try."""

from headrace.host.clock import Clock


class Deadline:
    """A moment on the monotonic clock."""

    def __init__(self, clock: Clock, timeout_ms: float) -> None:
        self._clock = clock
        self._at_ms = clock.monotonic_ms() + int(timeout_ms)

    @property
    def left_ms(self) -> int:
        """Never below 1, so that it can always be given as a timeout."""
        return max(1, self._at_ms - self._clock.monotonic_ms())

    @property
    def is_past(self) -> bool:
        return self._clock.monotonic_ms() >= self._at_ms
