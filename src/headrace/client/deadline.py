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


class Patience:
    """Deadlines of calls that wait behind others of their client.

    While the node answers, a call that waits for its turn loses no time by that. When it does not, those that wait
    behind are not tried one after the other, each for a deadline of its own: theirs counts from the last answer, or
    from their beginning if that came later.
    """

    def __init__(self, clock: Clock, timeout_ms: float) -> None:
        self._clock = clock
        self._timeout_ms = timeout_ms
        self._answered_ms = clock.monotonic_ms()

    def answered(self) -> None:
        self._answered_ms = self._clock.monotonic_ms()

    def deadline(self, begun_ms: int) -> Deadline:
        """Of a call that began at a moment and has its turn now."""
        waited_ms = self._clock.monotonic_ms() - max(begun_ms, self._answered_ms)
        return Deadline(self._clock, self._timeout_ms - waited_ms)
