"""`headrace pipeline`: run the built-in pipelines and projects of one's own, and see what runs.

Each pipeline has a command module of its own; the table below is all that ties them together.
"""

import threading
from collections.abc import Callable
from difflib import get_close_matches
from pathlib import Path
from typing import Annotated, Any

import msgspec
import typer

from headrace.cli.moment import show_moment
from headrace.cli.output import EXIT_MISUSED, App, Group, JsonOption, emit_json, emit_table, fail, notice, people
from headrace.cli.pipeline_archive import archive
from headrace.cli.pipeline_audit import audit
from headrace.cli.pipeline_capacity import capacity
from headrace.cli.pipeline_dead_letters import dead_letters
from headrace.cli.pipeline_project import init, project
from headrace.cli.pipeline_replay import replay
from headrace.cli.pipeline_rollup import rollup
from headrace.cli.pipeline_run import StateOption
from headrace.cli.pipeline_view import shown
from headrace.host.clock import SystemClock
from headrace.model.errors import HeadraceError
from headrace.spark.errors import OptionError
from headrace.spark.pipeline.place import default_state
from headrace.spark.pipeline.record import RunRecord
from headrace.spark.pipeline.registry import all_runs, ask_run_to_end, find_run, forget_run, told

# The built-in pipelines: a name, its command, and what it does in a few words.
PIPELINES: tuple[tuple[str, Callable[..., None], str], ...] = (
    ("archive", archive, "topics and queues into a Delta table, each message once"),
    ("replay", replay, "messages of an archive back into a topic or a queue"),
    ("rollup", rollup, "rates, sizes, dwell time and latency by the minute"),
    ("audit", audit, "lost, doubled and out-of-order messages"),
    ("dead-letters", dead_letters, "what died of what, and back with some of it"),
    ("capacity", capacity, "nodes, disks and partitions for a stated load"),
)

LOOK_S = 0.1
STOP_WAIT_DEFAULT = 90.0

IdArgument = Annotated[str, typer.Argument(metavar="ID", help="Id of the run.", show_default=False)]


class OptionGroup(Group):
    """Options that cannot be have the exit code of what typer itself refuses."""

    def exit_code(self, error: HeadraceError) -> int:
        return EXIT_MISUSED if isinstance(error, OptionError) else super().exit_code(error)


class RunGroup(OptionGroup):
    """`run NAME`: a built-in pipeline; a directory is a project of the user's own."""

    def resolve_command(self, ctx: Any, args: list[str]) -> tuple[str | None, Any, list[str]]:
        if args and not args[0].startswith("-") and self.get_command(ctx, args[0]) is None:
            project = self.get_command(ctx, "project")
            if project is not None and Path(args[0]).exists():
                return "project", project, args
            names = [name for name, _, _ in PIPELINES]
            near = get_close_matches(args[0], names, n=1)
            hint = f"did you mean {near[0]}?" if near else f"there are {', '.join(names)}"
            fail(f"there is no pipeline {args[0]}, and no such directory; {hint}", code=EXIT_MISUSED)
        return super().resolve_command(ctx, args)


app = App(cls=OptionGroup, no_args_is_help=True, help="Run data pipelines on Spark, and see what runs.")
run_app = App(cls=RunGroup, no_args_is_help=True, help="Run a built-in pipeline, or the project in a directory.")
app.add_typer(run_app, name="run")
for _name, _command, _ in PIPELINES:
    run_app.command(_name)(_command)
run_app.command("project", hidden=True)(project)
app.command("init")(init)


@app.command("list")
def list_runs(*, state: StateOption = None, as_json: JsonOption = False) -> None:
    """List the pipelines that can be run, and what runs or ran.

    [bold]Example[/]

    [cyan]headrace pipeline list[/]
    """
    runs = all_runs(state or default_state())
    if as_json:
        pipelines = [{"name": name, "about": about} for name, _, about in PIPELINES]
        emit_json({"pipelines": pipelines, "runs": [record_json(run) for run in runs]})
        return
    emit_table(("pipeline", "what it does"), [(name, about) for name, _, about in PIPELINES])
    if runs:
        _show_runs(runs)
    else:
        notice("Nothing has run yet; [cyan]headrace pipeline run NAME --help[/] says how.")


@app.command()
def status(
    id: Annotated[
        str | None, typer.Argument(metavar="ID", help="Id of the run; all without.", show_default=False)
    ] = None,
    *,
    state: StateOption = None,
    as_json: JsonOption = False,
) -> None:
    """Show how far a run is, or how it ended. A run that was killed is shown as died and can be run again.

    [bold]Examples[/]

    [cyan]headrace pipeline status[/]

    [cyan]headrace pipeline status archive-1f0c22ab[/]
    """
    place = state or default_state()
    if id is None:
        runs = all_runs(place)
        if as_json:
            emit_json([record_json(run) for run in runs])
        elif runs:
            _show_runs(runs)
        else:
            notice("Nothing has run yet.")
        return
    record = find_run(place, id)
    if as_json:
        emit_json(record_json(record))
    else:
        emit_table(("", ""), list(_details(record)))


@app.command()
def stop(
    id: IdArgument,
    *,
    wait: Annotated[
        float, typer.Option("--wait", metavar="SECONDS", min=0, help="How long to wait for its end.")
    ] = STOP_WAIT_DEFAULT,
    state: StateOption = None,
    as_json: JsonOption = False,
) -> None:
    """Ask a run to end after its batch, and wait for it. It can be run again and goes on where it was.

    [bold]Example[/]

    [cyan]headrace pipeline stop archive-1f0c22ab[/]
    """
    place = state or default_state()
    ask_run_to_end(place, id)
    clock, pause = SystemClock(), threading.Event()
    deadline_ms = clock.monotonic_ms() + int(wait * 1000)
    while (record := find_run(place, id)).condition == "running" and clock.monotonic_ms() < deadline_ms:
        pause.wait(LOOK_S)
    if as_json:
        emit_json(record_json(record))
    elif record.condition == "running":
        notice(f"[bold]{id}[/] was asked to end and still works on its batch.")
    else:
        people().print(f"{id}: {told(record.condition)}.", markup=False)


@app.command()
def forget(
    id: IdArgument,
    *,
    state: StateOption = None,
    as_json: JsonOption = False,
) -> None:
    """Delete a run's record and checkpoint: the next run of its name begins anew.

    What it has written stays. A checkpoint that was put elsewhere with --checkpoint stays too.

    [bold]Example[/]

    [cyan]headrace pipeline forget archive-1f0c22ab[/]
    """
    record = forget_run(state or default_state(), id)
    if as_json:
        emit_json({"forgotten": record.id})
    else:
        people().print(f"Forgot {record.id}.", markup=False)


def record_json(record: RunRecord) -> dict[str, Any]:
    value: dict[str, Any] = msgspec.to_builtins(record)
    del value["birth"]
    return value | {"state": record.condition}


def _show_runs(runs: list[RunRecord]) -> None:
    emit_table(
        ("id", "pipeline", "state", "started", "rows", "lag", "failure"),
        [
            (one.id, one.pipeline, one.condition, show_moment(one.started_ms), one.rows, one.lag, one.failure)
            for one in runs
        ],
    )


def _details(record: RunRecord) -> list[tuple[str, str]]:
    lines = [
        ("id", record.id),
        ("pipeline", record.pipeline),
        ("state", record.condition),
        *record.identity.items(),
        ("started", f"{show_moment(record.started_ms)} (start {record.run_count})"),
        ("ended", "-" if record.ended_ms is None else show_moment(record.ended_ms)),
        ("rows", f"{shown(record.rows)} in {shown(record.batches)} batches, {shown(record.rows_per_second)}/s"),
        ("lag", shown(record.lag)),
        ("process", str(record.pid)),
        ("checkpoint", record.checkpoint),
    ]
    return lines if record.failure is None else [*lines, ("failure", record.failure)]
