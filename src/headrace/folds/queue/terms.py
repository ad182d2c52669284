"""Whose entries stand in the log since when: the epochs of a partition's leaders.

A lease that is written behind its hand-out is forgotten if its leader dies first, and the message is leased again under
the same number. What tells the two receipts apart is the epoch; so it must be known of a lease in which one it was
taken. That follows from when it was taken, since no clock here goes back: after the moment at which a leader's entries
begin, or up to it. What a leader hands out in that very millisecond counts as taken one later.
"""

from bisect import bisect_left
from collections.abc import Iterable
from typing import NamedTuple

from headrace.folds.queue.instant import Instant

_TERMS_MAX = 1000  # what was leased before the oldest of them counts as taken in any


class Term(NamedTuple):
    lease_ms: int  # after which its leases were taken, on the lease clock
    wall_ms: int
    epoch: int


class Terms:
    def __init__(self) -> None:
        self._terms: list[Term] = []

    def note(self, epoch: int, at: Instant) -> None:
        """An entry was written in an epoch."""
        terms = self._terms
        if terms and terms[-1].epoch == epoch:
            return
        if terms:
            last = terms[-1]
            terms.append(Term(max(at.lease_ms, last.lease_ms + 1), max(at.wall_ms, last.wall_ms + 1), epoch))
            del terms[:-_TERMS_MAX]
        else:  # nothing was leased before
            terms.append(Term(at.lease_ms - 1, at.wall_ms - 1, epoch))

    def taken_ms(self, at: Instant) -> int:
        """As of when a lease counts that is taken at a moment of the last term."""
        return max(at.lease_ms, self._terms[-1].lease_ms + 1)

    def lease_ms_of(self, wall_ms: int, at: Instant) -> int:
        """What the lease clock showed when a lease was taken, as far as the wall clock tells at a later moment.

        The wall clock goes on while no node runs, and the lease clock does not. So it is a moment of the right term,
        and as many milliseconds ago as both clocks allow.
        """
        terms = self._terms
        index = bisect_left(terms, wall_ms, key=lambda term: term.wall_ms)
        earliest_ms = terms[index - 1].lease_ms + 1 if index else 0
        latest_ms = min(terms[index].lease_ms, at.lease_ms) if index < len(terms) else at.lease_ms
        return min(max(at.lease_ms - (at.wall_ms - wall_ms), earliest_ms), latest_ms)

    def at_lease_ms(self, lease_ms: int) -> int | None:
        """The epoch in which a lease was taken at a moment of the lease clock; None: not known any more."""
        index = bisect_left(self._terms, lease_ms, key=lambda term: term.lease_ms)
        return self._terms[index - 1].epoch if index else None

    def at_wall_ms(self, wall_ms: int) -> int | None:
        """The same by the wall clock, of leases that are over. Nor is it known of the millisecond in between."""
        terms = self._terms
        index = bisect_left(terms, wall_ms, key=lambda term: term.wall_ms)
        if not index or (index < len(terms) and terms[index].wall_ms == wall_ms):
            return None
        return terms[index - 1].epoch

    def dump(self) -> list[Term]:
        return list(self._terms)

    def load(self, terms: Iterable[Term]) -> None:
        self._terms = list(terms)
