"""What a rollup's rows say in a few lines: for each name, group and event, how much, how fast, how old."""

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from headrace.spark.pipeline.summary import Summary, Value

Row = Mapping[str, Any]

MINUTE_S = 60
COLUMNS = (
    "name",
    "group",
    "event",
    "minutes",
    "messages",
    "per second",
    "peak",
    "p50 ms",
    "p99 ms",
    "max ms",
    "unknown",
)

_ADDED = ("messages", "bytes", "unknown")
_WORST = ("p50_ms", "p95_ms", "p99_ms", "max_ms")


def joined(rows: Iterable[Row]) -> list[Row]:
    """One row for each minute. What came late has rows of its own; of percentiles the worst counts."""
    found: dict[tuple[Any, ...], dict[str, Any]] = {}
    for row in rows:
        key = (row["minute"], row["name"], row["group"], row["event"])
        if key not in found:
            found[key] = {**row}
            continue
        known = found[key]
        for column in _ADDED:
            known[column] = _present(sum, known[column], row[column])
        for column in _WORST:
            known[column] = _present(max, known[column], row[column])
        offsets, more = known["offsets"] or {}, row["offsets"] or {}
        known["offsets"] = {place: max(offsets.get(place, 0), more.get(place, 0)) for place in {**offsets, **more}}
    return list(found.values())


def _present(together: Callable[[list[float]], float], *values: float | None) -> float | None:
    known = [value for value in values if value is not None]
    return together(known) if known else None


def lines(rows: Sequence[Row]) -> list[tuple[Value, ...]]:
    """Percentiles are the worst of any minute: those of minutes cannot be added up to those of a day."""
    grouped: dict[tuple[str, str, str], list[Row]] = defaultdict(list)
    for row in rows:
        grouped[row["name"], row["group"] or "", row["event"]].append(row)
    found: list[tuple[Value, ...]] = []
    for (name, group, event), own in sorted(grouped.items()):
        messages = sum(row["messages"] for row in own)
        found.append(
            (
                name,
                group or None,
                event,
                len(own),
                messages,
                round(messages / len(own) / MINUTE_S, 2),
                round(max(row["messages"] for row in own) / MINUTE_S, 2),
                _worst(own, "p50_ms"),
                _worst(own, "p99_ms"),
                _worst(own, "max_ms"),
                sum(row["unknown"] or 0 for row in own),
            )
        )
    return found


def _worst(rows: Sequence[Row], column: str) -> int | None:
    known = [row[column] for row in rows if row[column] is not None]
    return round(max(known)) if known else None


def summarise(rows: Sequence[Row], *, hours: float, still_open: int = 0) -> Summary:
    sent = [row for row in rows if row["event"] == "sent"]
    minutes: dict[Any, int] = defaultdict(int)
    for row in sent:
        minutes[row["minute"]] += row["messages"]
    return Summary(
        title=f"The last {hours:g} hours by the minute",
        columns=COLUMNS,
        rows=lines(rows),
        figures={
            "messages sent": sum(row["messages"] for row in sent),
            "bytes stored": sum(row["bytes"] for row in sent),
            "busiest minute, messages/s": max(minutes.values(), default=0) / MINUTE_S,
            "messages in open minutes": still_open,
        },
        notes=[
            *([_open(still_open)] if still_open else []),
            "Ages count from when a message was sent; percentiles are those of the worst minute.",
        ],
    )


def _open(messages: int) -> str:
    belong, them = ("messages belong", "them") if messages > 1 else ("message belongs", "it")
    return (
        f"{messages:,} {belong} to minutes that are not over, or still wait for what comes late; "
        f"a later run counts {them}."
    )
