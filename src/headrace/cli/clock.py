"""`headrace clock`: whether a node believes its machine's clock, and a way to say that it is right."""

from datetime import UTC, datetime

import msgspec

from headrace.cli.output import App, Group, JsonOption, emit_json, people
from headrace.cli.queue_session import DEFAULT_ADMIN, AdminOption, HttpOption, queue_client, show_span
from headrace.cli.session import DEFAULT_TIMEOUT, TimeoutOption
from headrace.cli.sure import YesOption, make_sure
from headrace.client.queue.description import ClockReport
from headrace.client.settings import DEFAULT_HTTP

app = App(cls=Group, no_args_is_help=True, help="See whether a node believes its machine's clock; confirm it.")


@app.command()
def show(
    *, http: HttpOption = DEFAULT_HTTP, timeout: TimeoutOption = DEFAULT_TIMEOUT, as_json: JsonOption = False
) -> None:
    """Show the node's clock, and whether it has jumped.

    [bold]Example[/]

    [cyan]headrace clock show[/]
    """
    with queue_client(http, timeout) as client:
        _tell(client.clock(), as_json=as_json)


@app.command()
def confirm(
    *,
    yes: YesOption = False,
    admin: AdminOption = DEFAULT_ADMIN,
    timeout: TimeoutOption = DEFAULT_TIMEOUT,
    as_json: JsonOption = False,
) -> None:
    """Have the node believe its clock after a jump. What is too old by that clock is then deleted by retention.

    Nodes take this at their administrator's address.

    [bold]Example[/]

    [cyan]headrace clock confirm --yes[/]
    """
    with queue_client(admin, timeout) as client:
        found = client.clock()
        if not found.is_believed:
            make_sure(f"Is it {_moment(found.wall_ms)} now, and may messages that are too old by that go?", yes=yes)
        _tell(client.confirm_clock(), as_json=as_json)


def _tell(found: ClockReport, *, as_json: bool) -> None:
    if as_json:
        emit_json(msgspec.to_builtins(found))
    elif found.is_believed:
        people().print(f"The node's clock says {_moment(found.wall_ms)}, and is believed.")
    else:
        people().print(
            f"The node's clock says {_moment(found.wall_ms)}, and has jumped: retention goes by "
            f"{_moment(found.trusted_ms)}. Set it right, or confirm it with [cyan]headrace clock confirm[/]. It is "
            f"believed by itself in {show_span(found.believed_in_ms // 1000)}, unless it jumps again."
        )


def _moment(time_ms: int) -> str:
    return datetime.fromtimestamp(time_ms / 1000, UTC).isoformat(sep=" ", timespec="seconds").replace("+00:00", " UTC")
