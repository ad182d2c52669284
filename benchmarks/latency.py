"""(c): the time from sending to receiving, at a steady rate, with every message synced before it is acknowledged."""

import msgspec

from benchmarks import generator
from benchmarks.generator import MeasuredEndToEnd
from benchmarks.process import running_node
from benchmarks.report import Goal, Report
from benchmarks.settings import Settings
from headrace.cli.load import Percentiles

NAME = "latency"
RATE = 10_000
SIZE_BYTES = 1024
GOAL_P99_MS = 10.0


def run(settings: Settings) -> Report:
    with running_node(settings.directory / "latency") as node, generator.new_topic(node, "latency", "fsync"):
        before_s = node.cpu_s()
        seconds, warmup_s = settings.either(30.0, 4.0), settings.either(2.0, 1.0)
        found = generator.latency(
            node.address,
            "latency",
            *("--rate", str(RATE), "--size", str(SIZE_BYTES), "--linger", "0"),
            *("--seconds", str(seconds), "--warmup", str(warmup_s)),
        )
        cpu_share = (node.cpu_s() - before_s) / (seconds + warmup_s)
    return report(found, cpu_share)


def report(found: MeasuredEndToEnd, cpu_share: float) -> Report:
    return Report(
        name=NAME,
        title=f"(c) {RATE:,} messages/s of 1 KB, fsync: milliseconds from when a message was due to be sent",
        columns=["until", "p50", "p90", "p99", "p99.9", "max"],
        rows=[_row("acknowledged", found.acknowledged_ms), _row("received", found.latency_ms)],
        figures=msgspec.to_builtins(found) | {"node_cpu_share": cpu_share},
        goals=[Goal.below("send to receive p99 under 10 ms", GOAL_P99_MS, found.latency_ms.p99)],
        notes=[
            f"Producer and consumer are separate processes; linger 0; {found.received:,} of {found.messages_total:,} "
            f"received; the node used {cpu_share:.0%} of a core."
        ],
    )


def _row(name: str, found: Percentiles) -> list[str]:
    return [name, *(f"{value:.2f}" for value in (found.p50, found.p90, found.p99, found.p999, found.max))]
