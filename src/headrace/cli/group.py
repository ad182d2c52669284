"""`headrace group`: list groups, show how far they are, move and delete them."""

from collections.abc import Sequence
from typing import Annotated

import typer

from headrace.cli.group_lag import GroupView, look, view_json
from headrace.cli.group_reset import reset
from headrace.cli.group_watch import watch
from headrace.cli.name import GroupArgument, GroupsArgument
from headrace.cli.output import App, Group, JsonOption, emit_json, emit_table, notice, people
from headrace.cli.session import (
    DEFAULT_SERVER,
    DEFAULT_TIMEOUT,
    TIMEOUT_S_MAX,
    ServerOption,
    TimeoutOption,
    session,
    with_client,
)
from headrace.cli.sure import YesOption, make_sure

app = App(cls=Group, no_args_is_help=True, help="List groups, show how far they are, move and delete them.")
app.command()(reset)

INTERVAL_DEFAULT = 2.0


@app.command("list")
def list_groups(
    *,
    server: ServerOption = DEFAULT_SERVER,
    timeout: TimeoutOption = DEFAULT_TIMEOUT,
    as_json: JsonOption = False,
) -> None:
    """List the groups: classic, consumer (KIP-848) and share groups.

    [bold]Example[/]

    [cyan]headrace group list[/]
    """
    found = with_client(server, timeout, lambda client: client.groups.list())
    if as_json:
        emit_json([{"name": g.name, "type": g.kind, "state": g.state, "protocol": g.protocol_type} for g in found])
    elif found:
        emit_table(("group", "type", "state", "protocol"), [(g.name, g.kind, g.state, g.protocol_type) for g in found])
    else:
        notice("There are no groups yet; a consumer with a group.id makes one.")


@app.command()
def describe(
    name: GroupArgument,
    *,
    watching: Annotated[
        bool, typer.Option("--watch", "-w", help="Look again and again, with rates, until Ctrl-C.")
    ] = False,
    interval: Annotated[
        float,
        typer.Option(
            "--interval", metavar="SECONDS", min=0.1, max=TIMEOUT_S_MAX, help="How often to look, with --watch."
        ),
    ] = INTERVAL_DEFAULT,
    count: Annotated[
        int | None, typer.Option("--count", "-c", metavar="N", min=1, help="Look so often, with --watch.")
    ] = None,
    server: ServerOption = DEFAULT_SERVER,
    timeout: TimeoutOption = DEFAULT_TIMEOUT,
    as_json: JsonOption = False,
) -> None:
    """Show what a group has committed, how far behind it is, and who its members are.

    [bold]Examples[/]

    [cyan]headrace group describe billing[/]

    [cyan]headrace group describe billing --watch[/]
    """
    with session(server, timeout) as opened:
        if watching:
            watch(opened, name, interval_s=interval, count_max=count, as_json=as_json)
            return
        view = opened.run(look(opened.client, name))
    if as_json:
        emit_json(view_json(view))
    else:
        _show(view)


def _show(view: GroupView) -> None:
    group = view.group
    count = len(group.members)
    assignor = f", {group.assignor}" if group.assignor else ""
    people().print(
        f"[bold]{group.name}[/]  {group.kind} group, {group.state}, {count} member{'s' * (count != 1)}{assignor}; "
        f"lag {view.lag}",
    )
    if view.partitions:
        emit_table(
            ("topic", "partition", "committed", "end offset", "lag", "member"),
            [
                (*one.at, one.committed, one.end, one.lag, None if one.member is None else one.member.client_id)
                for one in view.partitions
            ],
        )
    else:
        notice("It has committed nothing yet.")
    if group.members:
        emit_table(
            ("member", "client", "host", "instance", "partitions"),
            [(m.member_id, m.client_id, m.host, m.instance_id, _places(m.partitions)) for m in group.members],
        )


def _places(partitions: Sequence[object]) -> str:
    return ", ".join(map(str, partitions)) or "-"


@app.command()
def delete(
    names: GroupsArgument,
    *,
    yes: YesOption = False,
    server: ServerOption = DEFAULT_SERVER,
    timeout: TimeoutOption = DEFAULT_TIMEOUT,
    as_json: JsonOption = False,
) -> None:
    """Delete groups with everything that they have committed. A group that has members is not deleted.

    [bold]Example[/]

    [cyan]headrace group delete billing --yes[/]
    """
    names = list(dict.fromkeys(names))
    make_sure(f"Delete {', '.join(names)} with its offsets?", yes=yes)
    with_client(server, timeout, lambda client: client.groups.delete(names))
    if as_json:
        emit_json({"deleted": names})
    else:
        people().print(f"Deleted {', '.join(names)}.")
