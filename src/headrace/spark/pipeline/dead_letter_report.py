"""Dead letters for people who would rather look: when they died, of what, and how some of them look."""

from collections import defaultdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyspark.sql import Window
from pyspark.sql import functions as sf

from headrace.spark.report.chart import BarChart, LineChart, Series
from headrace.spark.report.page import Figure, Figures, Report, Section, Table, Text, write_report

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_MINUTE_MS = 60_000
_HOUR_MS = 60 * _MINUTE_MS
_DAY_MS = 24 * _HOUR_MS
_LINES_MAX = 6  # kinds with a line of their own
_BARS_MAX = 20
_SAMPLES_MAX = 100
_BODY_CHARS_MAX = 300
_OTHERS = "all others"


def write_dead_letter_report(path: Path, letters: "DataFrame", *, now_ms: int, sample_count: int) -> None:
    """`letters` is as `dead_letters.dead_letters` makes it, and looked at several times: have it persisted."""
    span = letters.agg(
        sf.count("*").alias("count"),
        sf.unix_millis(sf.min("died")).alias("first_ms"),
        sf.countDistinct("source").alias("sources"),
        sf.countDistinct("kind").alias("kinds"),
    ).collect()[0]
    kinds = _counts(letters, "kind")
    queues = [row["queue"] for row in letters.select("queue").distinct().orderBy("queue").collect()]
    width_ms = bucket_ms(now_ms - (span["first_ms"] or now_ms))
    sections: list[Section] = [
        Figures(
            [
                Figure(label="dead letters", value=f"{span['count']:,}"),
                Figure(label="queues that they came from", value=f"{span['sources']:,}"),
                Figure(label="kinds of reason", value=f"{span['kinds']:,}"),
                Figure(label="oldest", value=_age(now_ms - (span["first_ms"] or now_ms))),
            ]
        ),
        LineChart(
            title="When they died",
            unit="dead letters",
            series=over_time(letters, [name for name, _ in kinds[:_LINES_MAX]], width_ms=width_ms),
            note=f"Those that are still there, for each {_age(width_ms)}.",
        ),
        BarChart(
            title="By reason", unit="dead letters", bars=kinds[:_BARS_MAX], note="Numbers and ids are shown as #."
        ),
        BarChart(
            title="By the queue that they came from", unit="dead letters", bars=_counts(letters, "source")[:_BARS_MAX]
        ),
        BarChart(title="By handler", unit="dead letters", bars=_counts(letters, "handler")[:_BARS_MAX]),
        _samples(letters, sample_count) if span["count"] else Text(title="Examples", paragraphs=["There are none."]),
    ]
    write_report(path, Report(title="Dead letters", subtitle=", ".join(queues) or "none", sections=sections))


def bucket_ms(span_ms: int) -> int:
    """How much time a point of the chart stands for."""
    if span_ms <= 6 * _HOUR_MS:
        return 5 * _MINUTE_MS
    return _HOUR_MS if span_ms <= 4 * _DAY_MS else _DAY_MS


def over_time(letters: "DataFrame", kinds: list[str], *, width_ms: int) -> list[Series]:
    """A line for each of some kinds of reason, and one for all others; zero where nothing died."""
    bucket = sf.floor(sf.unix_millis("died") / width_ms) * width_ms
    named = sf.coalesce("kind", sf.lit("(none said)"))
    name = sf.when(named.isin(*kinds), named).otherwise(_OTHERS)
    found: dict[str, dict[int, int]] = defaultdict(dict)
    for row in letters.groupBy(bucket.alias("at_ms"), name.alias("name")).count().collect():
        found[row["name"]][int(row["at_ms"])] = row["count"]
    moments = {moment for counts in found.values() for moment in counts}
    if not moments:
        return []
    every = range(min(moments), max(moments) + width_ms, width_ms)
    names = [kind for kind in [*kinds, _OTHERS] if kind in found]
    return [Series(name=one, points=[(at, float(found[one].get(at, 0))) for at in every]) for one in names]


def _counts(letters: "DataFrame", column: str) -> list[tuple[str, float]]:
    name = sf.coalesce(sf.col(column), sf.lit("(none said)")).alias("name")
    rows = letters.groupBy(name).count().orderBy(sf.desc("count"), "name").collect()
    return [(row["name"], float(row["count"])) for row in rows]


def _samples(letters: "DataFrame", count: int) -> Table:
    """The newest of each source and kind."""
    order = Window.partitionBy("queue", "source", "kind").orderBy(sf.desc("died"), "partition", "offset")
    rows = (
        letters.withColumn("place", sf.row_number().over(order))
        .where(sf.col("place") <= count)
        .orderBy("queue", "source", "kind", "place")
        .limit(_SAMPLES_MAX)
        .select(
            "source",
            "reason",
            "id",
            sf.date_format("died", "yyyy-MM-dd HH:mm:ss").alias("died"),
            "attempts",
            "key",
            sf.left("body", sf.lit(_BODY_CHARS_MAX)).alias("body"),
        )
        .collect()
    )
    columns = ["source", "reason", "id", "died", "attempts", "key", "body"]
    table: list[list[Any]] = [[row[column] for column in columns] for row in rows]
    return Table(
        title="Examples", columns=columns, rows=table, note="The newest of each source and reason; times in UTC."
    )


def _age(span_ms: int) -> str:
    for unit_ms, unit in ((_DAY_MS, "day"), (_HOUR_MS, "hour"), (_MINUTE_MS, "minute")):
        if span_ms >= unit_ms:
            count = span_ms // unit_ms
            return f"{count} {unit}{'s' if count > 1 else ''}"
    return "under a minute"
