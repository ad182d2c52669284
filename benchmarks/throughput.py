"""(a) and (b): how fast one client produces and consumes, beside its own ceiling, and what that costs the node.

Node and sink take turns, and a ratio is taken within a turn, so that a change of the machine's mood meets both; the
median of the turns is reported. Each load has a client process of its own, which warms up before it measures.

What is written goes to topics that are deleted after each turn, and as much memory as a turn needs is touched before
it: a virtual machine gets a page from its host when it first writes to it, which takes several times as long as
writing. A machine that has been up for a while has all of its pages; a fresh one would measure its hypervisor.
"""

import shutil
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from statistics import median
from typing import NamedTuple

import msgspec
import psutil

from benchmarks import generator
from benchmarks.generator import new_topic
from benchmarks.process import Server, running_node, running_sink
from benchmarks.report import Goal, Report, amount
from benchmarks.settings import Settings
from benchmarks.sink import TOPIC as SINK_TOPIC
from headrace.cli.load import Measured

NAME = "throughput"
SIZES_BYTES = (100, 1024, 10240)
GOAL_SIZE_BYTES = 1024
GOAL_RATIO = 0.8
DURABILITIES = ("memory", "fsync")
WAYS: dict[str, tuple[str, ...]] = {"": ("--one-by-one",), " in chunks": ()}
PROBE_BYTES = 256 << 20
TOUCHED_BYTES_PER_S = 1_000_000_000  # more than a node has written so far


class Turn(NamedTuple):
    """One load on the node, with the same load on the sink beside it."""

    node: Measured
    sink: Measured
    node_cpu_s: float
    sink_cpu_s: float


class Line(msgspec.Struct, frozen=True, kw_only=True):
    """One row: medians over the turns."""

    size_bytes: int
    work: str
    messages_per_s: float
    megabytes_per_s: float
    sink_messages_per_s: float
    ratio: float
    ratios: list[float]
    cpu_s_per_gb: float
    sink_cpu_s_per_gb: float  # what the kernel takes for moving the bytes, which no broker can go below


def run(settings: Settings) -> Report:
    lines: list[Line] = []
    scratch = settings.directory / "scratch"
    probes = []
    with running_node(settings.directory / "throughput") as node:
        for size_bytes in SIZES_BYTES:
            touch_memory(scratch, PROBE_BYTES)
            probes.append(probe_file_writes(scratch))
            with running_sink(settings.directory, size_bytes) as sink:
                lines += _measure_size(settings, node, sink, size_bytes)
    goals = [line for line in lines if line.size_bytes == GOAL_SIZE_BYTES and line.work == "produce, memory"]
    return Report(
        name=NAME,
        title="(a, b) One librdkafka client, beside its ceiling against a sink that parses nothing; the node's CPU",
        columns=[
            "size",
            "work",
            "messages/s",
            "MB/s",
            "sink messages/s",
            "ratio",
            "of turns",
            "node CPU s/GB",
            "sink's",
        ],
        rows=[_row(line) for line in lines],
        figures={"lines": msgspec.to_builtins(lines), "file_write_cpu_s_per_gb": probes},
        goals=[
            Goal.at_least(f"{line.work}, 1 KB: ratio to the sink at least 0.8", GOAL_RATIO, line.ratio)
            for line in goals
        ],
        notes=[
            "produce: a call for each message, as most programs have it. produce in chunks: a call for a thousand, with"
            " which the client alone can fill two cores.",
            "Ratios are medians of turns, node and sink alternating; the columns beside them are medians too.",
            f"Writing new files alone took {min(probes):.2f} to {max(probes):.2f} CPU s/GB on this machine.",
        ],
    )


def _measure_size(settings: Settings, node: Server, sink: Server, size_bytes: int) -> list[Line]:
    is_goal = size_bytes == GOAL_SIZE_BYTES
    turns = range(int(settings.either(5, 3) if is_goal else settings.either(2, 1)))
    produced: dict[tuple[str, str], list[Turn]] = {(durability, way): [] for way in WAYS for durability in DURABILITIES}
    for _ in turns:
        for (durability, way), taken in produced.items():
            taken.append(_produce_turn(settings, node, sink, size_bytes, durability, WAYS[way]))
    stored = int(settings.either(1.5e9, 0.4e9)) // size_bytes
    with new_topic(node, "consumed", "memory"):
        generator.produce(node.address, "consumed", "--size", str(size_bytes), "--messages", str(stored))
        consumed = [_consume_turn(node, sink, stored) for _ in turns]
    lines = [_line(size_bytes, f"produce{way}, {durability}", taken) for (durability, way), taken in produced.items()]
    return [*lines, _line(size_bytes, "consume", consumed)]


def _produce_turn(
    settings: Settings, node: Server, sink: Server, size_bytes: int, durability: str, way: tuple[str, ...]
) -> Turn:
    # Short turns: the more is written in one, the less of its memory has been touched.
    seconds, warmup_s = settings.either(1.0, 0.8), settings.either(0.5, 0.4)
    load = ("--size", str(size_bytes), "--seconds", str(seconds), "--warmup", str(warmup_s), *way)
    touch_memory(settings.directory / "scratch", int(TOUCHED_BYTES_PER_S * (seconds + warmup_s)))
    with new_topic(node, "produced", durability):
        on_node = partial(generator.produce, node.address, "produced", *load)
        return _take_turn(node, on_node, sink, partial(generator.produce, sink.address, SINK_TOPIC, *load))


def _consume_turn(node: Server, sink: Server, count: int) -> Turn:
    load = ("--messages", str(count), "--warmup", "0.1")
    on_node = partial(generator.consume, node.address, "consumed", *load)
    return _take_turn(node, on_node, sink, partial(generator.consume, sink.address, SINK_TOPIC, *load))


def touch_memory(scratch: Path, size_bytes: int) -> None:
    """Fill pages of the page cache, and give them back."""
    size = min(size_bytes, psutil.virtual_memory().available // 3, shutil.disk_usage(scratch.parent).free // 3)
    block = b"x" * (1 << 20)
    try:
        with scratch.open("wb", buffering=0) as file:
            for _ in range(size // len(block)):
                file.write(block)
    finally:
        scratch.unlink(missing_ok=True)


def probe_file_writes(scratch: Path) -> float:
    """CPU seconds that the kernel takes for writing a GB to a new file, of which a node that stores has to pay each."""
    block, before_s = b"x" * (1 << 20), time.process_time()
    try:
        with scratch.open("wb", buffering=0) as file:
            for _ in range(PROBE_BYTES // len(block)):
                file.write(block)
            spent_s = time.process_time() - before_s
    finally:
        scratch.unlink(missing_ok=True)
    return spent_s / (PROBE_BYTES / 1e9)


def _take_turn(node: Server, on_node: Callable[[], Measured], sink: Server, on_sink: Callable[[], Measured]) -> Turn:
    found = []
    for server, load in ((node, on_node), (sink, on_sink)):
        before_s = server.cpu_s()
        found.append((load(), server.cpu_s() - before_s))
    (from_node, node_cpu_s), (from_sink, sink_cpu_s) = found
    return Turn(from_node, from_sink, node_cpu_s, sink_cpu_s)


def _line(size_bytes: int, work: str, turns: list[Turn]) -> Line:
    ratios = [turn.node.messages_per_s / turn.sink.messages_per_s for turn in turns]
    return Line(
        size_bytes=size_bytes,
        work=work,
        messages_per_s=median(turn.node.messages_per_s for turn in turns),
        megabytes_per_s=median(turn.node.megabytes_per_s for turn in turns),
        sink_messages_per_s=median(turn.sink.messages_per_s for turn in turns),
        ratio=median(ratios),
        ratios=ratios,
        cpu_s_per_gb=median(turn.node_cpu_s / (turn.node.bytes_total / 1e9) for turn in turns),
        sink_cpu_s_per_gb=median(turn.sink_cpu_s / (turn.sink.bytes_total / 1e9) for turn in turns),
    )


def _row(line: Line) -> list[str]:
    return [
        f"{line.size_bytes} B",
        line.work,
        amount(line.messages_per_s),
        amount(line.megabytes_per_s),
        amount(line.sink_messages_per_s),
        f"{line.ratio:.2f}",
        f"{min(line.ratios):.2f} to {max(line.ratios):.2f}",
        f"{line.cpu_s_per_gb:.2f}",
        f"{line.sink_cpu_s_per_gb:.2f}",
    ]
