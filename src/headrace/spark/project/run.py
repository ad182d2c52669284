"""One run of a project: the graph of its tables is built on the Connect server, checked there, and run.

1. The files of the project are executed. Each table, view, sink and flow that they define goes to the server as a
   plan; nothing is computed.
2. The server puts them in order and refuses a graph that cannot be: a column that is not there, a circle.
3. Flows run. A streaming table goes on from its checkpoint and ends with what was there; a materialised view is
   computed anew. The server says how far each flow is, and those lines are the run's progress.

A run that somebody stops, or that dies, is begun again by the next one: tables and sinks are exact.
"""

import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, redirect_stdout, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from headrace.spark.pipeline.context import STOP_LOOK_S, Run
from headrace.spark.pipeline.errors import PipelineFailedError
from headrace.spark.pipeline.place import LOG_NAME
from headrace.spark.pipeline.summary import Summary
from headrace.spark.project.failure import flow_failure, project_failure, short_name
from headrace.spark.project.local import connected, prepare_token
from headrace.spark.project.options import ProjectOptions
from headrace.spark.project.place import Project

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@dataclass(frozen=True, slots=True)
class Dataset:
    """Something that the project defines."""

    name: str
    kind: str
    is_table: bool


def run(project: Project, options: ProjectOptions, active: Run) -> Summary:
    with project.locked(), _session(project, options, active) as spark, project_failure(project):
        configuration = _settable(spark, project.configuration(options.servers))
        for key, value in configuration.items():
            spark.conf.set(key, value)
        with _said_elsewhere(options, active):
            graph_id, datasets = _define(spark, project, configuration)
        _run_graph(spark, graph_id, project, options, active)
        return _summary(spark, project, options, active, datasets)


@contextmanager
def _session(project: Project, options: ProjectOptions, active: Run) -> "Iterator[SparkSession]":
    if options.is_remote:
        yield active.spark()
        return
    prepare_token()
    with connected(active.spark()) as spark:
        yield spark


def _settable(spark: "SparkSession", configuration: Mapping[str, str]) -> dict[str, str]:
    """Settings for queries. The others were for the start of a session; one that runs does not take them."""
    return {
        key: value
        for key, value in configuration.items()
        if not key.startswith("spark.") or spark.conf.isModifiable(key)
    }


@contextmanager
def _said_elsewhere(options: ProjectOptions, active: Run) -> Iterator[None]:
    """PySpark and the project's files print to standard output, which is for the summary alone."""
    if options.is_verbose:
        with redirect_stdout(sys.stderr):
            yield
        return
    with (active.directory / LOG_NAME).open("a", encoding="utf-8") as log, redirect_stdout(log):
        yield


def _define(spark: "SparkSession", project: Project, configuration: Mapping[str, str]) -> tuple[str, list[Dataset]]:
    """Execute the project's files; give the graph that they made, and what is in it."""
    from pyspark.pipelines.cli import register_definitions
    from pyspark.pipelines.output import MaterializedView, Output, Sink, StreamingTable
    from pyspark.pipelines.spark_connect_graph_element_registry import SparkConnectGraphElementRegistry
    from pyspark.pipelines.spark_connect_pipeline import create_dataflow_graph

    kinds = {StreamingTable: "table", MaterializedView: "materialised view", Sink: "sink"}
    datasets: list[Dataset] = []

    class Registry(SparkConnectGraphElementRegistry):
        def register_output(self, output: Output) -> None:
            super().register_output(output)
            kind = kinds.get(type(output))
            if kind is not None:
                datasets.append(Dataset(output.name, kind, is_table=not isinstance(output, Sink)))

    spec = project.spec
    graph_id = create_dataflow_graph(
        spark, default_catalog=spec.catalog, default_database=spec.database, sql_conf=configuration
    )
    register_definitions(project.spec_path, Registry(spark, graph_id), spec, spark, graph_id)
    return graph_id, datasets


def _run_graph(spark: "SparkSession", graph_id: str, project: Project, options: ProjectOptions, active: Run) -> None:
    from pyspark.pipelines.spark_connect_pipeline import start_run

    active.report(f"{project.spec.name}: checking")
    with _cut_off_on_stop(active):
        results = start_run(
            spark,
            graph_id,
            full_refresh=options.full_refresh,
            full_refresh_all=options.full_refresh_all,
            refresh=options.refresh,
            dry=options.is_dry,
            storage=project.storage(options.storage),
        )
        _follow(results, project, active)


def _follow(results: Iterator[dict[str, Any]], project: Project, active: Run) -> None:
    """Show what the server says until the run is over. Its last word on a failure does not say why; the flow's does."""
    failure: str | None = None
    try:
        for result in results:
            if "pipeline_event_result" in result:
                message = result["pipeline_event_result"].event.message
                failure = flow_failure(message) or failure
                active.report(f"{project.spec.name}: {_line(message)}")
    except Exception as error:
        if failure is None or active.is_stopping:
            raise
        raise PipelineFailedError(failure) from error


def _line(message: str) -> str:
    first = message.splitlines()[0] if message else ""
    return " ".join(short_name(word) for word in first.removeprefix("Flow ").split(" "))


@contextmanager
def _cut_off_on_stop(active: Run) -> Iterator[None]:
    """When somebody asks the run to end, its session is stopped, and all flows with it.

    The server has no way to stop after a batch. The run itself waits for the server's next line meanwhile, so another
    thread looks.
    """
    is_over = threading.Event()

    def watch() -> None:
        while not is_over.wait(STOP_LOOK_S):
            if active.is_stopping:
                with suppress(Exception):  # the run has ended in the same moment
                    active.spark().stop()
                return

    threading.Thread(target=watch, name="headrace-project-stop", daemon=True).start()
    try:
        yield
    except Exception:
        if not active.is_stopping:
            raise
    finally:
        is_over.set()


def _summary(
    spark: "SparkSession", project: Project, options: ProjectOptions, active: Run, datasets: list[Dataset]
) -> Summary:
    name = project.spec.name
    if options.is_dry:
        kinds = [(dataset.name, dataset.kind) for dataset in datasets]
        return Summary(title=f"{name} can be run", columns=("name", "kind"), rows=kinds)
    if active.is_stopping:
        return Summary(title=f"{name} was stopped; the next run goes on")
    rows: list[tuple[str, str, int | None]] = []
    active.report(f"{name}: counting")
    for dataset in datasets:
        rows.append((dataset.name, dataset.kind, spark.table(dataset.name).count() if dataset.is_table else None))
    return Summary(title=f"{name} is up to date", columns=("name", "kind", "rows"), rows=rows)
