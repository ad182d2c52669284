"""Which segments of a log the cleaner works on. No other maintenance touches them until it has let go of them.

Retention that needs one of them says so; the cleaner then gives its work up at the next slice, and retention takes the
segment in its next round. So a rewrite never outlives the segments that it is made from.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Protocol

from headrace.log.segment import Segment


class Claim:
    """Segments under work."""

    __slots__ = ("_segments", "is_wanted")

    def __init__(self, segments: Sequence[Segment]) -> None:
        self._segments = frozenset(segments)
        self.is_wanted = False  # other maintenance waits for one of them

    def __contains__(self, segment: Segment) -> bool:
        return segment in self._segments


class _Log(Protocol):
    claim: Claim | None


@contextmanager
def claimed(log: _Log, segments: Sequence[Segment]) -> Iterator[None]:
    """Hold a claim on segments of a log while the block runs."""
    assert log.claim is None, "two kinds of maintenance work on one log"
    log.claim = Claim(segments)
    try:
        yield
    finally:
        log.claim = None


def is_wanted(log: _Log) -> bool:
    """Whether the work on a log's claimed segments should be given up."""
    return log.claim is not None and log.claim.is_wanted


def unclaimed(log: _Log, segments: Sequence[Segment]) -> int:
    """Return how many of these segments come before the first claimed one, and ask the cleaner for that one."""
    claim = log.claim
    if claim is None:
        return len(segments)
    for at, segment in enumerate(segments):
        if segment in claim:
            claim.is_wanted = True
            return at
    return len(segments)
