"""(m): rows a second through the Spark source and sinks, beside Spark's own Parquet, and how late a message arrives.

All ways read 1 KB messages with the same columns, take turns, and run in one session of one process (`spark_load`).
Ratios are taken within a turn. The way to noop is taken with documents and with random bytes, which Parquet does not
have to decompress (`spark_data`). Parquet is read from files that Spark has written from the topic, and is
in the page cache, as the topic is.
"""

import subprocess
import sys
from pathlib import Path
from statistics import median

import msgspec

from benchmarks import spark_data
from benchmarks.process import Server, clean_environment, running_node
from benchmarks.report import Goal, Report, amount
from benchmarks.settings import Settings
from benchmarks.spark_measured import CODEC, STREAM_BATCH_ROWS, MeasuredSpark

NAME = "spark"
TOPIC = "orders"
PARTITIONS = 4
DEADLINE_S = 1800.0
GOAL_RATIO = 0.8
MIB = 1 << 20

TITLES = {
    "source_to_noop": "source → noop",
    "parquet_to_noop": "Parquet → noop",
    "random_source_to_noop": "source → noop, random bytes",
    "random_parquet_to_noop": "Parquet → noop, random bytes",
    "pruned_source_to_noop": "source without values → noop",
    "source_to_delta": "source → Delta, one batch",
    "parquet_to_parquet": "Parquet → Parquet",
    "stream_to_delta": f"streaming source → Delta, {STREAM_BATCH_ROWS:,} a batch",
    "topic_to_topic": "topic → topic",
}
# What each way is held against.
BESIDE = {
    "source_to_noop": "parquet_to_noop",
    "random_source_to_noop": "random_parquet_to_noop",
    "pruned_source_to_noop": "parquet_to_noop",
    "source_to_delta": "parquet_to_parquet",
    "stream_to_delta": "parquet_to_parquet",
    "topic_to_topic": "parquet_to_parquet",
}


def run(settings: Settings) -> Report:
    count = int(settings.either(1_000_000, 100_000))
    directory = settings.directory / "spark"
    directory.mkdir()
    with running_node(settings.directory / "spark-node") as node:
        for kind in spark_data.KINDS:
            spark_data.fill(node.address, spark_data.topic_of(TOPIC, kind), count, partitions=PARTITIONS, kind=kind)
        measured = _load(node, directory, turns=int(settings.either(5, 1)), latencies=int(settings.either(60, 10)))
    if measured.rows != count:
        raise RuntimeError(f"{count} messages were sent, and Spark counted {measured.rows}")
    return report(measured, spark_data.compressed_share(spark_data.DOCUMENTS))


def _load(node: Server, directory: Path, *, turns: int, latencies: int) -> MeasuredSpark:
    command = [sys.executable, "-m", "benchmarks.spark_load", node.address, TOPIC, str(directory)]
    command += ["--turns", str(turns), "--latencies", str(latencies)]
    done = subprocess.run(command, capture_output=True, env=clean_environment(), timeout=DEADLINE_S)
    if done.returncode != 0:
        raise RuntimeError(f"Spark failed: {done.stderr[-4000:].decode(errors='replace')}")
    return msgspec.json.decode(done.stdout, type=MeasuredSpark)


def report(measured: MeasuredSpark, shares: dict[str, float]) -> Report:
    return Report(
        name=NAME,
        title="(m) Spark on this machine, 1 KB documents: rows a second, beside Spark's own Parquet",
        columns=["way", "rows/s", "ratio", "of turns", "beside", "JVM MiB", "largest worker MiB"],
        rows=[_row(measured, name) for name in measured.seconds],
        figures=msgspec.to_builtins(measured),
        goals=_goals(measured),
        notes=_notes(measured, shares),
    )


def _row(measured: MeasuredSpark, name: str) -> list[str]:
    ratios = _ratios(measured, name)
    memory = measured.memory[name]
    return [
        TITLES[name],
        amount(median(measured.rows / taken_s for taken_s in measured.seconds[name])),
        f"{median(ratios):.2f}" if ratios else "",
        f"{min(ratios):.2f} to {max(ratios):.2f}" if ratios else "",
        TITLES[BESIDE[name]] if ratios else "",
        amount(memory.jvm_bytes / MIB),
        amount(memory.worker_bytes / MIB),
    ]


def _ratios(measured: MeasuredSpark, name: str) -> list[float]:
    """How fast a way is, as a share of the one beside it, turn by turn."""
    beside = measured.seconds.get(BESIDE.get(name, ""), [])
    return [other_s / own_s for own_s, other_s in zip(measured.seconds[name], beside, strict=False)]


def _goals(measured: MeasuredSpark) -> list[Goal]:
    texts = {
        "source_to_noop": "Spark source → noop, rows/s as a share of Parquet → noop",
        "random_source_to_noop": "the same of random bytes, which Parquet does not decompress",
        "source_to_delta": "Spark source → Delta in one batch, rows/s as a share of Parquet → Parquet",
    }
    return [
        Goal.at_least(f"{text} (≥ {GOAL_RATIO})", GOAL_RATIO, median(_ratios(measured, name)))
        for name, text in texts.items()
        if name in measured.seconds
    ]


def _notes(measured: MeasuredSpark, shares: dict[str, float]) -> list[str]:
    left = " and ".join(f"{share:.0%} of a value by {name}" for name, share in shares.items())
    notes = [
        f"{measured.rows:,} rows of seven columns; compression leaves {left} of documents. "
        f"Files are written with {CODEC} by both.",
        f"A session and its first query take {measured.start_s:.1f} s. The JVM is driver and executor in one.",
    ]
    notes += [
        f"One message at a time, from its sender to a {sink}: p50 {found.p50_ms:.0f} ms, p95 {found.p95_ms:.0f} ms, "
        f"at most {found.max_ms:.0f} ms ({found.count} messages)."
        for sink, found in measured.latencies.items()
    ]
    return notes
