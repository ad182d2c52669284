"""Numbers of one scope as they come: the rules of `audit_number`, for one who sees each row once. Pure.

A gap is no loss yet: what is missing may come late. It is one when nobody has filled it for a stated time. So three
things are remembered of a scope: the lowest and the highest number that were seen, and the gaps between them. A number
at or below the highest is late if it fills a gap, and doubled if not.

At most `GAPS_MAX` gaps are remembered. The oldest is given up as lost when there is one more.
"""

from dataclasses import dataclass, field
from typing import NamedTuple

from headrace.spark.pipeline.audit_number import DOUBLED, LOST, OUT_OF_ORDER

GAPS_MAX = 1000


class Gap(NamedTuple):
    """Numbers that have not come, since when, and before which place that was noticed."""

    first: int
    last: int
    since_ms: int
    partition: int
    offset: int


class Seen(NamedTuple):
    """A row: the numbers from first to last, at a place."""

    partition: int
    offset: int
    end_offset: int
    first: int
    last: int
    is_gapless: bool = True
    wraps_at: int | None = None  # the numbers begin again at 0 before this one


class Fault(NamedTuple):
    fault: str
    partition: int
    offset: int
    end_offset: int
    amount: int  # of numbers
    detail: str


@dataclass(slots=True)
class Follower:
    lowest: int | None = None
    highest: int | None = None
    gaps: list[Gap] = field(default_factory=list)  # in the order in which they were noticed

    def see(self, row: Seen, *, now_ms: int) -> list[Fault]:
        if self.highest is None or self.lowest is None:
            self.lowest, self.highest = row.first, row.last
            return []
        row = _unwrapped(row, self.highest)
        faults: list[Fault] = []
        if row.first <= self.highest:
            faults += self._judge(row, self.lowest, self.highest)
        elif row.first > self.highest + 1 and row.is_gapless:
            self.gaps.append(Gap(self.highest + 1, row.first - 1, now_ms, row.partition, row.offset))
            if len(self.gaps) > GAPS_MAX:
                faults.append(_lost(self.gaps.pop(0)))
        self.lowest, self.highest = min(self.lowest, row.first), max(self.highest, row.last)
        return faults

    def _judge(self, row: Seen, lowest: int, highest: int) -> list[Fault]:
        """A row that begins at or below the highest number. What fills gaps, or lies below all, is late."""
        known_last = min(row.last, highest)
        late = max(min(known_last, lowest - 1) - row.first + 1, 0) + self._fill(row.first, known_last)
        doubled = known_last - row.first + 1 - late
        faults = []
        if late:
            detail = f"{row.first} comes after {highest}"
            faults.append(Fault(OUT_OF_ORDER, row.partition, row.offset, row.end_offset, 1, detail))
        if doubled:
            detail = f"{_span(row.first, known_last)} was there before"
            faults.append(Fault(DOUBLED, row.partition, row.offset, row.end_offset, doubled, detail))
        return faults

    def _fill(self, first: int, last: int) -> int:
        """Take numbers out of the gaps; how many of them were in one."""
        count = 0
        left: list[Gap] = []
        for gap in self.gaps:
            start, end = max(first, gap.first), min(last, gap.last)
            if start > end:
                left.append(gap)
                continue
            count += end - start + 1
            if gap.first < start:
                left.append(gap._replace(last=start - 1))
            if end < gap.last:
                left.append(gap._replace(first=end + 1))
        self.gaps = left
        return count

    def give_up(self, *, before_ms: int) -> list[Fault]:
        """Gaps that were noticed at or before a moment are losses."""
        lost = [gap for gap in self.gaps if gap.since_ms <= before_ms]
        self.gaps = [gap for gap in self.gaps if gap.since_ms > before_ms]
        return [_lost(gap) for gap in lost]

    @property
    def oldest_ms(self) -> int | None:
        """Since when the oldest gap is there."""
        return min((gap.since_ms for gap in self.gaps), default=None)


def _unwrapped(row: Seen, highest: int) -> Seen:
    """Counted on where numbers begin again: those far below the highest are the next ones."""
    if row.wraps_at is None:
        return row
    rounds = max(highest - row.first + row.wraps_at // 2, 0) // row.wraps_at
    return row._replace(first=row.first + rounds * row.wraps_at, last=row.last + rounds * row.wraps_at)


def _lost(gap: Gap) -> Fault:
    count = gap.last - gap.first + 1
    return Fault(LOST, gap.partition, gap.offset, gap.offset, count, f"{_span(gap.first, gap.last)} has not come")


def _span(first: int, last: int) -> str:
    return str(first) if first == last else f"{first} to {last}"
