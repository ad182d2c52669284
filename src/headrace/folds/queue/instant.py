"""A moment on the two clocks of a queue."""

from typing import NamedTuple


class Instant(NamedTuple):
    """Both clocks at one moment.

    The lease clock runs only while a node leads the partition: it goes on from the largest value in the entries, so the
    time for which nobody led is nobody's lease time (failure row 36). The wall clock is the time of day, for what users
    say in it: delays, time to live, deduplication windows.
    """

    lease_ms: int
    wall_ms: int


BEGINNING = Instant(0, 0)
