"""How far a run is, out of what Spark says of its micro-batches. Pure: the caller looks, here it is added up.

Spark keeps the last hundred progress reports of a query. A batch is counted once, by its id, whatever is looked at
twice. Lag is what the sources say they could have read beyond what they did.
"""

import json
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple


_NO_TOPIC = "$"  # where headrace's source keeps what it remembers beside offsets


class Totals(NamedTuple):
    rows: int = 0
    batches: int = 0
    seconds: float = 0.0
    lag: int | None = None  # None where no source says it

    @property
    def rows_per_second(self) -> float:
        return self.rows / self.seconds if self.seconds > 0 else 0.0


class Tally:
    """Adds up the reports of one or several queries."""

    def __init__(self) -> None:
        self._rows: dict[tuple[str, int], int] = {}
        self._lags: dict[str, int | None] = {}

    def add(self, query: str, reports: Iterable[Mapping[str, Any]]) -> None:
        for report in reports:
            at = (query, int(report["batchId"]))
            rows = int(report["numInputRows"])
            if rows or at in self._rows:
                self._rows[at] = max(rows, self._rows.get(at, 0))
            self._lags[query] = lag_of(report)

    def totals(self, seconds: float) -> Totals:
        known = [lag for lag in self._lags.values() if lag is not None]
        return Totals(sum(self._rows.values()), len(self._rows), seconds, sum(known) if known else None)


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
