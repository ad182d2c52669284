"""What to clean. Pure.

Theory of operation. One message that is delayed for a month, or that nobody acknowledges, must not keep a month of log.
So closed segments in which most is dead are rewritten with only what is live; offsets stay, gaps are left, and every
reader takes an offset in a gap for the next batch. The log does not know what a live message is: it asks a `Retainer`.

    decide     here, on the event loop: neighbours that are worth it, oldest first, all of them below
                   the retainer's limit, the recovery segment, and the durable snapshots of every fold,
               since a restart is a snapshot and the entries after it
    rewrite    `rewrite.py`, in a thread, slice by slice: the live messages into a new file under a new name, synced
    list       `cleaned.py`: the list of cleaned segments is replaced. This is the moment at which the old segments are
               no longer part of the log, for this process and for the next; before it the new file is nothing
    discard    the old files go

A crash leaves either the old ones or the new one in the log, and `listing.py` moves the rest away at the next start.
"""

from collections.abc import Sequence
from typing import NamedTuple

from headrace.log.config import LogConfig
from headrace.log.partition_log import PartitionLog
from headrace.log.segment import Segment
from headrace.model.ids import Offset


class CleanFacts(NamedTuple):
    """What the choice looks at, of one closed segment."""

    size: int
    live_bytes: int  # an estimate, by the count of messages


def choose(facts: Sequence[CleanFacts], config: LogConfig, *, segment_bytes_max: int) -> range | None:
    """The oldest neighbours that should become one cleaned segment, or None.

    That is one which is worth it, or two small ones, and with them as many neighbours as are worth it too or are no
    larger than what they join: so nothing is written again more often than its size can double, and what is left of
    a long log is few files.
    """
    for at, fact in enumerate(facts):
        pair = facts[at : at + 2]
        if _is_worth_it(fact, config):
            return _widen(facts, at, at + 1, config, segment_bytes_max)
        pair_bytes = sum(one.live_bytes for one in pair)
        if len(pair) == 2 and pair_bytes <= min(config.clean_merge_bytes, segment_bytes_max):
            return _widen(facts, at, at + 2, config, segment_bytes_max)
    return None


def _is_worth_it(fact: CleanFacts, config: LogConfig) -> bool:
    return fact.live_bytes * 2 < fact.size and fact.size - fact.live_bytes >= config.clean_gain_bytes_min


def _widen(facts: Sequence[CleanFacts], start: int, end: int, config: LogConfig, bytes_max: int) -> range:
    total = sum(fact.live_bytes for fact in facts[start:end])

    def joins(fact: CleanFacts) -> bool:
        is_small = fact.live_bytes <= max(config.clean_merge_bytes, total)
        return total + fact.live_bytes <= bytes_max and (is_small or _is_worth_it(fact, config))

    while end < len(facts) and joins(facts[end]):
        total += facts[end].live_bytes
        end += 1
    while start and joins(facts[start - 1]):
        start -= 1
        total += facts[start].live_bytes
    return range(start, end)


def choose_segments(log: PartitionLog, config: LogConfig, *, below: Offset) -> list[Segment]:
    """The neighbours to be cleaned next, none of which reaches above an offset. Empty: there is nothing to do."""
    retainer = log.retainer
    if retainer is None:
        return []
    limit = min(below, retainer.limit(), log.recovery_base, log.durable_offset, log.open_limit())
    closed = [segment for segment in log.segments[:-1] if segment.next_offset <= limit]
    facts = [CleanFacts(segment.size, live_bytes(log, segment, limit)) for segment in closed]
    chosen = choose(facts, config, segment_bytes_max=log.config.segment_bytes_max)
    return [closed[at] for at in chosen] if chosen else []


def live_bytes(log: PartitionLog, segment: Segment, limit: Offset) -> int:
    """About how many bytes of a segment are live. Everything from the limit on is."""
    assert log.retainer is not None
    start, end = segment.base_offset, min(segment.next_offset, limit)
    count = segment.next_offset - start
    live = log.retainer.live_count(start, end) + segment.next_offset - end if end > start else count
    if segment.cleaned is not None and segment.size == segment.gap_bytes:
        # What is in it was live when it was written. If nothing was, it holds what had to stay all the same.
        count = segment.cleaned.live_count or live or 1
        live = live if segment.cleaned.live_count else count
    return segment.size * min(live, count) // max(count, 1)


def needs_roll_to_clean(log: PartitionLog, config: LogConfig) -> bool:
    """Whether so much of the active segment is dead that it should be closed and cleaned."""
    active = log.active
    if log.retainer is None or active.size < config.clean_active_bytes:
        return False
    return live_bytes(log, active, log.retainer.limit()) * 2 < active.size
