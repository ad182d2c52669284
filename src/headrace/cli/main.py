"""The command line: one typer application, one module for each command or group of commands."""

from typing import Annotated

import typer

from headrace import __version__
from headrace.cli import bench, config, consume, log, produce, topic, up
from headrace.cli.output import Group

app = typer.Typer(
    cls=Group,
    name="headrace",
    no_args_is_help=True,
    rich_markup_mode="rich",
    pretty_exceptions_show_locals=False,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110},
)

app.command("up", rich_help_panel="The node")(up.up)
app.add_typer(config.app, name="config", rich_help_panel="The node")
app.add_typer(log.app, name="log", rich_help_panel="The node")
app.add_typer(topic.app, name="topic", rich_help_panel="Clients")
app.command("produce", rich_help_panel="Clients")(produce.produce)
app.command("consume", rich_help_panel="Clients")(consume.consume)
app.add_typer(bench.app, name="bench", rich_help_panel="Clients")


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
    """A message queue that Kafka clients talk to.

    Start one with [cyan]headrace up[/]; then create a topic, send to it and read from it:

    [cyan]headrace topic create orders --partitions 3[/]

    [cyan]echo hello | headrace produce orders[/]

    [cyan]headrace consume orders[/]

    Client commands talk to 127.0.0.1:9092 unless --server or HEADRACE_SERVER says otherwise.
    """


def main() -> None:
    app()
