"""`headrace queue redrive` and `headrace queue readers`."""

import threading
from typing import Annotated

import msgspec
import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

from headrace.cli.moment import parse_moment, show_moment
from headrace.cli.name import QueueArgument, check_names
from headrace.cli.output import JsonOption, emit_json, emit_table, fail, notice, people
from headrace.cli.queue_session import HttpOption, queue_client
from headrace.cli.session import DEFAULT_TIMEOUT, TimeoutOption
from headrace.client.queue.description import Redrive, RedriveFilter
from headrace.client.queue.sync import Queue
from headrace.client.settings import DEFAULT_HTTP

LOOK_S = 0.2
RATE_MAX = 1_000_000

_FILTER = "Which dead letters"
TargetOption = Annotated[
    str | None,
    typer.Option(
        "--to",
        metavar="QUEUE",
        help="Where they go. [dim]default: back to where they came from[/]",
        callback=check_names,
    ),
]
RateOption = Annotated[
    int | None, typer.Option("--rate", metavar="N", min=1, max=RATE_MAX, help="At most so many a second.")
]
ReasonOption = Annotated[
    str | None, typer.Option("--reason", metavar="TEXT", help="With this in their reason.", rich_help_panel=_FILTER)
]
KeyOption = Annotated[
    str | None, typer.Option("--key", "-k", metavar="TEXT", help="With this key.", rich_help_panel=_FILTER)
]
SourceOption = Annotated[
    str | None,
    typer.Option(
        "--source", metavar="QUEUE", help="That came from there.", rich_help_panel=_FILTER, callback=check_names
    ),
]
BeforeOption = Annotated[
    str | None, typer.Option("--before", metavar="TIME", help="Sent before this time.", rich_help_panel=_FILTER)
]
AfterOption = Annotated[
    str | None, typer.Option("--after", metavar="TIME", help="Sent after this time.", rich_help_panel=_FILTER)
]
ContainsOption = Annotated[
    str | None, typer.Option("--contains", metavar="TEXT", help="With this in their body.", rich_help_panel=_FILTER)
]
FollowOption = Annotated[bool, typer.Option("--follow/--no-follow", help="Stay until it is done.")]
StatusOption = Annotated[bool, typer.Option("--status", help="Start nothing; show the last ones.")]
CancelOption = Annotated[str | None, typer.Option("--cancel", metavar="ID", help="Start nothing; end this one.")]


def redrive(
    name: QueueArgument,
    *,
    target: TargetOption = None,
    rate: RateOption = None,
    reason: ReasonOption = None,
    key: KeyOption = None,
    source: SourceOption = None,
    before: BeforeOption = None,
    after: AfterOption = None,
    contains: ContainsOption = None,
    follow: FollowOption = True,
    status: StatusOption = False,
    cancel: CancelOption = None,
    http: HttpOption = DEFAULT_HTTP,
    timeout: TimeoutOption = DEFAULT_TIMEOUT,
    as_json: JsonOption = False,
) -> None:
    """Send dead letters back to the queues that they came from.

    It goes on in the node whether this command stays or not, and survives the node's restart.

    [bold]Examples[/]

    [cyan]headrace queue redrive tasks-dead[/]

    [cyan]headrace queue redrive tasks-dead --reason timeout --rate 50 --to tasks-slow[/]

    [cyan]headrace queue redrive tasks-dead --status[/]
    """
    chosen = RedriveFilter(
        reason=reason,
        key=key,
        source=source,
        sent_before_ms=None if before is None else parse_moment(before),
        sent_after_ms=None if after is None else parse_moment(after),
        body_contains=contains,
    )
    with queue_client(http, timeout) as client:
        queue = client.queue(name)
        if status:
            _show(queue.redrives(), as_json=as_json)
            return
        if cancel is not None:
            _show([queue.cancel_redrive(cancel)], as_json=as_json)
            return
        started = queue.redrive(target=target, filter=chosen, rate=rate)
        ended = _follow(queue, started) if follow else started
        _show([ended], as_json=as_json)
        if ended.state == "failed":
            fail(f"the redrive failed: {ended.failure}")


def _follow(queue: Queue, started: Redrive) -> Redrive:
    """Look until it is over, with a bar for a person."""
    console = Console(stderr=True)
    columns = (TextColumn("redriving"), BarColumn(), MofNCompleteColumn())
    pause = threading.Event()
    current = started
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as progress:
        task = progress.add_task("", total=started.total)
        while current.state == "running":
            pause.wait(LOOK_S)
            current = next((r for r in queue.redrives() if r.id == started.id), current)
            progress.update(task, completed=current.moved + current.skipped, total=current.total)
    return current


def _show(found: list[Redrive], *, as_json: bool) -> None:
    if as_json:
        emit_json([msgspec.to_builtins(redrive) for redrive in found])
    elif found:
        emit_table(
            ("id", "state", "moved", "skipped", "of", "to", "started", "failure"),
            [
                (
                    r.id,
                    r.state,
                    r.moved,
                    r.skipped,
                    r.total,
                    r.target or "their source",
                    show_moment(r.started_ms),
                    r.failure,
                )
                for r in found
            ],
        )
    else:
        notice("There was no redrive of late.")


def readers(
    name: QueueArgument,
    *,
    remove: Annotated[str | None, typer.Option("--remove", metavar="READER", help="Forget this reader.")] = None,
    http: HttpOption = DEFAULT_HTTP,
    timeout: TimeoutOption = DEFAULT_TIMEOUT,
    as_json: JsonOption = False,
) -> None:
    """List the named readers by offset, which keep messages from being dropped before they have read them.

    [bold]Examples[/]

    [cyan]headrace queue readers tasks[/]

    [cyan]headrace queue readers tasks --remove nightly-export[/]
    """
    with queue_client(http, timeout) as client:
        queue = client.queue(name)
        if remove is not None:
            queue.remove_reader(remove)
        found = queue.readers()
    if as_json:
        emit_json([msgspec.to_builtins(reader, str_keys=True) for reader in found])
        return
    if remove is not None:
        people().print(f"Forgot the reader {remove}.", markup=False)
    if found:
        rows = [(reader.name, partition, offset) for reader in found for partition, offset in reader.positions.items()]
        emit_table(("reader", "partition", "next offset"), rows)
    else:
        notice(f"Nobody reads [bold]{name}[/] by offset under a name.")
