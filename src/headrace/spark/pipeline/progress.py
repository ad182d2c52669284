"""How far a run is, out of what Spark says of its micro-batches. Pure: the caller looks, here it is added up.

Spark keeps the last hundred progress reports of a query. A batch is counted once, by its id, whatever is looked at
twice. Lag is what the sources say they could have read beyond what they did.
"""

import json
from collections import deque
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

RECENT_S = 10.0
_NO_TOPIC = "$"  # where headrace's source keeps what it remembers beside offsets
TICK = "minute"  # all that an offset of `rollup_tick.py` has, whose rows are no messages


class Totals(NamedTuple):
    rows: int = 0
    batches: int = 0
    seconds: float = 0.0
    lag: int | None = None  # None where no source says it
    recent_per_second: float | None = None  # of the last seconds; None where nobody kept them
    late: int = 0  # rows that came after the watermark and were dropped

    @property
    def rows_per_second(self) -> float:
        """From the beginning on."""
        return self.rows / self.seconds if self.seconds > 0 else 0.0

    @property
    def pace(self) -> float:
        """What somebody who looks now wants to know."""
        return self.rows_per_second if self.recent_per_second is None else self.recent_per_second


class Tally:
    """Adds up the reports of one or several queries."""

    def __init__(self) -> None:
        self._rows: dict[tuple[str, int], int] = {}
        self._late: dict[tuple[str, int], int] = {}
        self._lags: dict[str, int | None] = {}
        self._looks: deque[tuple[float, int]] = deque([(0.0, 0)])  # when, and how many rows there were

    def add(self, query: str, reports: Iterable[Mapping[str, Any]]) -> None:
        for report in reports:
            at = (query, int(report["batchId"]))
            rows = _rows_of(report)
            if rows or at in self._rows:
                self._rows[at] = max(rows, self._rows.get(at, 0))
            late = sum(int(one.get("numRowsDroppedByWatermark", 0)) for one in report.get("stateOperators", ()))
            self._late[at] = max(late, self._late.get(at, 0))
            self._lags[query] = lag_of(report)

    def totals(self, seconds: float) -> Totals:
        known = [lag for lag in self._lags.values() if lag is not None]
        rows = sum(self._rows.values())
        looks = self._looks
        looks.append((seconds, rows))
        while len(looks) > 2 and seconds - looks[1][0] >= RECENT_S:
            looks.popleft()
        span_s = seconds - looks[0][0]
        recent = (rows - looks[0][1]) / span_s if span_s > 0 else 0.0
        lag = sum(known) if known else None
        return Totals(rows, len(self._rows), seconds, lag, recent, sum(self._late.values()))


def _rows_of(report: Mapping[str, Any]) -> int:
    """How many rows a batch read. Without a sum, as in what a Connect client is told, it is that of the sources."""
    sources, rows = report["sources"], report.get("numInputRows")
    read = sum(int(one["numInputRows"]) for one in sources) if rows is None else int(rows)
    return read - sum(int(one["numInputRows"]) for one in sources if _is_tick(_parsed(one.get("endOffset"))))


def _is_tick(offset: object) -> bool:
    return isinstance(offset, Mapping) and offset.keys() == {TICK}


def lag_of(report: Mapping[str, Any]) -> int | None:
    """Offsets between what a batch ended with and what there was to be read; None where the sources do not say."""
    lags = [_behind(_parsed(one.get("endOffset")), _parsed(one.get("latestOffset"))) for one in report["sources"]]
    known = [lag for lag in lags if lag is not None]
    return sum(known) if known else None


def _parsed(offset: object) -> object:
    if not isinstance(offset, str):
        return offset
    try:
        return json.loads(offset)
    except ValueError:
        return None


def _behind(end: object, latest: object) -> int | None:
    """Offsets are nested objects by topic and partition: the numbers at the same places are compared."""
    if isinstance(latest, dict):
        ends = end if isinstance(end, dict) else {}
        parts = [
            _behind(ends.get(name, 0 if isinstance(one, int) else {}), one)
            for name, one in latest.items()
            if name != _NO_TOPIC
        ]
        known = [part for part in parts if part is not None]
        return sum(known) if known else None
    if isinstance(latest, int) and isinstance(end, int):
        return max(0, latest - end)
    return None
