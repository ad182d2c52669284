"""The pipeline `dead-letters`: what died, of what, since when; and back with those that a condition chooses.

    headrace pipeline run dead-letters --queue tasks-dead --report dead.html
    headrace pipeline run dead-letters --queue tasks-dead --redrive "reason = 'timeout' and age < interval 1 day" --yes

Each dead letter is a row with the columns of `COLUMNS`, which the condition of a redrive may speak of. Reasons are
grouped by their kind: what differs from message to message (numbers, ids) is shown as `#`.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyspark.errors import AnalysisException
from pyspark.sql import functions as sf

from headrace.client.settings import DEFAULT_HTTP
from headrace.host.clock import SystemClock
from headrace.model.errors import HeadraceError
from headrace.model.message import (
    DEAD_ATTEMPTS_HEADER,
    DEAD_FIRST_HEADER,
    DEAD_LAST_HEADER,
    DEAD_REASON_HEADER,
    DEAD_SENT_HEADER,
    DEAD_SOURCE_HEADER,
)
from headrace.model.names import check_topic_name
from headrace.spark.errors import OptionError, sentence_of
from headrace.spark.pipeline import dead_letter_redrive as back
from headrace.spark.pipeline.asked import check_http, check_queues, check_report
from headrace.spark.pipeline.dead_letter_read import read_messages
from headrace.spark.pipeline.dead_letter_report import write_dead_letter_report
from headrace.spark.pipeline.summary import Summary

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

    from headrace.spark.pipeline.context import Run

COLUMNS = (
    "queue",  # the dead-letter queue
    "source",  # the queue that it came from
    "reason",
    "kind",  # the reason without what differs from message to message
    "handler",
    "attempts",
    "sent",  # when it was first sent
    "first_attempt",
    "last_attempt",
    "died",  # when it came to the dead-letter queue
    "age",  # since then, an interval
    "state",
    "id",
    "key",  # as text
    "body",  # as text
    "value",  # the body's bytes
    "headers",  # a map of text
    "priority",
    "partition",
    "offset",
)
# Who handled a message is not known to a node. Celery and many others write it into a header.
HANDLER_DEFAULT = "coalesce(headers['handler'], headers['task'])"
AGES = (("under 1 h", "1 hour"), ("under 1 day", "1 day"), ("under 7 days", "7 days"))
OLDER = "older"

_VARYING = r"[0-9a-fA-F]{8}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{12}|0x[0-9a-fA-F]+|[0-9]+"
_NOT_SAID = "(none said)"
_HOME = "the queues that they came from"


@dataclass(frozen=True, slots=True, kw_only=True)
class DeadLetterOptions:
    queues: tuple[str, ...]
    http: str = DEFAULT_HTTP
    redrive: str | None = None  # a condition in SQL
    to: str | None = None  # None: each goes back to the queue that it came from
    is_sure: bool = False  # without it nothing is moved
    rate: int | None = None  # messages a second
    handler: str = HANDLER_DEFAULT
    sample_count: int = 3  # of each group
    report: Path | None = None

    def __post_init__(self) -> None:
        if not self.queues:
            raise OptionError("name at least one dead-letter queue with --queue")
        check_http(self.http)
        check_report(self.report)
        for queue in (*self.queues, *(() if self.to is None else (self.to,))):
            try:
                check_topic_name(queue)
            except HeadraceError as error:
                raise OptionError(str(error)) from None
        if self.redrive is None and (self.to is not None or self.is_sure or self.rate is not None):
            raise OptionError("--to, --rate and --yes belong to --redrive; say which dead letters go back")
        if self.redrive is not None and not self.redrive.strip():
            raise OptionError("--redrive is empty; write a condition, or true for all of them")
        if self.redrive is not None and len(self.queues) > 1:
            raise OptionError("--redrive works on one queue at a time; name one with --queue")
        if self.to in self.queues:
            raise OptionError(f"--to {self.to} is where the dead letters are; name another queue")
        if self.rate is not None and self.rate < 1:
            raise OptionError(f"--rate is at least 1 message a second, not {self.rate}")
        if self.sample_count < 0:
            raise OptionError(f"--samples is 0 or more, not {self.sample_count}")

    def identity(self) -> dict[str, str]:
        return {
            "http": self.http,
            "queues": ",".join(sorted(self.queues)),
            "redrive": self.redrive or "",
            "to": self.to or "",
        }


def check(options: DeadLetterOptions) -> None:
    """Ask the node whether the queues are there."""
    check_queues(options.http, options.queues if options.to is None else (*options.queues, options.to))


def run(spark: "SparkSession", options: DeadLetterOptions, run: "Run") -> Summary:
    """Look, report, and move what was asked for."""
    now_ms = SystemClock().wall_ms()
    letters = dead_letters(read_messages(spark, options.http, options.queues), now_ms=now_ms, handler=options.handler)
    letters = letters.persist()
    try:
        run.report("reading dead letters", rows=letters.count())
        chosen = letters if options.redrive is None else choose(letters, options.redrive)
        begun = None if options.redrive is None else back.begun(run)
        if begun is not None:
            chosen = back.at_places(letters, begun)
            run.note("An earlier run was cut off. This is about what that one had chosen; run it again for newer ones.")
        groups = grouped(chosen).collect()
        if options.report is not None:
            write_dead_letter_report(options.report, letters, now_ms=now_ms, sample_count=options.sample_count)
            run.note(f"The report is in {options.report}.")
        if options.redrive is None:
            return _summary(options, groups, title=f"Dead letters in {', '.join(options.queues)}")
        if not options.is_sure:
            return _shown_only(options, groups)
        order = back.Order(queue=options.queues[0], to=options.to, condition=options.redrive, rate=options.rate)
        outcome = back.redrive(begun or back.decide(chosen, order, now_ms), order, http=options.http, run=run)
        return _summary(
            options,
            groups,
            title=f"Dead letters of {options.queues[0]}, sent back to {options.to or _HOME}",
            figures={"chosen": outcome.chosen, "moved": outcome.moved, "left": outcome.left},
            notes=outcome.notes,
        )
    finally:
        letters.unpersist()


def dead_letters(messages: "DataFrame", *, now_ms: int, handler: str = HANDLER_DEFAULT) -> "DataFrame":
    """Messages of dead-letter queues with what their headers say of their death. `messages` is as `read_messages`."""
    named = messages.select(
        "*",
        _text_header(DEAD_REASON_HEADER).alias("reason"),
        _text_header(DEAD_SOURCE_HEADER).alias("source"),
        _number_header(DEAD_ATTEMPTS_HEADER).cast("int").alias("attempts"),
        _moment(_number_header(DEAD_FIRST_HEADER)).alias("first_attempt"),
        _moment(_number_header(DEAD_LAST_HEADER)).alias("last_attempt"),
        _moment(_number_header(DEAD_SENT_HEADER)).alias("sent"),
        _moment(sf.col("sent_ms")).alias("died"),
        _text(sf.col("value")).alias("body"),
    )
    plain = (
        named.withColumn("age", sf.timestamp_millis(sf.lit(now_ms)) - sf.col("died"))
        .withColumn("kind", sf.regexp_replace("reason", _VARYING, "#"))
        .withColumn("key", _text(sf.col("key")))
        .withColumn("headers", _header_map())
    )
    try:
        return plain.withColumn("handler", sf.expr(handler).cast("string")).select(*COLUMNS)
    except AnalysisException as error:
        raise OptionError(f"--handler {handler!r} is no expression over a dead letter: {sentence_of(error)}") from None


def choose(letters: "DataFrame", condition: str) -> "DataFrame":
    """Those that a condition chooses and that nobody holds."""
    try:
        chosen = letters.where(condition)
        chosen.schema  # noqa: B018 - a Connect server says here what is wrong with the condition
    except AnalysisException as error:
        raise OptionError(
            f"--redrive {condition!r} is no condition over dead letters: {sentence_of(error)}; "
            f"the columns are {', '.join(COLUMNS)}"
        ) from None
    return chosen.where(sf.col("state").isin(*back.MOVABLE))


def grouped(letters: "DataFrame") -> "DataFrame":
    """One row for each source, kind of reason and handler, with how old its letters are."""
    none = sf.lit(_NOT_SAID)
    return (
        letters.groupBy(
            "queue",
            sf.coalesce("source", none).alias("source"),
            sf.coalesce("kind", none).alias("kind"),
            sf.coalesce("handler", none).alias("handler"),
        )
        .agg(
            sf.count("*").alias("letters"),
            *(sf.count(sf.when(_age_group() == name, 1)).alias(name) for name in (*(name for name, _ in AGES), OLDER)),
            sf.round(sf.avg("attempts"), 1).alias("attempts"),
            sf.min("died").alias("first"),
            sf.max("died").alias("last"),
        )
        .orderBy(sf.desc("letters"), "queue", "source", "kind", "handler")
    )


def _age_group() -> "Column":
    name = sf.lit(OLDER)
    for label, limit in reversed(AGES):
        name = sf.when(sf.col("age") < sf.expr(f"interval {limit}"), label).otherwise(name)
    return name


def _shown_only(options: DeadLetterOptions, groups: list[Any]) -> Summary:
    count = sum(group["letters"] for group in groups)
    return _summary(
        options,
        groups,
        title=f"Dead letters of {options.queues[0]} that would go back",
        notes=[f"Nothing was moved. With --yes these {count:,} go back to {options.to or _HOME}."],
    )


def _summary(
    options: DeadLetterOptions,
    groups: list[Any],
    *,
    title: str,
    figures: dict[str, int] | None = None,
    notes: "list[str] | tuple[str, ...]" = (),
) -> Summary:
    ages = [name for name, _ in AGES] + [OLDER]
    queue = ["queue"] if len(options.queues) > 1 else []
    columns = [*queue, "source", "kind", "handler", "letters", *ages, "attempts"]
    total = sum(group["letters"] for group in groups)
    return Summary(
        title=title,
        columns=["reason" if column == "kind" else column for column in columns],
        rows=[[group[column] for column in columns] for group in groups],
        figures=figures or {"dead letters": total, "groups": len(groups)},
        notes=notes,
    )


def _text_header(name: str) -> "Column":
    return _text(_header(name))


def _number_header(name: str) -> "Column":
    return sf.expr(f"try_cast(cast(get(filter(headers, h -> h.key = '{name}'), 0).value as string) as bigint)")


def _header(name: str) -> "Column":
    return sf.expr(f"get(filter(headers, h -> h.key = '{name}'), 0).value")


def _header_map() -> "Column":
    """The first value of each name, as text. A name may be there several times, which a map does not take."""
    names = "array_distinct(transform(headers, h -> h.key))"
    value = "make_valid_utf8(cast(get(filter(headers, h -> h.key = name), 0).value as string))"
    return sf.expr(f"map_from_arrays({names}, transform({names}, name -> {value}))")


def _text(column: "Column") -> "Column":
    return sf.make_valid_utf8(column.cast("string"))


def _moment(milliseconds: "Column") -> "Column":
    return sf.timestamp_millis(milliseconds)
