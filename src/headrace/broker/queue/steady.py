"""The two clocks of a queue's fold, which no jump of the wall clock disturbs (failure row 36).

`wall_ms` is the trusted time of day as of the node's start (`host/node_clock.py`), carried on by monotonic time: what
is due in an hour is due in an hour, whatever becomes of the machine's clock. Where the log has a later time than the
machine, because its clock was ahead and was set back before the node's start, a partition's time of day goes on from
there. Else all that is to come by then had come already, and nothing would come any more until the machine's clock is
there too.

`lease_ms` runs on from the last value in the log, so that what a lease has written down is its remaining time, not its
end: this clock stands still while nobody leads the partition.
"""

from headrace.folds.queue.instant import Instant
from headrace.host.clock import Clock


class SteadyClock:
    """The steady time of day, one for a node."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._shift_ms = clock.trusted_ms() - clock.monotonic_ms()

    def wall_ms(self) -> int:
        return self._clock.monotonic_ms() + self._shift_ms


class FoldClock:
    """Both clocks of one fold, which go on from the last moment that it knows."""

    def __init__(self, steady: SteadyClock, last: Instant) -> None:
        self._wall_ms = steady.wall_ms
        self._ahead_ms = max(last.wall_ms - steady.wall_ms(), 0)
        self._lag_ms = steady.wall_ms() + self._ahead_ms - last.lease_ms

    def now(self) -> Instant:
        wall_ms = self._wall_ms() + self._ahead_ms
        return Instant(wall_ms - self._lag_ms, wall_ms)
