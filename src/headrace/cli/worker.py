"""`headrace worker`: run a handler of yours for the messages of a queue."""

import importlib
import sys
import traceback
from enum import Enum
from pathlib import Path
from typing import Annotated, Any

import typer

import headrace
from headrace.app.config import LoggingConfig
from headrace.app.logs import configure_logging
from headrace.cli.name import check_names
from headrace.cli.output import EXIT_FAILED, fail, notice
from headrace.cli.queue_session import check_http, parse_optional_span
from headrace.client.settings import DEFAULT_HTTP
from headrace.client.worker.worker import Worker, checked_config
from headrace.model.errors import HeadraceError, InvalidConfigError

HandlerArgument = Annotated[
    str, typer.Argument(metavar="MODULE:HANDLER", help="A function, or what @headrace.worker made of it.")
]
QueueOption = Annotated[
    str | None,
    typer.Option(
        "--queue", "-q", metavar="QUEUE", help="Which queue. [dim]default: the decorator's[/]", callback=check_names
    ),
]
ConcurrencyOption = Annotated[
    int | None,
    typer.Option(
        "--concurrency", "-c", metavar="N", min=1, help="Handlers at once. [dim]default: the decorator's, 10[/]"
    ),
]
LeaseOption = Annotated[
    str | None,
    typer.Option("--lease", metavar="TIME", help="How soon others get the messages of a worker that died."),
]
PrefetchOption = Annotated[
    int | None, typer.Option("--prefetch", metavar="N", min=0, help="Messages to take beyond those being handled.")
]
GraceOption = Annotated[
    str | None, typer.Option("--grace", metavar="TIME", help="How long a stop waits for handlers. [dim]default: 30s[/]")
]
ServerOption = Annotated[
    str,
    typer.Option(
        "--http",
        "--server",
        metavar="HOST:PORT[,...]",
        envvar="HEADRACE_HTTP",
        help=f"Where the node listens for HTTP clients. [dim]default: {DEFAULT_HTTP}[/]",
        show_default=False,
    ),
]


class LogLevel(Enum):
    DEBUG = "debug"
    INFO = "info"
    WARNING = "warning"
    ERROR = "error"


class LogFormat(Enum):
    HUMAN = "human"
    JSON = "json"


LogFormatOption = Annotated[LogFormat, typer.Option("--log-format", help="How log lines look.")]
LogLevelOption = Annotated[LogLevel, typer.Option("--log-level", help="Which log lines there are.")]


def worker(
    handler: HandlerArgument,
    *,
    queue: QueueOption = None,
    concurrency: ConcurrencyOption = None,
    lease: LeaseOption = None,
    prefetch: PrefetchOption = None,
    grace: GraceOption = None,
    http: ServerOption = DEFAULT_HTTP,
    log_level: LogLevelOption = LogLevel.INFO,
    log_format: LogFormatOption = LogFormat.HUMAN,
) -> None:
    """Call a handler for each message of a queue, until Ctrl-C or SIGTERM.

    A message whose handler returns is done; one whose handler raises comes again later. A stop lets handlers
    finish within the grace and gives back what was not begun; a second Ctrl-C does not wait.

    [bold]Examples[/]

    [cyan]headrace worker teashop:brew[/]

    [cyan]headrace worker teashop:brew --queue tasks --concurrency 50 --grace 10s[/]
    """
    configure_logging(LoggingConfig(level=log_level.value, format=log_format.value))
    given = {
        "queue": queue,
        "concurrency": concurrency,
        "lease_s": parse_optional_span(lease),
        "prefetch": prefetch,
        "grace_s": parse_optional_span(grace),
    }
    changes = {name: value for name, value in given.items() if value is not None}
    found = _load(handler)
    if not isinstance(found, Worker) and queue is None:
        fail(f"{handler} says no queue; add --queue, or decorate it with @headrace.worker('tasks')")
    try:
        chosen = found.configured(**changes) if isinstance(found, Worker) else Worker(found, checked_config(**changes))
    except InvalidConfigError as error:
        raise typer.BadParameter(str(error)) from None
    check_http(http)
    if not chosen.run(http):
        notice("Some handlers were not done in time; their messages were given back, or come again when leases end.")
        raise typer.Exit(EXIT_FAILED)


def _place(error: BaseException) -> str:
    """The line of the user's that an error came from: the last that is not headrace's."""
    own = str(Path(headrace.__file__).parent)
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if not frame.filename.startswith((own, "<"))]
    return f"{frames[-1].filename}, line {frames[-1].lineno}" if frames else type(error).__name__


def _load(path: str) -> Any:
    """The object that `module:name` names, where the module may be in the current directory."""
    module_name, colon, name = path.partition(":")
    if not colon or not module_name or not name:
        raise typer.BadParameter(f"{path!r} is not of the form MODULE:HANDLER, for example teashop:brew")
    if not all(part.isidentifier() for part in module_name.split(".")):
        raise typer.BadParameter(
            f"{module_name!r} is no name of a module; write teashop for teashop.py, a.b for a/b.py"
        )
    sys.path.insert(0, str(Path.cwd()))
    try:
        found: Any = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{module_name}.".startswith(f"{error.name}."):
            raise
        # Also of teashop.py, which is a file.
        hint = f"; write {module_name.removesuffix('.py')}:{name}" if module_name.endswith(".py") else ""
        fail(f"there is no module {error.name} here or among the installed ones; is this the right directory?{hint}")
    except (HeadraceError, OSError) as error:
        # Elsewhere their text is enough. Here they come from the user's code, who needs to know from where.
        fail(f"{module_name} cannot be imported, because of {_place(error)}: {error}")
    for part in name.split("."):
        if not hasattr(found, part):
            fail(f"{module_name} has no {name}; the handler is a function of that module")
        found = getattr(found, part)
    if not callable(found):
        fail(f"{path} is no function; name a handler that takes a message")
    return found
