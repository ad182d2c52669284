"""`headrace pipeline run replay`."""

from typing import TYPE_CHECKING, Annotated

import typer

from headrace.cli.moment import parse_moment
from headrace.cli.pipeline_run import Where, pipeline_command
from headrace.cli.queue_session import HttpOption
from headrace.cli.session import DEFAULT_SERVER, ServerOption
from headrace.client.settings import DEFAULT_HTTP
from headrace.model.errors import InvalidRequestError
from headrace.spark.errors import OptionError

if TYPE_CHECKING:
    from headrace.spark.pipeline.context import Run
    from headrace.spark.pipeline.summary import Summary

_CHOICE = "Which messages"
_SENDING = "How they are sent"

TableOption = Annotated[str, typer.Option("--table", "-t", metavar="DIR", help="The archive's Delta table.")]
ToOption = Annotated[str | None, typer.Option("--to", metavar="TOPIC", help="The topic that gets them.")]
ToQueueOption = Annotated[
    str | None, typer.Option("--to-queue", metavar="QUEUE", help="The queue that gets them, instead of a topic.")
]
TopicOption = Annotated[
    list[str] | None,
    typer.Option("--topic", metavar="TOPIC", help="Of this topic; may be repeated.", rich_help_panel=_CHOICE),
]
FromOption = Annotated[
    str | None,
    typer.Option("--from", metavar="TIME", help="Of this time or later, as 2026-03-01.", rich_help_panel=_CHOICE),
]
UntilOption = Annotated[
    str | None, typer.Option("--until", metavar="TIME", help="Before this time.", rich_help_panel=_CHOICE)
]
KeyOption = Annotated[
    list[str] | None,
    typer.Option("--key", metavar="TEXT", help="With this key; may be repeated.", rich_help_panel=_CHOICE),
]
ConditionOption = Annotated[
    str | None,
    typer.Option(
        "--where",
        metavar="SQL",
        help="A condition over topic, partition, offset, timestamp, day, key and body (text), value (bytes) and "
        "headers (a map of text).",
        rich_help_panel=_CHOICE,
    ),
]
JobOption = Annotated[
    str | None,
    typer.Option(
        "--job",
        metavar="ID",
        help="A job's messages are sent once, however often it is run. [dim]default: from all of the above[/]",
        show_default=False,
        rich_help_panel=_SENDING,
    ),
]
RateOption = Annotated[
    int | None, typer.Option("--rate", metavar="N", help="Messages a second, at most.", rich_help_panel=_SENDING)
]
KeepPartitionsOption = Annotated[
    bool,
    typer.Option(
        "--keep-partitions", help="Into partitions of the same number, whatever the key.", rich_help_panel=_SENDING
    ),
]
KeepTimesOption = Annotated[
    bool | None,
    typer.Option(
        "--keep-times/--new-times",
        help="Timestamps as they were, or of now. [dim]default: as they were in topics, of now in queues[/]",
        show_default=False,
        rich_help_panel=_SENDING,
    ),
]
PieceRowsOption = Annotated[
    int,
    typer.Option("--piece-rows", metavar="N", help="Messages of one transaction.", rich_help_panel=_SENDING),
]
DryRunOption = Annotated[bool, typer.Option("--dry-run", help="Count them and send nothing.")]


@pipeline_command(continuous=False)
def replay(
    where: Where,
    *,
    table: TableOption,
    to: ToOption = None,
    to_queue: ToQueueOption = None,
    topics: TopicOption = None,
    begin: FromOption = None,
    until: UntilOption = None,
    keys: KeyOption = None,
    condition: ConditionOption = None,
    job: JobOption = None,
    rate: RateOption = None,
    keep_partitions: KeepPartitionsOption = False,
    keep_times: KeepTimesOption = None,
    piece_rows: PieceRowsOption = 100_000,
    dry_run: DryRunOption = False,
    server: ServerOption = DEFAULT_SERVER,
    http: HttpOption = DEFAULT_HTTP,
) -> None:
    """Send messages of an archive to a topic or a queue, each once, in the order of their keys.

    [bold]Examples[/]

    [cyan]headrace pipeline run replay --table lake/messages --topic orders --from 2026-03-01 --to again --dry-run[/]

    [cyan]headrace pipeline run replay --table /lake/messages --where "body like '%tea%'" --to-queue teas --rate 500[/]
    """
    from headrace.spark.pipeline import replay as pipeline

    if (to is None) == (to_queue is None):
        raise OptionError("say where the messages go: --to TOPIC or --to-queue QUEUE, one of them")
    options = pipeline.ReplayOptions(
        server=server,
        http=http,
        table=table,
        to=to or to_queue or "",
        is_queue=to_queue is not None,
        topics=tuple(topics or ()),
        from_ms=_moment("--from", begin),
        until_ms=_moment("--until", until),
        keys=tuple(keys or ()),
        where=condition,
        job=job,
        rate=rate,
        piece_rows=piece_rows,
        keeps_partitions=keep_partitions,
        keeps_times=keep_times,
        is_dry=dry_run,
    )

    def body(run: "Run") -> "Summary":
        pipeline.check(options)
        return pipeline.run(run.spark(), options, run)

    where.run("replay", options.identity(), body)


def _moment(option: str, text: str | None) -> int | None:
    try:
        return None if text is None else parse_moment(text)
    except InvalidRequestError as error:
        raise OptionError(f"{option} {error}") from None
