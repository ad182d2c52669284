"""`headrace pipeline run rollup`."""

from typing import Annotated

import typer

from headrace.cli.pipeline_run import ReportOption, Where, pipeline_command
from headrace.cli.queue_session import parse_span
from headrace.cli.session import DEFAULT_SERVER, ServerOption

TOPIC_DEFAULT = "headrace.rollup"


@pipeline_command
def rollup(
    where: Where,
    *,
    topics: Annotated[
        str | None,
        typer.Option("--topics", metavar="NAME,...", help="Topics and queues. [dim]default: all[/]"),
    ] = None,
    groups: Annotated[bool, typer.Option("--groups/--no-groups", help="Commits of groups too.")] = True,
    topic: Annotated[str, typer.Option("--topic", metavar="NAME", help="Where the rows go.")] = TOPIC_DEFAULT,
    table: Annotated[
        str | None, typer.Option("--table", metavar="PATH", help="A Delta table that they go to as well.")
    ] = None,
    late: Annotated[
        str, typer.Option("--late", metavar="SPAN", help="How long a minute waits for what comes late, as 90s.")
    ] = "1m",
    report: ReportOption = None,
    hours: Annotated[float, typer.Option("--hours", metavar="N", help="Of which summary and report speak.")] = 24.0,
    server: ServerOption = DEFAULT_SERVER,
) -> None:
    """Count what happens in each minute: rates, sizes, dwell time and latency, by topic, queue and group.

    A minute is written when it is over and nothing late is expected any more: to a topic, as JSON, exactly once; and
    with --table to the lake. Run it with --continuous for a dashboard, or from time to time.

    [bold]Examples[/]

    [cyan]headrace pipeline run rollup --table /lake/rollup --report rollup.html[/]

    [cyan]headrace pipeline run rollup --topics orders,payments --continuous --every 10[/]
    """
    from headrace.spark.pipeline import rollup as pipeline

    options = pipeline.RollupOptions(
        server=server,
        topics=tuple(name.strip() for name in (topics or "").split(",") if name.strip()),
        groups=groups,
        topic=topic,
        table=table,
        late_s=parse_span(late),
        report=report,
        hours=hours,
    )
    where.run("rollup", options.identity(), lambda run: pipeline.run(options, run))
