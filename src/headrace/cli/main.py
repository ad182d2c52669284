"""The command line: one typer application, one module for each command or group of commands."""

import os
import sys
import warnings
from pathlib import Path
from typing import Annotated

import typer

from headrace import __version__
from headrace.cli import (
    bench,
    clock,
    config,
    consume,
    group,
    log,
    pipeline,
    produce,
    queue,
    receive,
    send,
    topic,
    up,
    worker,
)
from headrace.cli.output import App, Group

app = App(
    cls=Group,
    name="headrace",
    no_args_is_help=True,
    rich_markup_mode="rich",
    pretty_exceptions_show_locals=False,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110},
)

app.command("up", rich_help_panel="The node")(up.up)
app.add_typer(config.app, name="config", rich_help_panel="The node")
app.add_typer(clock.app, name="clock", rich_help_panel="The node")
app.add_typer(log.app, name="log", rich_help_panel="The node")
app.add_typer(queue.app, name="queue", rich_help_panel="Queues")
app.command("send", rich_help_panel="Queues")(send.send)
app.command("receive", rich_help_panel="Queues")(receive.receive)
app.command("worker", rich_help_panel="Queues")(worker.worker)
app.add_typer(topic.app, name="topic", rich_help_panel="Streams")
app.command("produce", rich_help_panel="Streams")(produce.produce)
app.command("consume", rich_help_panel="Streams")(consume.consume)
app.add_typer(group.app, name="group", rich_help_panel="Streams")
app.add_typer(bench.app, name="bench", rich_help_panel="Streams")
app.add_typer(pipeline.app, name="pipeline", rich_help_panel="Data")


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"headrace {__version__}")
        raise typer.Exit


@app.callback()
def root(
    *,
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version and leave.")
    ] = False,
) -> None:
    """Queues and streams over one log, for Kafka, SQS and HTTP clients.

    Start a node with [cyan]headrace up[/]; then send to a queue and receive from it:

    [cyan]headrace send tasks 'one tea'[/]

    [cyan]headrace receive tasks[/]

    or produce to a topic and read it as a stream:

    [cyan]echo hello | headrace produce orders[/]

    [cyan]headrace consume orders[/]

    Commands about queues talk to 127.0.0.1:8080 unless --http or HEADRACE_HTTP says otherwise; those about streams
    to 127.0.0.1:9092 unless --server or HEADRACE_SERVER does.
    """


def main() -> None:
    _fill_standard_streams()
    # Ctrl-C may come between the making of a call and its start, about which its user cannot do anything.
    warnings.filterwarnings("ignore", "coroutine '.*' was never awaited", RuntimeWarning)
    app()


def _fill_standard_streams() -> None:
    """A stream that the caller closed leads nowhere. Else a socket would take its number, and libuv abort over that."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, Path(os.devnull).open(mode))  # noqa: SIM115 - it lasts as long as the program
