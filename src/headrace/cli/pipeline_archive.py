"""`headrace pipeline run archive`."""

from typing import TYPE_CHECKING, Annotated

import typer

from headrace.cli.pipeline_run import Where, pipeline_command
from headrace.cli.queue_session import HttpOption
from headrace.cli.session import DEFAULT_SERVER, ServerOption
from headrace.client.settings import DEFAULT_HTTP

if TYPE_CHECKING:
    from headrace.spark.pipeline.context import Run
    from headrace.spark.pipeline.summary import Summary

_UPKEEP = "The table's upkeep"


@pipeline_command
def archive(
    where: Where,
    *,
    table: Annotated[
        str, typer.Option("--table", "-t", metavar="DIR", help="The Delta table; it is made if it is not there.")
    ],
    topics: Annotated[
        list[str] | None, typer.Option("--topic", metavar="TOPIC", help="A topic; may be repeated.", show_default=False)
    ] = None,
    queues: Annotated[
        list[str] | None,
        typer.Option(
            "--queue",
            "-q",
            metavar="QUEUE",
            help="A queue; may be repeated. It keeps what is done until it is archived.",
            show_default=False,
        ),
    ] = None,
    pattern: Annotated[
        str | None,
        typer.Option("--pattern", metavar="REGEX", help="All topics of such names, later ones too."),
    ] = None,
    batch_rows: Annotated[
        int, typer.Option("--batch-rows", metavar="N", help="Messages of one batch, at most.")
    ] = 250_000,
    skip_lost: Annotated[
        bool, typer.Option("--skip-lost", help="Go on behind what retention removed, instead of failing.")
    ] = False,
    keep_days: Annotated[
        int | None,
        typer.Option("--keep-days", metavar="N", help="Drop days that are older.", rich_help_panel=_UPKEEP),
    ] = None,
    compact: Annotated[
        bool, typer.Option("--compact/--no-compact", help="Join small files.", rich_help_panel=_UPKEEP)
    ] = True,
    compact_memory: Annotated[
        int,
        typer.Option(
            "--compact-memory", metavar="MB", help="Memory for joining them, at most.", rich_help_panel=_UPKEEP
        ),
    ] = 256,
    vacuum_hours: Annotated[
        int,
        typer.Option(
            "--vacuum-hours",
            metavar="N",
            help="Remove files that the table has not named for so long; 0 leaves them.",
            rich_help_panel=_UPKEEP,
        ),
    ] = 168,
    upkeep: Annotated[
        float,
        typer.Option("--upkeep", metavar="MINUTES", help="How often, with --continuous.", rich_help_panel=_UPKEEP),
    ] = 60.0,
    server: ServerOption = DEFAULT_SERVER,
    http: HttpOption = DEFAULT_HTTP,
) -> None:
    """Keep topics and queues in a Delta table, by topic and day, each message once.

    The same command again goes on where it was. The table itself knows what it has: even without the run's checkpoint
    nothing is doubled.

    [bold]Examples[/]

    [cyan]headrace pipeline run archive --topic orders --topic payments --table lake/messages[/]

    [cyan]headrace pipeline run archive --queue tasks --table lake/tasks --keep-days 90 --continuous[/]
    """
    from headrace.spark.pipeline import archive as pipeline

    options = pipeline.ArchiveOptions(
        server=server,
        http=http,
        table=table,
        topics=tuple(topics or ()),
        queues=tuple(queues or ()),
        pattern=pattern,
        batch_rows=batch_rows,
        keep_days=keep_days,
        compacts=compact,
        compact_memory_mb=compact_memory,
        vacuum_hours=vacuum_hours or None,
        upkeep_minutes=upkeep,
        skips_lost=skip_lost,
    )

    def body(run: "Run") -> "Summary":
        pipeline.check(options, run)
        return pipeline.run(run.spark(), options, run)

    where.run("archive", options.identity(), body)
