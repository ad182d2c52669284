"""What every command of `headrace pipeline run` shares: the options of a run, and the run itself.

    @pipeline_command
    def archive(where: Where, *, topics: ..., table: ...) -> None:
        ...
        where.run("archive", options.identity(), lambda run: pipeline.run(run.spark(), options, run))

The decorator takes `where` out of the command's parameters and puts the options of a run in its place. PySpark is
imported by what the command calls and by nothing here: the command line starts without it.
"""

import importlib.util
import inspect
import os
import traceback
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NoReturn, overload

import typer

from headrace.cli.output import EXIT_FAILED, JsonOption, fail, notice
from headrace.cli.pipeline_view import JsonView, PeopleView, PipelineView
from headrace.cli.session import parse_pairs
from headrace.model.extra import how_to_install
from headrace.spark.pipeline.errors import StoppedEarlyError
from headrace.spark.pipeline.place import STATE_VARIABLE, default_state
from headrace.spark.pipeline.run import EVERY_S_DEFAULT, RunSettings, execute

if TYPE_CHECKING:
    from headrace.spark.pipeline.context import Run
    from headrace.spark.pipeline.summary import Summary

EXIT_FOUND = 3
_PANEL = "The run"
_NEEDED = ("pyspark", "pyarrow", "deltalake")

StateOption = Annotated[
    Path | None,
    typer.Option(
        "--state",
        metavar="DIR",
        envvar=STATE_VARIABLE,
        help="Where runs keep records and checkpoints. [dim]default: ~/.local/state/headrace/pipelines[/]",
        show_default=False,
        rich_help_panel=_PANEL,
    ),
]
IdOption = Annotated[
    str | None,
    typer.Option(
        "--id",
        metavar="NAME",
        help="Name of the run. [dim]default: from the pipeline and what it works on, so the same command goes on[/]",
        rich_help_panel=_PANEL,
    ),
]
CheckpointOption = Annotated[
    str | None,
    typer.Option(
        "--checkpoint",
        metavar="URI",
        help="Where Spark keeps offsets and state: on a cluster, where all machines can write. "
        "[dim]default: with the run's record[/]",
        rich_help_panel=_PANEL,
    ),
]
ContinuousOption = Annotated[
    bool,
    typer.Option(
        "--continuous", help="Go on until stopped, instead of ending with what is there.", rich_help_panel=_PANEL
    ),
]
EveryOption = Annotated[
    float,
    typer.Option("--every", metavar="SECONDS", min=0, help="How often, with --continuous.", rich_help_panel=_PANEL),
]
SparkOption = Annotated[
    str | None,
    typer.Option(
        "--spark",
        metavar="MASTER",
        help="A Spark cluster, as spark://host:7077. [dim]default: local\\[*], in this process[/]",
        rich_help_panel=_PANEL,
    ),
]
RemoteOption = Annotated[
    str | None,
    typer.Option("--remote", metavar="sc://HOST:PORT", help="A Spark Connect server.", rich_help_panel=_PANEL),
]
ConfOption = Annotated[
    list[str] | None,
    typer.Option("--conf", metavar="KEY=VALUE", help="A setting of Spark; may be repeated.", rich_help_panel=_PANEL),
]
VerboseOption = Annotated[
    bool,
    typer.Option("--verbose", help="Show what Spark says, and the whole stack of a failure.", rich_help_panel=_PANEL),
]
ReportOption = Annotated[
    Path | None,
    typer.Option("--report", metavar="FILE.html", help="Write a report that opens in a browser, without network."),
]


@dataclass(frozen=True, slots=True, kw_only=True)
class Where:
    """The options of a run as they were given."""

    state: Path | None = None
    id: str | None = None
    checkpoint: str | None = None
    continuous: bool = False
    every: float = EVERY_S_DEFAULT
    spark: str | None = None
    remote: str | None = None
    conf: list[str] | None = None
    as_json: bool = False
    verbose: bool = False

    def run(self, pipeline: str, identity: Mapping[str, str], body: "Callable[[Run], Summary]") -> None:
        """Run it, show how far it is, print its summary. What goes wrong is one sentence."""
        settings = RunSettings(
            state=self.state or default_state(),
            id=self.id,
            checkpoint=self.checkpoint,
            is_continuous=self.continuous,
            every_s=self.every,
            master=self.spark,
            remote=self.remote,
            config=dict(parse_pairs(self.conf or [])),
            is_verbose=self.verbose,
        )
        view: PipelineView = JsonView() if self.as_json else PeopleView(pipeline)
        try:
            with view:
                id, summary = execute(pipeline, identity, body, settings, view, end_at_once=lambda: _end_at_once(view))
        except Exception:
            if self.verbose:
                traceback.print_exc()
            raise
        except StoppedEarlyError:
            notice("Stopped before Spark had started; nothing was begun.")
            return
        view.summary(id, summary)
        if summary.is_found:
            raise typer.Exit(EXIT_FOUND)


def _end_at_once(view: PipelineView) -> NoReturn:
    """Called by the handler of a signal. The JVM ends when it sees that this process has ended."""
    with suppress(RuntimeError):  # the signal came in the middle of a line that is being printed
        view.__exit__(None, None, None)
        notice("Ended at once; the next run goes on from the checkpoint.")
    os._exit(EXIT_FAILED)


_ALWAYS: dict[str, tuple[Any, Any]] = {
    "state": (StateOption, None),
    "id": (IdOption, None),
    "verbose": (VerboseOption, False),
    "as_json": (JsonOption, False),
}
_SESSION: dict[str, tuple[Any, Any]] = {
    "checkpoint": (CheckpointOption, None),
    "spark": (SparkOption, None),
    "remote": (RemoteOption, None),
    "conf": (ConfOption, None),
}
_CONTINUOUS: dict[str, tuple[Any, Any]] = {
    "continuous": (ContinuousOption, False),
    "every": (EveryOption, EVERY_S_DEFAULT),
}

Command = Callable[..., None]


@overload
def pipeline_command(command: Command) -> Command: ...


@overload
def pipeline_command(*, continuous: bool = True, session: bool = True) -> Callable[[Command], Command]: ...


def pipeline_command(
    command: Command | None = None, *, continuous: bool = True, session: bool = True
) -> Command | Callable[[Command], Command]:
    """Give a command the options of a run; `continuous` and `session` say whether it has those of either kind."""
    added = dict(_ALWAYS)
    if session:
        added |= _SESSION
    if continuous:
        added |= _CONTINUOUS

    def decorate(inner: Command) -> Command:
        def outer(**values: Any) -> None:
            if session:
                require_spark()
            where = Where(**{name: values.pop(name) for name in added})
            inner(where, **values)

        own = list(inspect.signature(inner, eval_str=True).parameters.values())[1:]
        options = [
            inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation)
            for name, (annotation, default) in added.items()
        ]
        parameters = [one.replace(kind=inspect.Parameter.KEYWORD_ONLY) for one in own] + options
        outer.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
        outer.__annotations__ = {one.name: one.annotation for one in parameters}
        outer.__doc__, outer.__name__, outer.__module__ = inner.__doc__, inner.__name__, inner.__module__
        return outer

    return decorate if command is None else decorate(command)


def require_spark() -> None:
    """One sentence for who has not installed it."""
    for package in _NEEDED:
        if importlib.util.find_spec(package) is None:
            fail(f"pipelines need {package}, which is not installed; {how_to_install('spark')}")
