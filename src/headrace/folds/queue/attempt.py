"""How often a message was handed out, and the lease that it is under, each packed in one integer.

A million leases at 200 bytes each leave no room for objects. Times take 42 bits (up to the year 2109), a lease's span
26 (twelve hours), attempts 16. Leases that were taken together for the first time are even one and the same integer.

    lease      end on the lease clock 42 | end on the wall clock 42 | span 26 | attempt 16 | first attempt 42
    history    attempts 16 | first attempt 42 | last attempt 42
"""

from typing import NamedTuple

from headrace.folds.queue.instant import Instant
from headrace.model.queue import ATTEMPTS_MAX

_TIME_BITS = 42
_TIME_MASK = (1 << _TIME_BITS) - 1
_SPAN_BITS = 26
_SPAN_MASK = (1 << _SPAN_BITS) - 1
_ATTEMPT_BITS = 16
_ATTEMPT_MASK = (1 << _ATTEMPT_BITS) - 1
_SPAN_SHIFT = _ATTEMPT_BITS + _TIME_BITS
_WALL_SHIFT = _SPAN_SHIFT + _SPAN_BITS
END_SHIFT = _WALL_SHIFT + _TIME_BITS  # above it stands a lease's end


class History(NamedTuple):
    """The attempts at a message so far, by the wall clock."""

    attempts: int
    first_ms: int
    last_ms: int


NO_HISTORY = History(0, 0, 0)


def pack_lease(*, at: Instant, length_ms: int, span_ms: int, attempt: int, first_ms: int) -> int:
    """A lease that ends so long after a moment. Its span is counted from where it was taken, extensions included."""
    end = ((at.lease_ms + length_ms) << _TIME_BITS) | (at.wall_ms + length_ms) & _TIME_MASK
    return (((end << _SPAN_BITS | span_ms) << _ATTEMPT_BITS | attempt) << _TIME_BITS) | first_ms


def end_ms(lease: int) -> int:
    """On the lease clock."""
    return lease >> END_SHIFT


def end_wall_ms(lease: int) -> int:
    return (lease >> _WALL_SHIFT) & _TIME_MASK


def taken_ms(lease: int) -> int:
    """When it was taken, on the lease clock."""
    return end_ms(lease) - ((lease >> _SPAN_SHIFT) & _SPAN_MASK)


def taken_wall_ms(lease: int) -> int:
    """The same by the wall clock, to within what the two clocks differed while it was extended."""
    return end_wall_ms(lease) - ((lease >> _SPAN_SHIFT) & _SPAN_MASK)


def attempt_of(lease: int) -> int:
    return (lease >> _TIME_BITS) & _ATTEMPT_MASK


def first_ms_of(lease: int) -> int:
    return lease & _TIME_MASK


def history_of(lease: int) -> int:
    """What stays to be known of a lease that is over."""
    return pack_history(History(attempt_of(lease), first_ms_of(lease), taken_wall_ms(lease)))


def pack_history(history: History) -> int:
    return ((history.attempts << _TIME_BITS) | history.first_ms) << _TIME_BITS | history.last_ms


def unpack_history(packed: int) -> History:
    return History(packed >> (2 * _TIME_BITS), (packed >> _TIME_BITS) & _TIME_MASK, packed & _TIME_MASK)


def next_attempt(packed: int) -> int:
    """The number of the attempt after this history. It stops where its bits do."""
    return min((packed >> (2 * _TIME_BITS)) + 1, ATTEMPTS_MAX)


def first_ms_in(packed: int) -> int:
    return (packed >> _TIME_BITS) & _TIME_MASK
