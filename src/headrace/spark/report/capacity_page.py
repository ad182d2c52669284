"""The report of the capacity pipeline."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from headrace.spark.report.chart import BarChart
from headrace.spark.report.page import Figure, Figures, Report, Section, Table, Text

if TYPE_CHECKING:
    from headrace.spark.pipeline.capacity import Plan

_TB = 1e12


def capacity_page(result: "Plan", notes: Sequence[str]) -> Report:
    load, machine = result.load, result.machine
    sections: list[Section] = []
    for need in result.needs:
        sections.append(
            Figures(
                [
                    Figure(
                        label=f"{need.use}: machines", value=str(need.machines), note=f"decided by {need.decided_by}"
                    ),
                    Figure(label="nodes", value=str(need.nodes), note=f"{machine.nodes} on each machine"),
                    Figure(label="partitions", value=str(need.partitions)),
                    Figure(label="disk used on each", value=f"{need.disk_per_machine_bytes / _TB:.2f} TB"),
                ]
            )
        )
    sections.append(
        BarChart(
            title="What a node does in a second",
            unit="messages/s",
            bars=[(one.name, one.value) for one in result.used if one.unit == "messages/s"],
        )
    )
    sections.append(
        Table(
            title="The figures, and where they come from",
            columns=("figure", "value", "unit", "source"),
            rows=[(one.name, one.value, one.unit, one.source) for one in result.used],
        )
    )
    columns = ("step", "formula", "numbers", "result")
    sections.append(Table(title="For both", columns=columns, rows=[tuple(step) for step in result.common]))
    for need in result.needs:
        sections.append(Table(title=f"For {need.use}", columns=columns, rows=[tuple(step) for step in need.steps]))
    replication = "Replication is counted as further producing and consuming; it has not been measured by itself."
    sections.append(Text(title="What to know", paragraphs=[*notes, replication]))
    return Report(
        title="Capacity",
        subtitle=(
            f"{load.messages_per_day:,.0f} messages a day of {load.message_bytes:,.0f} bytes, {load.peak_per_s:,.0f} a "
            f"second at the peak, {load.retention_days:g} days, {load.replicas} replicas, {load.readers} readers, "
            f"compression {load.compression:g}; machines of {machine.cores} cores, {machine.disk_bytes / _TB:g} TB, "
            f"{machine.network_bits_per_s / 1e9:g} Gbit/s"
        ),
        sections=sections,
    )
