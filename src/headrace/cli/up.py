"""`headrace up`: start a node in the foreground and stop it gracefully."""

import errno
import os
from typing import TYPE_CHECKING, Annotated

import typer
from rich.markup import escape

from headrace import __version__
from headrace.app.config import NodeConfig, load
from headrace.app.logs import configure_logging
from headrace.cli.output import JsonOption, emit_json, fail, people

if TYPE_CHECKING:
    from headrace.app.node import Node


DataOption = Annotated[str | None, typer.Option("--data", metavar="DIR", help="Data directory. [dim]default: data[/]")]
KafkaOption = Annotated[
    str | None,
    typer.Option("--kafka", metavar="HOST:PORT", help="Where Kafka clients connect. [dim]default: 127.0.0.1:9092[/]"),
]
HttpOption = Annotated[
    str | None,
    typer.Option(
        "--http",
        metavar="HOST:PORT",
        help="Where HTTP clients connect: REST, SQS, health, metrics. [dim]default: 127.0.0.1:8080[/]",
    ),
]
AdminListenOption = Annotated[
    str | None,
    typer.Option(
        "--admin-listen",
        metavar="HOST:PORT",
        help="Where administrators connect, who may delete queues too. "
        "[dim]default: the port after that of --http, on this machine only[/]",
    ),
]
AdvertiseOption = Annotated[
    str | None,
    typer.Option(
        "--advertise", metavar="HOST:PORT", help="What Kafka clients are told to connect to, where that differs."
    ),
]
ConfigOption = Annotated[
    str | None,
    typer.Option("--config", metavar="FILE", envvar="HEADRACE_CONFIG", help="Configuration file (TOML)."),
]
NodeIdOption = Annotated[str | None, typer.Option("--node-id", metavar="N", help="This node's number.")]
AutoCreateOption = Annotated[
    bool | None,
    typer.Option("--auto-create/--no-auto-create", help="Whether a topic is made when a client first uses it."),
]
InsecureListenOption = Annotated[
    bool | None,
    typer.Option(
        "--insecure-listen",
        help="Allow addresses that other machines can reach, although there is no authentication yet.",
    ),
]
LogLevelOption = Annotated[
    str | None, typer.Option("--log-level", metavar="LEVEL", help="debug, info, warning or error.")
]
LogFormatOption = Annotated[str | None, typer.Option("--log-format", metavar="FORM", help="human or json.")]


def up(
    *,
    data: DataOption = None,
    kafka: KafkaOption = None,
    http: HttpOption = None,
    admin_listen: AdminListenOption = None,
    advertise: AdvertiseOption = None,
    config: ConfigOption = None,
    node_id: NodeIdOption = None,
    auto_create: AutoCreateOption = None,
    insecure_listen: InsecureListenOption = None,
    log_level: LogLevelOption = None,
    log_format: LogFormatOption = None,
    as_json: JsonOption = False,
) -> None:
    """Start a node. It runs until Ctrl-C or SIGTERM, and then stops without losing anything acknowledged.

    Without options it listens on this machine only. Flags override the environment (HEADRACE_...), and that
    overrides the file; `headrace config show` prints what comes of it.

    [bold]Examples[/]

    [cyan]headrace up[/]

    [cyan]headrace up --data /var/lib/headrace --kafka 127.0.0.1:9192[/]

    [cyan]headrace up --config headrace.toml --log-format json[/]
    """
    given = {
        "data": ("--data", data),
        "kafka.listen": ("--kafka", kafka),
        "http.listen": ("--http", http),
        "http.admin_listen": ("--admin-listen", admin_listen),
        "kafka.advertise": ("--advertise", advertise),
        "node_id": ("--node-id", node_id),
        "topics.auto_create": ("--auto-create" if auto_create else "--no-auto-create", _text(auto_create)),
        "insecure_listen": ("--insecure-listen", _text(insecure_listen)),
        "logging.level": ("--log-level", log_level),
        "logging.format": ("--log-format", log_format),
    }
    flags = {path: (flag, text) for path, (flag, text) in given.items() if text is not None}
    loaded = load(file=config, environment=os.environ, flags=flags)
    configure_logging(loaded.config.logging)
    _serve(loaded.config, as_json=as_json)


def _text(switch: bool | None) -> str | None:
    return None if switch is None else str(switch).lower()


def _serve(config: NodeConfig, *, as_json: bool) -> None:
    # Imported here: the other commands are clients, and start faster without the node.
    import uvloop

    from headrace.app import node

    def ready(started: "Node") -> None:
        if as_json:
            emit_json(
                {
                    "node_id": config.node_id,
                    "kafka": str(started.kafka_address),
                    "http": str(started.http_address),
                    "admin": str(started.http_admin_address),
                    "data": config.data,
                    "pid": os.getpid(),
                }
            )
        else:
            _welcome(config, str(started.kafka_address), str(started.http_address))

    try:
        uvloop.run(node.run(config, ready=ready))
    except OSError as error:
        fail(reason_of(error, config))


_LISTEN_ERRORS = frozenset({errno.EADDRNOTAVAIL, errno.EACCES, errno.EAFNOSUPPORT})
_SPACE_ERRORS = frozenset({errno.ENOSPC, errno.EDQUOT})
# Making a directory where a file is, or below one.
_NO_DIRECTORY_ERRORS = frozenset({errno.EEXIST, errno.ENOTDIR})


def reason_of(error: OSError, config: NodeConfig) -> str:
    """The machine's refusal in words."""
    code = error.errno or 0
    if code in _SPACE_ERRORS:
        return f"{config.data}: {os.strerror(code)}; free some space, or choose another directory with --data"
    if code in _NO_DIRECTORY_ERRORS:
        return f"{error.filename or config.data} is no directory; choose one with --data"
    if error.filename is not None:
        return f"{error.filename}: {os.strerror(code)}; can this user read and write there?"
    if code == errno.EADDRINUSE:
        return f"{config.kafka.listen} is in use by another program; stop that or choose another address with --kafka"
    # Below zero are the resolver's codes: the host's name means nothing here.
    if code in _LISTEN_ERRORS or code < 0:
        return f"{config.kafka.listen} cannot be listened on: {error.strerror}"
    return f"the node stopped, with its data in {config.data}: {error}"


def _welcome(config: NodeConfig, kafka: str, http: str) -> None:
    server = "" if kafka == "127.0.0.1:9092" else f" --server {kafka}"
    address = "" if http == "127.0.0.1:8080" else f" --http {http}"
    people().print(
        f"[bold]headrace {__version__}[/] node {config.node_id}, data in {escape(config.data)}\n"
        f"  Kafka clients connect to [bold green]{kafka}[/]\n"
        f"  Queues, health and metrics are at [bold green]http://{http}/[/]\n\n"
        "Try, in another terminal, a queue:\n"
        f"  [cyan]headrace send tasks 'one tea'{address}[/]\n"
        f"  [cyan]headrace receive tasks{address}[/]\n\n"
        "or a stream:\n"
        f"  [cyan]echo hello | headrace produce orders{server}[/]\n"
        f"  [cyan]headrace consume orders{server}[/]\n\n"
        "Ctrl-C stops the node.",
    )
