"""`headrace queue`: make queues, look at them and into them, and change them."""

import sys
from collections.abc import Sequence
from enum import Enum
from typing import Annotated, Any

import msgspec
import typer
from rich.markup import escape

from headrace.cli.name import QueueArgument
from headrace.cli.output import App, Group, JsonOption, emit_json, emit_table, fail, notice, people
from headrace.cli.queue_redrive import readers, redrive
from headrace.cli.queue_session import (
    DEFAULT_ADMIN,
    AdminOption,
    HttpOption,
    queue_client,
)
from headrace.cli.queue_setting import parse_settings, show_setting
from headrace.cli.queue_text import DEATH_COLUMNS, browsed_to_json, death_of, short_body, show_optional_moment
from headrace.cli.session import DEFAULT_TIMEOUT, TimeoutOption, parse_pairs
from headrace.cli.sure import YesOption, make_sure
from headrace.client.queue import description as wire
from headrace.client.queue.description import BrowsedMessage, Description, OfflinePartition
from headrace.client.settings import DEFAULT_HTTP
from headrace.model.errors import QueueExistsError, TopicHasRecordsError
from headrace.model.queue import default_dead_letter
from headrace.model.topic import Durability

app = App(cls=Group, no_args_is_help=True, help="Make queues, look at them and into them, and change them.")
app.command()(redrive)
app.command()(readers)

PAGE = 100
PARTITIONS_MAX = 10_000

SetOption = Annotated[
    list[str] | None,
    typer.Option("--set", "-s", metavar="KEY=VALUE", help="A setting; may be given several times. none is no limit."),
]


class State(Enum):
    DELAYED = "delayed"
    VISIBLE = "visible"
    LEASED = "leased"
    BLOCKED = "blocked"
    DYING = "dying"
    ACKNOWLEDGED = "acknowledged"


@app.command("list")
def list_queues(
    *,
    prefix: Annotated[str, typer.Option("--prefix", metavar="TEXT", help="Only names that begin so.")] = "",
    http: HttpOption = DEFAULT_HTTP,
    timeout: TimeoutOption = DEFAULT_TIMEOUT,
    as_json: JsonOption = False,
) -> None:
    """List the queues and what is in them.

    [bold]Example[/]

    [cyan]headrace queue list --prefix tasks[/]
    """
    with queue_client(http, timeout) as client:
        found = client.describe_queues(prefix)
    if as_json:
        emit_json([_description_json(description) for description in found])
    elif found:
        columns = ("queue", "visible", "leased", "delayed", "dead-lettered", "oldest")
        emit_table(
            columns,
            [
                (d.name, c.visible, c.leased, c.delayed, c.dead_lettered, show_optional_moment(c.oldest_ms))
                for d in found
                for c in (d.counts,)
            ],
        )
        for description in found:
            _tell_offline(description.name, description.offline)
    else:
        notice("There are no queues yet; make one with [cyan]headrace queue create NAME[/], or send to it.")


@app.command()
def create(
    name: QueueArgument,
    *,
    partitions: Annotated[
        int | None,
        typer.Option(
            "--partitions", "-p", min=1, max=PARTITIONS_MAX, help="How many partitions. [dim]default: the node's[/]"
        ),
    ] = None,
    durability: Annotated[
        Durability | None, typer.Option("--durability", help="What an answer promises. [dim]default: the node's[/]")
    ] = None,
    settings: SetOption = None,
    if_missing: Annotated[
        bool, typer.Option("--if-missing", help="Be content if it exists, however it is set.")
    ] = False,
    convert: Annotated[
        bool, typer.Option("--convert", help="Make a queue of a topic that holds records, without asking.")
    ] = False,
    http: HttpOption = DEFAULT_HTTP,
    timeout: TimeoutOption = DEFAULT_TIMEOUT,
    as_json: JsonOption = False,
) -> None:
    """Make a queue. One that exists with the same settings is left as it is.

    A topic of this name becomes a queue. If it holds records, the command says what will change and asks first.

    [bold]Examples[/]

    [cyan]headrace queue create tasks --set lease=1m --set max_deliveries=5[/]

    [cyan]headrace queue create mails -s ordered=true -s guarantee=exactly_once -s backoff=10s-10m[/]
    """
    config = parse_settings(parse_pairs(settings or []))
    with queue_client(http, timeout) as client:
        queue = client.queue(name)

        def make(*, convert: bool) -> Description:
            chosen = None if durability is None else durability.value
            return queue.create(partitions=partitions, durability=chosen, convert=convert, **config)

        try:
            try:
                made = make(convert=convert)
            except TopicHasRecordsError as error:
                _confirm_conversion(name, error)
                made = make(convert=True)
        except QueueExistsError:
            if not if_missing:
                raise
            made = queue.describe()
    if as_json:
        emit_json(_description_json(made))
    else:
        count = made.partitions
        people().print(
            f"[bold]{made.name}[/] is there, with {count} partition{'s' * (count != 1)} ({made.durability})."
        )


def _confirm_conversion(name: str, error: TopicHasRecordsError) -> None:
    if not sys.stdin.isatty():
        fail(f"{error.changes} To confirm, add --convert.")
    notice(escape(error.changes))
    typer.confirm(f"Convert {name} to a queue?", abort=True)


@app.command()
def describe(
    name: QueueArgument,
    *,
    http: HttpOption = DEFAULT_HTTP,
    timeout: TimeoutOption = DEFAULT_TIMEOUT,
    as_json: JsonOption = False,
) -> None:
    """Show what a queue holds, what became of its messages, and its settings.

    [bold]Example[/]

    [cyan]headrace queue describe tasks[/]
    """
    with queue_client(http, timeout) as client:
        description = client.queue(name).describe()
    if as_json:
        emit_json(_description_json(description))
        return
    count = description.partitions
    people().print(f"[bold]{name}[/]  {count} partition{'s' * (count != 1)}, durability {description.durability}")
    counts = msgspec.structs.asdict(description.counts)
    counts["oldest"] = show_optional_moment(counts.pop("oldest_ms"))
    emit_table(("messages", "count"), [(label.replace("_", " "), value) for label, value in counts.items()])
    rows = {setting: show_setting(setting, value) for setting, value in description.config.items()}
    if description.config.get("dead_letter") is None and description.config.get("max_deliveries") is not None:
        rows["dead_letter"] = f"{default_dead_letter(name)} (by default)"
    emit_table(("setting", "value"), rows.items())
    _tell_offline(name, description.offline)


@app.command()
def update(
    name: QueueArgument,
    *,
    settings: SetOption = None,
    http: HttpOption = DEFAULT_HTTP,
    timeout: TimeoutOption = DEFAULT_TIMEOUT,
    as_json: JsonOption = False,
) -> None:
    """Change a queue's settings. What is not named stays as it is.

    [bold]Example[/]

    [cyan]headrace queue update tasks --set lease=2m --set ttl=none[/]
    """
    changes = parse_settings(parse_pairs(settings or []))
    if not changes:
        raise typer.BadParameter("nothing to change; give --set")
    with queue_client(http, timeout) as client:
        description = client.queue(name).update(**changes)
    if as_json:
        emit_json(_description_json(description))
    else:
        shown = ", ".join(f"{key}={show_setting(key, description.config.get(key))}" for key in changes)
        people().print(f"[bold]{name}[/] has {shown} now.")


@app.command()
def delete(
    name: QueueArgument,
    *,
    yes: YesOption = False,
    admin: AdminOption = DEFAULT_ADMIN,
    timeout: TimeoutOption = DEFAULT_TIMEOUT,
    as_json: JsonOption = False,
) -> None:
    """Delete a queue with everything in it. Nodes take this at their administrator's address.

    [bold]Example[/]

    [cyan]headrace queue delete tasks --yes[/]
    """
    make_sure(f"Delete {name} with every message in it?", yes=yes)
    with queue_client(admin, timeout) as client:
        client.queue(name).delete()
    if as_json:
        emit_json({"deleted": name})
    else:
        people().print(f"Deleted {name}.")


@app.command()
def purge(
    name: QueueArgument,
    *,
    yes: YesOption = False,
    http: HttpOption = DEFAULT_HTTP,
    timeout: TimeoutOption = DEFAULT_TIMEOUT,
    as_json: JsonOption = False,
) -> None:
    """Drop every message that a queue holds now. The queue stays.

    [bold]Example[/]

    [cyan]headrace queue purge tasks --yes[/]
    """
    make_sure(f"Drop every message of {name}?", yes=yes)
    with queue_client(http, timeout) as client:
        count = client.queue(name).purge()
    if as_json:
        emit_json({"purged": count})
    else:
        people().print(f"Dropped {count} message{'s' * (count != 1)} of [bold]{name}[/].")


@app.command()
def browse(
    name: QueueArgument,
    *,
    state: Annotated[State | None, typer.Option("--state", help="Only those in this state.")] = None,
    count: Annotated[int, typer.Option("--count", "-c", metavar="N", min=1, help="How many at most.")] = 20,
    http: HttpOption = DEFAULT_HTTP,
    timeout: TimeoutOption = DEFAULT_TIMEOUT,
    as_json: JsonOption = False,
) -> None:
    """Look at messages without taking them.

    [bold]Examples[/]

    [cyan]headrace queue browse tasks[/]

    [cyan]headrace queue browse tasks --state delayed --count 100 --json[/]
    """
    found: list[BrowsedMessage] = []
    after: str | None = None
    offline: list[OfflinePartition] = []
    chosen: wire.State | None = None if state is None else state.value
    with queue_client(http, timeout) as client:
        while len(found) < count:
            page = client.queue(name).browse(state=chosen, limit=min(count - len(found), PAGE), after=after)
            found += page.messages
            offline = page.offline
            after = page.next
            if after is None:
                break
    if as_json:
        for message in found:
            emit_json(browsed_to_json(message))
    elif found:
        deaths = [death_of(m) for m in found]
        is_dead = any(deaths)
        emit_table(
            (
                *("id", "state", "due", "attempt", "priority", "sent", "key", "body"),
                *(DEATH_COLUMNS if is_dead else ()),
            ),
            [
                (
                    *(m.id, m.state, show_optional_moment(m.due_ms), m.attempt, m.priority),
                    *(show_optional_moment(m.sent_ms), None if m.key is None else short_body(m.key)),
                    short_body(m.body),
                    *(tuple(map(death.get, DEATH_COLUMNS)) if is_dead else ()),
                )
                for m, death in zip(found, deaths, strict=True)
            ],
        )
    else:
        notice(f"There is nothing in [bold]{name}[/]" + (f" that is {state.value}." if state else "."))
    _tell_offline(name, offline)


@app.command()
def explain(
    name: QueueArgument,
    *,
    id: Annotated[str | None, typer.Option("--id", metavar="ID", help="Where is this message?")] = None,
    key: Annotated[
        str | None, typer.Option("--key", "-k", metavar="TEXT", help="Why does this key stand still?")
    ] = None,
    http: HttpOption = DEFAULT_HTTP,
    timeout: TimeoutOption = DEFAULT_TIMEOUT,
    as_json: JsonOption = False,
) -> None:
    """Say where a message is and since when, or what holds up a key of an ordered queue.

    [bold]Examples[/]

    [cyan]headrace queue explain tasks --id 0-42[/]

    [cyan]headrace queue explain mails --key alice[/]
    """
    if (id is None) == (key is None):
        raise typer.BadParameter("give one of --id and --key")
    with queue_client(http, timeout) as client:
        explanation = client.queue(name).explain(id=id, key=key)
    if as_json:
        emit_json(msgspec.to_builtins(explanation))
        return
    people().print(explanation.text, markup=False)
    emit_table(
        ("id", "state", "attempt", "since", "until", "waiting behind it"),
        [
            (
                *(explanation.id, explanation.state, explanation.attempt),
                *(show_optional_moment(explanation.since_ms), show_optional_moment(explanation.until_ms)),
                explanation.waiting,
            )
        ],
    )


def _tell_offline(name: str, offline: Sequence[OfflinePartition]) -> None:
    """What the figures and pages leave out."""
    for one in offline:
        notice(f"[bold]{name}[/]: partition {one.partition} is offline and not counted: {escape(one.reason)}")


def _description_json(description: Description) -> Any:
    return msgspec.to_builtins(description)
