"""(e): how much memory a node with many topics keeps resident, doing nothing and under load."""

import subprocess
import time

from benchmarks import generator
from benchmarks.process import Server, clean_environment, running_node
from benchmarks.report import Report
from benchmarks.settings import Settings
from headrace.cli.load import Target, create_topics

NAME = "memory"
TOPICS = 1000
RATE = 10_000
SAMPLE_S = 0.1


def run(settings: Settings) -> Report:
    with running_node(settings.directory / "memory") as node:
        fresh = node.resident_bytes()
        many = ("--topics", str(TOPICS))
        target = Target(server=node.address, topic="many", topics=TOPICS)
        create_topics(target, partitions=1, settings={"headrace.durability": "fsync"})
        generator.produce(node.address, "many", *many, "--messages", str(TOPICS), "--rate", str(RATE))
        time.sleep(settings.either(5.0, 1.0))
        idle = node.resident_bytes()
        seconds = settings.either(15.0, 5.0)
        options = (*many, "--rate", str(RATE), "--linger", "1", "--seconds", str(seconds))
        peak = _peak_during(node, generator.command("produce", node.address, "many", options))
        after = node.resident_bytes()
    figures = {"fresh": fresh, "idle": idle, "peak_under_load": peak, "after_load": after, "topics": TOPICS}
    return Report(
        name=NAME,
        title=f"(e) Resident memory of a node with {TOPICS:,} topics",
        columns=["state", "MB", "KB for each topic"],
        rows=[
            ["without topics", f"{fresh / 1e6:.1f}", ""],
            [f"{TOPICS:,} topics, idle", f"{idle / 1e6:.1f}", f"{(idle - fresh) / TOPICS / 1e3:.1f}"],
            [f"highest at {RATE:,} messages/s", f"{peak / 1e6:.1f}", f"{(peak - fresh) / TOPICS / 1e3:.1f}"],
            ["after that", f"{after / 1e6:.1f}", f"{(after - fresh) / TOPICS / 1e3:.1f}"],
        ],
        figures=figures,
        notes=["The load goes round all topics, 1 KB a message, fsync."],
    )


def _peak_during(node: Server, command: list[str]) -> int:
    peak = 0
    with subprocess.Popen(
        command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=clean_environment()
    ) as load:
        while load.poll() is None:
            peak = max(peak, node.resident_bytes())
            time.sleep(SAMPLE_S)
    if load.returncode != 0:
        raise RuntimeError(f"the load failed: {' '.join(command)}")
    return peak
