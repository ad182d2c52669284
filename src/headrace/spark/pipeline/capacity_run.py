"""The pipeline `capacity`: gather figures and the load, plan, and say it. No Spark session is needed for it."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from headrace.spark.pipeline.asked import check_http, check_report, check_servers
from headrace.spark.pipeline.capacity import GB, TB, Load, Machine, Plan, plan
from headrace.spark.pipeline.context import Run
from headrace.spark.pipeline.figures import UNITS, Figure, Figures, benchmarked, chosen, shipped
from headrace.spark.pipeline.measure import Measurement, measure
from headrace.spark.pipeline.observed import observed_load
from headrace.spark.pipeline.summary import Summary
from headrace.spark.report.capacity_page import capacity_page
from headrace.spark.report.page import write_report


@dataclass(frozen=True, slots=True, kw_only=True)
class CapacityOptions:
    load: Load = field(default_factory=Load)
    machine: Machine = field(default_factory=Machine)
    batch: int = 10  # messages in a request to a queue
    partition_bytes_max: float = 100 * GB
    given: Mapping[str, float] = field(default_factory=dict)  # figures by name, from a person who knows better
    bench: Path | None = None
    measurement: Measurement | None = None
    rollup: str | None = None  # a table of the rollup pipeline: what the load was
    growth: float = 1.0  # times what the rollup saw
    report: Path | None = None

    def __post_init__(self) -> None:
        check_report(self.report)
        if self.measurement is not None:
            check_servers(self.measurement.server)
            check_http(self.measurement.http)

    def identity(self) -> dict[str, str]:
        return {"what": "capacity"}


def run(options: CapacityOptions, run: Run) -> Summary:
    load, notes = options.load, []
    if options.rollup is not None:
        seen = observed_load(options.rollup)
        load = replace(
            load,
            messages_per_day=seen.messages_per_day * options.growth,
            peak_per_s=seen.peak_per_s * options.growth,
            message_bytes=seen.message_bytes,
        )
        notes.append(f"The load is what {options.rollup} saw ({seen.span}), times {options.growth:g}.")
    figures = _figures(options, run)
    result = plan(load, options.machine, figures, partition_bytes_max=options.partition_bytes_max)
    if options.report is not None:
        write_report(options.report, capacity_page(result, notes))
        run.note(f"The report is in {options.report}.")
    return summarise(result, notes)


def _figures(options: CapacityOptions, run: Run) -> Figures:
    given = {name: Figure(name, value, "given") for name, value in options.given.items()}
    bench = {} if options.bench is None else benchmarked(options.bench, options.batch)
    measured: Figures = {}
    if options.measurement is not None:
        measured = measure(options.measurement, lambda step: run.report(step))
    return chosen(given, measured, bench, shipped(options.batch))


def summarise(result: Plan, notes: list[str]) -> Summary:
    """The answer, every step of it, and every figure with its source."""
    load = result.load
    rows = [
        (f"{need.use}: {step.name}", step.formula, step.numbers, step.result)
        for need in result.needs
        for step in need.steps
    ]
    common = [(step.name, step.formula, step.numbers, step.result) for step in result.common]
    figures: dict[str, str] = {}
    for need in result.needs:
        figures[f"{need.use}"] = (
            f"{need.machines} machines, {need.nodes} nodes, {need.partitions} partitions, "
            f"{need.disk_per_machine_bytes / TB:.2f} TB used on each; decided by {need.decided_by}"
        )
    figures["data on disk"] = f"{result.data_bytes / TB:.2f} TB in all copies"
    figures["Spark cores for the archive"] = str(result.archive_cores)
    for one in result.used:
        figures[f"figure {one.name}"] = f"{one.value:,.0f} {UNITS[one.name]} ({one.source})"
    return Summary(
        title=(
            f"{load.messages_per_day:,.0f} messages a day of {load.message_bytes:,.0f} bytes, "
            f"{load.peak_per_s:,.0f} a second at the peak, {load.retention_days:g} days, {load.replicas} replicas"
        ),
        columns=("step", "formula", "numbers", "result"),
        rows=[*common, *rows],
        figures=figures,
        notes=[
            *notes,
            "Replication is counted as further producing and consuming; it has not been measured by itself.",
        ],
    )
