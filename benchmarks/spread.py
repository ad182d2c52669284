"""(f): the same rate over more and more partitions, each message synced before it is acknowledged.

Two ways to spread. Going round all partitions is the hardest: with more than a few partitions no two messages share a
batch, and librdkafka sends a request for each. The client's own partitioner (messages without keys) stays with one
partition for some milliseconds, as every modern client does.

Each case has several turns, since one stall of a tenth of a second in the machine's disk is a turn's whole p99. The
turn whose p99 is the median is reported, with the lowest and the highest p99 beside it.
"""

from operator import attrgetter

import msgspec

from benchmarks import generator
from benchmarks.process import Server, running_node
from benchmarks.report import Goal, Report, amount
from benchmarks.settings import Settings
from headrace.cli.load import Percentiles

NAME = "spread"
RATE = 10_000
SIZE_BYTES = 1024
PARTITIONS = (1, 100, 1000)
GOAL_P99_MS = 20.0
TURNS = 3
SYNC_COUNTERS = ("headrace_log_journal_syncs_total", "headrace_log_segment_syncs_total")


class Line(msgspec.Struct, frozen=True, kw_only=True):
    partitions: int
    spreading: str
    messages_per_s: float  # below the rate where the node falls behind
    acknowledged_ms: Percentiles
    syncs_per_s: float | None  # None where the node has no counters
    node_cpu_share: float
    client_cpu_share: float
    p99_turns_ms: list[float] = []


def run(settings: Settings) -> Report:
    cases = [(partitions, spreading) for partitions in PARTITIONS for spreading in ("round all", "by the client")]
    turns: dict[tuple[int, str], list[Line]] = {case: [] for case in cases}
    for _ in range(int(settings.either(TURNS, 1))):
        for case, taken in turns.items():
            with running_node(settings.directory / "spread") as node:
                taken.append(_measure(settings, node, *case))
    return report([middle(taken) for taken in turns.values()])


def middle(turns: list[Line]) -> Line:
    """The turn whose p99 is the median, with those of all."""
    by_p99 = sorted(turns, key=attrgetter("acknowledged_ms.p99"))
    p99s = [turn.acknowledged_ms.p99 for turn in by_p99]
    return msgspec.structs.replace(by_p99[len(by_p99) // 2], p99_turns_ms=p99s)


def report(lines: list[Line]) -> Report:
    return Report(
        name=NAME,
        title=f"(f) {RATE:,} messages/s of 1 KB over partitions, fsync: milliseconds until acknowledged",
        columns=[
            "partitions",
            "spread",
            "messages/s",
            "p50",
            "p99",
            "of turns",
            "p99.9",
            "syncs/s",
            "node CPU",
            "client CPU",
        ],
        rows=[_row(line) for line in lines],
        figures=msgspec.to_builtins(lines),
        goals=[
            Goal.below(
                f"{line.partitions:,} partitions, {line.spreading}: p99 under 20 ms",
                GOAL_P99_MS,
                line.acknowledged_ms.p99,
            )
            for line in lines
        ],
        notes=[
            "CPU in shares of one core. Linger 1 ms. Latencies count from when a message was due to be sent.",
            "Of several turns the one whose p99 is the median; of turns: the lowest and the highest p99.",
        ],
    )


def _measure(settings: Settings, node: Server, partitions: int, spreading: str) -> Line:
    seconds, warmup_s = settings.either(10.0, 2.0), settings.either(4.0, 1.0)
    options = ("--rate", str(RATE), "--size", str(SIZE_BYTES), "--linger", "1")
    choose = ("--client-partitioner",) if spreading == "by the client" else ()
    times = ("--seconds", str(seconds), "--warmup", str(warmup_s))
    with generator.new_topic(node, "spread", "fsync", partitions=partitions):
        cpu_before_s, syncs_before = node.cpu_s(), _syncs(node)
        found = generator.produce(node.address, "spread", *options, *choose, *times)
        cpu_s, syncs = node.cpu_s() - cpu_before_s, _syncs(node)
    assert found.latency_ms is not None
    span_s = found.seconds + warmup_s
    return Line(
        partitions=partitions,
        spreading=spreading,
        messages_per_s=found.messages_per_s,
        acknowledged_ms=found.latency_ms,
        syncs_per_s=None if syncs is None or syncs_before is None else (syncs - syncs_before) / span_s,
        node_cpu_share=cpu_s / span_s,
        client_cpu_share=found.cpu_s / span_s,
    )


def _syncs(node: Server) -> float | None:
    metrics = node.metrics()
    if not any(counter in metrics for counter in SYNC_COUNTERS):
        return None
    return sum(metrics.get(counter, 0.0) for counter in SYNC_COUNTERS)


def _row(line: Line) -> list[str]:
    found = line.acknowledged_ms
    return [
        f"{line.partitions:,}",
        line.spreading,
        amount(line.messages_per_s),
        f"{found.p50:.2f}",
        f"{found.p99:.2f}",
        f"{line.p99_turns_ms[0]:.2f} to {line.p99_turns_ms[-1]:.2f}",
        f"{found.p999:.2f}",
        "-" if line.syncs_per_s is None else amount(line.syncs_per_s),
        f"{line.node_cpu_share:.0%}",
        f"{line.client_cpu_share:.0%}",
    ]
