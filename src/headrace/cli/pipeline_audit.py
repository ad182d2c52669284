"""`headrace pipeline run audit`."""

from typing import TYPE_CHECKING, Annotated

import typer

from headrace.cli.pipeline_run import Where, pipeline_command
from headrace.cli.session import DEFAULT_SERVER, ServerOption

if TYPE_CHECKING:
    from headrace.spark.pipeline.context import Run
    from headrace.spark.pipeline.summary import Summary

_RULES = "What applications number themselves"

TopicsOption = Annotated[
    list[str] | None,
    typer.Option("--topic", "-t", metavar="TOPIC", help="A topic; may be repeated.", show_default=False),
]
QueuesOption = Annotated[
    list[str] | None,
    typer.Option("--queue", "-q", metavar="QUEUE", help="A queue; may be repeated.", show_default=False),
]
LakeOption = Annotated[
    str | None,
    typer.Option("--lake", metavar="DIR", help="What an archive has written: compared with the log."),
]
UniqueOption = Annotated[
    str | None,
    typer.Option(
        "--unique",
        metavar="WHERE",
        help="Where a message has an id that no other has: key, header:NAME, json:$.path, or SQL.",
        rich_help_panel=_RULES,
    ),
]
RisingOption = Annotated[
    str | None,
    typer.Option("--rising", metavar="WHERE", help="Where it has a number that rises.", rich_help_panel=_RULES),
]
OfOption = Annotated[str, typer.Option("--of", metavar="WHERE", help="Whose number that is.", rich_help_panel=_RULES)]
GaplessOption = Annotated[
    bool, typer.Option("--gapless", help="A number that is missing is a loss.", rich_help_panel=_RULES)
]
StrictOption = Annotated[bool, typer.Option("--strict", help="What nothing can tell any more counts as found.")]
FindingsOption = Annotated[
    str | None,
    typer.Option("--findings", metavar="DIR", help="A Delta table to which everything that is found is added."),
]
ToOption = Annotated[
    str | None,
    typer.Option("--to", metavar="TOPIC", help="With --continuous: a topic for findings, as JSON."),
]
PatienceOption = Annotated[
    float,
    typer.Option("--patience", metavar="SECONDS", help="With --continuous: what has not come by then is lost."),
]


@pipeline_command
def audit(
    where: Where,
    *,
    server: ServerOption = DEFAULT_SERVER,
    topics: TopicsOption = None,
    queues: QueuesOption = None,
    lake: LakeOption = None,
    unique: UniqueOption = None,
    rising: RisingOption = None,
    of: OfOption = "key",
    gapless: GaplessOption = False,
    strict: StrictOption = False,
    findings: FindingsOption = None,
    to: ToOption = None,
    patience: PatienceOption = 60.0,
) -> None:
    """Look for lost, doubled and out-of-order messages. Exit code 3 says that something was found.

    With --continuous it follows messages as they come, and writes findings as they occur.

    [bold]Examples[/]

    [cyan]headrace pipeline run audit --topic orders --queue tasks[/]

    [cyan]headrace pipeline run audit --lake /data/lake --unique header:order-id[/]

    [cyan]headrace pipeline run audit --topic orders --rising json:$.number --of key --gapless[/]

    [cyan]headrace pipeline run audit --topic orders --continuous --to alerts[/]
    """
    from headrace.spark.pipeline import audit as pipeline

    options = pipeline.AuditOptions(
        server=server,
        topics=tuple(topics or []),
        queues=tuple(queues or []),
        lake=lake,
        unique=unique,
        rising=rising,
        of=of,
        is_gapless=gapless,
        is_strict=strict,
        findings=findings,
        to=to,
        is_live=where.continuous,
        patience_s=patience,
    )

    def body(run: "Run") -> "Summary":
        pipeline.check(options)
        return pipeline.run(run.spark(), options, run)

    where.run("audit", options.identity(), body)
