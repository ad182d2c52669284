"""(h): the time from sending a message to a queue until a consumer that waits has it, every message synced first."""

import msgspec

from benchmarks.door import create_queue
from benchmarks.process import running_node
from benchmarks.report import Goal, Report
from benchmarks.settings import Settings
from benchmarks.waiting import CONSUMERS, MeasuredWaiting, Pace, Waiting
from headrace.cli.load import Percentiles

NAME = "queue-latency"
RATE = 2_000
SIZE_BYTES = 1024
GOAL_P99_MS = 10.0


def run(settings: Settings) -> Report:
    pace = Pace(RATE, settings.either(20.0, 4.0), settings.either(2.0, 1.0), SIZE_BYTES)
    with running_node(settings.directory / "queue-latency") as node:
        create_queue(node.http, "waiting")
        before_s = node.cpu_s()
        found = Waiting(node.http, "waiting", pace).run()
        cpu_share = (node.cpu_s() - before_s) / (pace.seconds + pace.warmup_s)
    return report(found, cpu_share)


def report(found: MeasuredWaiting, cpu_share: float) -> Report:
    return Report(
        name=NAME,
        title=f"(h) {RATE:,} messages/s of 1 KB through a queue, fsync: milliseconds from when a message was due",
        columns=["until", "p50", "p90", "p99", "p99.9", "max"],
        rows=[_row("acknowledged", found.acknowledged_ms), _row("received", found.latency_ms)],
        figures=msgspec.to_builtins(found) | {"node_cpu_share": cpu_share},
        goals=[Goal.below("queue: send to receive p99 under 10 ms", GOAL_P99_MS, found.latency_ms.p99)],
        notes=[
            f"REST, single sends; {CONSUMERS} consumers wait, and acknowledge what they get; {found.received:,} of "
            f"{found.sent:,} received; the node used {cpu_share:.0%} of a core."
        ],
    )


def _row(name: str, found: Percentiles) -> list[str]:
    return [name, *(f"{value:.2f}" for value in (found.p50, found.p90, found.p99, found.p999, found.max))]
