"""`headrace pipeline run dead-letters`."""

from typing import TYPE_CHECKING, Annotated

import typer

from headrace.cli.pipeline_run import ReportOption, Where, pipeline_command
from headrace.cli.queue_session import HttpOption
from headrace.client.settings import DEFAULT_HTTP

if TYPE_CHECKING:
    from headrace.spark.pipeline.context import Run
    from headrace.spark.pipeline.summary import Summary

_REDRIVE = "Sending them back"

QueuesOption = Annotated[
    list[str],
    typer.Option("--queue", "-q", metavar="QUEUE", help="A dead-letter queue; may be repeated.", show_default=False),
]
HandlerOption = Annotated[
    str | None,
    typer.Option(
        "--handler",
        metavar="SQL",
        help="An expression that says who handled a message. [dim]default: its header 'handler' or 'task'[/]",
        show_default=False,
    ),
]
SamplesOption = Annotated[
    int, typer.Option("--samples", metavar="N", min=0, help="Examples of each group in the report.")
]
RedriveOption = Annotated[
    str | None,
    typer.Option(
        "--redrive",
        metavar="SQL",
        help="Which go back: a condition over queue, source, reason, kind, handler, attempts, sent, first_attempt, "
        "last_attempt, died, age, id, key, body, value, headers, priority, partition and offset.",
        rich_help_panel=_REDRIVE,
    ),
]
ToOption = Annotated[
    str | None,
    typer.Option(
        "--to",
        metavar="QUEUE",
        help="Where they go. [dim]default: back to where they came from[/]",
        rich_help_panel=_REDRIVE,
    ),
]
RateOption = Annotated[
    int | None, typer.Option("--rate", metavar="N", help="At most so many a second.", rich_help_panel=_REDRIVE)
]
YesOption = Annotated[
    bool, typer.Option("--yes", help="Move them. Without it they are only counted.", rich_help_panel=_REDRIVE)
]


@pipeline_command(continuous=False)
def dead_letters(
    where: Where,
    *,
    queues: QueuesOption,
    handler: HandlerOption = None,
    samples: SamplesOption = 3,
    report: ReportOption = None,
    redrive: RedriveOption = None,
    to: ToOption = None,
    rate: RateOption = None,
    yes: YesOption = False,
    http: HttpOption = DEFAULT_HTTP,
) -> None:
    """Show what died, of what and since when; send back those that a condition chooses, each once.

    [bold]Examples[/]

    [cyan]headrace pipeline run dead-letters --queue tasks-dead --report dead.html[/]

    [cyan]headrace pipeline run dead-letters --queue tasks-dead --redrive "attempts > 1 and age < interval 1 day"[/]
    """
    from headrace.spark.pipeline import dead_letters as pipeline

    options = pipeline.DeadLetterOptions(
        queues=tuple(queues),
        http=http,
        redrive=redrive,
        to=to,
        is_sure=yes,
        rate=rate,
        handler=pipeline.HANDLER_DEFAULT if handler is None else handler,
        sample_count=samples,
        report=report,
    )

    def body(run: "Run") -> "Summary":
        pipeline.check(options)
        return pipeline.run(run.spark(), options, run)

    where.run("dead-letters", options.identity(), body)
