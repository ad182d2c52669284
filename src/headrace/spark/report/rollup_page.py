"""The report of the rollup pipeline: rates, dwell time and how far groups are behind, over time."""

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import Any

from headrace.spark.report.chart import LineChart, Point, Series
from headrace.spark.report.page import Figure, Figures, Report, Section, Table
from headrace.spark.report.scale import short

Row = Mapping[str, Any]

SERIES_MAX = 8
_MINUTE_MS = 60_000
_MINUTE_S = 60
_PERCENTILES = ("p50_ms", "p95_ms", "p99_ms")


def rollup_page(rows: Sequence[Row], columns: Sequence[str], lines: Sequence[Sequence[Any]], *, hours: float) -> Report:
    sections: list[Section] = [_figures(rows)]
    sections.append(
        LineChart(
            title="Sent",
            unit="messages/s",
            series=_largest(_of(rows, "sent"), lambda row: row["name"], lambda row: row["messages"] / _MINUTE_S),
        )
    )
    acked = _of(rows, "acked")
    if acked:
        per_queue = _largest(acked, lambda row: row["name"], lambda row: row["messages"] / _MINUTE_S)
        sections.append(LineChart(title="Acknowledged", unit="messages/s", series=per_queue))
        for name in [one.name for one in per_queue]:
            own = [row for row in acked if row["name"] == name]
            sections.append(_percentiles(f"Dwell time in {name}", own))
    committed = _of(rows, "committed")
    if committed:
        by_group = _largest(committed, _group, lambda row: row["p95_ms"])
        note = "At each commit, the age of the newest message that it covers."
        sections.append(LineChart(title="Age at commit, 95th percentile", unit="ms", series=by_group, note=note))
        sections.append(LineChart(title="Committed", unit="messages/s", series=_group_rates(committed)))
    sections.append(Table(title="All of it", columns=columns, rows=lines, note="Percentiles are of the worst minute."))
    return Report(title="Rollup", subtitle=f"The last {hours:g} hours by the minute; times are UTC", sections=sections)


def _figures(rows: Sequence[Row]) -> Figures:
    sent, acked = _of(rows, "sent"), _of(rows, "acked")
    minutes: dict[datetime, int] = defaultdict(int)
    for row in sent:
        minutes[row["minute"]] += row["messages"]
    worst = max((row["p99_ms"] for row in acked if row["p99_ms"] is not None), default=None)
    return Figures(
        [
            Figure(label="messages sent", value=f"{sum(row['messages'] for row in sent):,}"),
            Figure(label="bytes stored", value=short(sum(row["bytes"] for row in sent)) + "B"),
            Figure(label="busiest minute", value=f"{max(minutes.values(), default=0) / _MINUTE_S:,.1f}/s"),
            Figure(label="worst dwell time, p99", value="-" if worst is None else f"{worst:,.0f} ms"),
        ]
    )


def _of(rows: Sequence[Row], event: str) -> list[Row]:
    return [row for row in rows if row["event"] == event]


def _group(row: Row) -> str:
    return f"{row['group']} on {row['name']}"


def _moment_ms(row: Row) -> int:
    minute: datetime = row["minute"]
    return round(minute.timestamp() * 1000)


def _largest(rows: Sequence[Row], name: Callable[[Row], str], value: Callable[[Row], float | None]) -> list[Series]:
    """A series for each of the busiest names."""
    totals: dict[str, int] = defaultdict(int)
    points: dict[str, list[Point]] = defaultdict(list)
    for row in rows:
        totals[name(row)] += row["messages"]
        points[name(row)].append((_moment_ms(row), value(row)))
    chosen = sorted(totals, key=lambda one: (-totals[one], one))[:SERIES_MAX]
    return [Series(name=one, points=with_gaps(points[one])) for one in chosen]


def _percentiles(title: str, rows: Sequence[Row]) -> LineChart:
    series = [
        Series(name=column.removesuffix("_ms"), points=with_gaps([(_moment_ms(row), row[column]) for row in rows]))
        for column in _PERCENTILES
    ]
    unknown = sum(row["unknown"] or 0 for row in rows)
    note = f"Of {unknown:,} messages nobody knows any more when they were sent." if unknown else ""
    return LineChart(title=title, unit="ms", series=series, note=note)


def _group_rates(rows: Sequence[Row]) -> list[Series]:
    """What groups went on by, between the last commits of a minute and those of the one before."""
    last: dict[tuple[str, str], int] = {}
    points: dict[str, list[Point]] = defaultdict(list)
    for row in sorted(rows, key=_moment_ms):
        name, moved = _group(row), 0
        for partition, offset in (row["offsets"] or {}).items():
            moved += max(0, offset - last.get((name, partition), offset))
            last[name, partition] = offset
        points[name].append((_moment_ms(row), moved / _MINUTE_S))
    return [Series(name=name, points=with_gaps(own)) for name, own in sorted(points.items())[:SERIES_MAX]]


def with_gaps(points: Sequence[Point]) -> list[Point]:
    """In order, with nothing drawn across minutes of which there is no row."""
    found: list[Point] = []
    for moment_ms, value in sorted(points, key=lambda point: point[0]):
        if found and moment_ms - found[-1][0] > _MINUTE_MS:
            found.append((moment_ms - _MINUTE_MS, None))
        found.append((moment_ms, value))
    return found
