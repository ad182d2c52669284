"""What people ask of a queue: where a message is, what blocks a key, what is there. Nothing here decides anything.

As far as time has passed: whoever asks lets it pass first. If the state is behind nevertheless, time passes here for
the messages that are asked about; a list of those in one state may have some that are in it no longer.
"""

from collections.abc import Iterable, Iterator
from enum import Enum
from heapq import merge
from itertools import islice
from typing import NamedTuple

from headrace.folds.queue import attempt as packed
from headrace.folds.queue.fold import QueueFold

OVERDUE_REASON = "its time to live is over"


class State(Enum):
    DELAYED = "delayed"
    VISIBLE = "visible"
    LEASED = "leased"
    BLOCKED = "blocked"  # ordered: an earlier message of its key is not done
    DYING = "dying"  # on its way to the dead-letter queue, or its time to live is over


class Facts(NamedTuple):
    """All that is known of a live message. Times are of the wall clock."""

    offset: int
    state: State
    priority: int
    attempts: int  # the present one included
    first_ms: int | None  # its first attempt
    last_ms: int | None  # its last one, or the present one
    since_ms: int | None  # of its state, where that is known
    until_ms: int | None  # leased: the lease's end; delayed: when it is due
    expires_ms: int | None
    reason: str  # dying: why; empty: its attempts are used up
    error: str  # dying: what its last attempt failed with, where that is known


class KeyFacts(NamedTuple):
    """Why a key stands where it does: its first live message, and how many wait behind it."""

    front: Facts
    waiting_count: int


def state_of(fold: QueueFold, offset: int) -> State | None:
    """None for a message that is done, or never was."""
    if offset not in fold.live:
        return None
    if fold.is_behind:
        fold.settle((offset,))
    if offset in fold.leases or offset in fold.held:
        return State.LEASED
    if offset in fold.delayed or offset in fold.undecided:
        return State.DELAYED
    if offset in fold.dying_reasons or offset in fold.overdue:
        return State.DYING
    return State.VISIBLE if fold.shelf.is_visible(offset) else State.BLOCKED


def facts(fold: QueueFold, offset: int) -> Facts | None:
    state = state_of(fold, offset)
    if state is None:
        return None
    history = fold.history(offset)
    since_ms = until_ms = None
    if (lease := fold.leases.get(offset)) is not None:
        since_ms, until_ms = packed.taken_wall_ms(lease), packed.end_wall_ms(lease)
    elif offset in fold.delayed:
        until_ms = fold.due_ms(offset)
    return Facts(
        offset=offset,
        state=state,
        priority=fold.shelf.priority_of(offset),
        attempts=history.attempts,
        first_ms=history.first_ms if history.attempts else None,
        last_ms=history.last_ms if history.attempts else None,
        since_ms=since_ms,
        until_ms=until_ms,
        expires_ms=fold.expires_ms(offset),
        reason=OVERDUE_REASON if offset in fold.overdue else fold.dying_reasons.get(offset, ""),
        error=fold.errors.get(offset, ""),
    )


def blocker(fold: QueueFold, offset: int) -> int | None:
    """The message behind which a blocked one waits. Found by a search, so it is for whoever asks about one message."""
    return fold.shelf.blocker(offset)


def key_facts(fold: QueueFold, key: bytes) -> KeyFacts | None:
    """None where no live message has this key, or the queue is neither ordered nor fair and does not know it."""
    offsets = fold.shelf.lane(key)
    if not offsets:
        return None
    front = facts(fold, offsets[0])
    assert front is not None
    return KeyFacts(front, len(offsets) - 1)


def iterate(fold: QueueFold, *, after: int, state: State | None, count_max: int) -> list[int]:
    """Live offsets above `after` in order, of one state or of any."""
    return list(islice(_offsets(fold, after + 1, state), count_max))


def _offsets(fold: QueueFold, start: int, state: State | None) -> Iterator[int]:
    match state:
        case None:
            return fold.live.iter_equal_or_larger(start)
        case State.LEASED:
            return merge(_sorted_from(start, fold.leases.values), _sorted_from(start, fold.held))
        case State.DELAYED:
            return merge(fold.delayed.iter_equal_or_larger(start), fold.undecided.iter_equal_or_larger(start))
        case State.DYING:
            return merge(_sorted_from(start, fold.dying_reasons), fold.overdue.iter_equal_or_larger(start))
        case State.VISIBLE:
            return merge(*(visible.iter_equal_or_larger(start) for _, visible in fold.shelf.visible_sets()))
        case State.BLOCKED:
            if not fold.config.ordered:
                return iter(())
            # Of sets, because a look at each message in turn would hold up everybody else.
            blocked = fold.ready_offsets()
            for _, visible in fold.shelf.visible_sets():
                blocked -= visible
            return blocked.iter_equal_or_larger(start)


def _sorted_from(start: int, offsets: Iterable[int]) -> Iterator[int]:
    return iter(sorted(offset for offset in offsets if offset >= start))
