"""`headrace pipeline init` makes a declarative project over topics; `headrace pipeline run DIR` runs it."""

from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from headrace.cli.output import JsonOption, emit_json, people
from headrace.cli.pipeline_run import Where, pipeline_command
from headrace.cli.session import DEFAULT_SERVER, DEFAULT_TIMEOUT, ServerOption, TimeoutOption, with_client

DirectoryArgument = Annotated[
    Path, typer.Argument(metavar="DIR", help="The project's directory.", show_default=False, file_okay=False)
]


def init(
    directory: DirectoryArgument,
    *,
    topics: Annotated[
        str, typer.Option("--topics", "-t", metavar="TOPIC[,...]", help="Which topics.", show_default=False)
    ],
    blind: Annotated[
        bool, typer.Option("--blind", help="Ask no node what the messages look like; take them as text.")
    ] = False,
    server: ServerOption = DEFAULT_SERVER,
    timeout: TimeoutOption = DEFAULT_TIMEOUT,
    as_json: JsonOption = False,
) -> None:
    """Make a declarative pipeline over topics: a small project of tables in Python, to be run and changed.

    [bold]Examples[/]

    [cyan]headrace pipeline init shop --topics orders,payments[/]

    [cyan]headrace pipeline run shop[/]
    """
    from headrace.spark.project.create import check_new_project, look_at_topics, write_project

    names = [name.strip() for name in topics.split(",") if name.strip()]
    check_new_project(directory, names)
    if blind:
        shapes = dict.fromkeys(names, None)
    else:
        shapes = with_client(server, timeout, lambda client: look_at_topics(client, names))
    paths = write_project(directory, server, shapes)
    if as_json:
        emit_json({"project": str(directory), "files": [str(path) for path in paths]})
        return
    for path in paths:
        people().print(str(path), markup=False)
    unread = [name for name, shape in shapes.items() if shape is None]
    if unread:
        people().print(f"Messages of {', '.join(unread)} are taken as text.", markup=False)
    people().print(f"Run it with: headrace pipeline run {directory}", markup=False)


@pipeline_command(continuous=False)
def project(
    where: Where,
    *,
    directory: DirectoryArgument,
    full_refresh: Annotated[
        list[str] | None,
        typer.Option("--full-refresh", metavar="TABLE[,...]", help="Throw these away and compute them from the start."),
    ] = None,
    full_refresh_all: Annotated[
        bool, typer.Option("--full-refresh-all", help="The same for everything, sinks included.")
    ] = False,
    refresh: Annotated[
        list[str] | None, typer.Option("--refresh", metavar="TABLE[,...]", help="Only these, and no others.")
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only check that it would run.")] = False,
    server: Annotated[
        str | None,
        typer.Option(
            "--server",
            "-b",
            metavar="HOST:PORT[,...]",
            envvar="HEADRACE_SERVER",
            help="Where the node listens for Kafka clients. [dim]default: what the project says[/]",
        ),
    ] = None,
) -> None:
    """Run a project of declarative tables: bring each up to date with what is new.

    [bold]Examples[/]

    [cyan]headrace pipeline run shop[/]

    [cyan]headrace pipeline run shop --full-refresh orders_by_minute[/]
    """
    from headrace.spark.project.local import local_settings
    from headrace.spark.project.options import ProjectOptions
    from headrace.spark.project.place import open_project
    from headrace.spark.project.run import run

    options = ProjectOptions(
        full_refresh=_names(full_refresh),
        full_refresh_all=full_refresh_all,
        refresh=_names(refresh),
        is_dry=dry_run,
        servers=server,
        storage=where.checkpoint,
        is_remote=where.remote is not None and not where.remote.startswith("local"),
        is_verbose=where.verbose,
    )
    opened = open_project(directory)
    if not options.is_remote:
        # A local Connect server would take a fixed port: the project starts its own, on a free one.
        own = [f"{name}={value}" for name, value in local_settings(opened).items()]
        where = replace(where, spark=where.spark or where.remote, remote=None, conf=[*own, *(where.conf or [])])
    where.run("project", opened.identity(), lambda active: run(opened, options, active))


def _names(given: list[str] | None) -> tuple[str, ...]:
    return tuple(name.strip() for text in given or [] for name in text.split(",") if name.strip())
