"""(d): how long a node needs to open a large partition, after a clean stop and after SIGKILL under load.

The time is from the start of the process to its first line, less the same with an empty directory. It is taken with
the files in the page cache, as after the death of a process, and with them dropped from it, as after a reboot.
"""

import os
import shutil
import subprocess
import time
from pathlib import Path
from statistics import median

from benchmarks import generator
from benchmarks.process import clean_environment, remove, running_node, start_node
from benchmarks.report import Report
from benchmarks.settings import Settings
from headrace.cli.load import Target, create_topics

NAME = "open"
FULL_BYTES = 5_000_000_000
QUICK_BYTES = 512_000_000
MESSAGE_BYTES = 10_240
LOAD_S = 3.0
SPARE_FACTOR = 1.5
TOPIC = "large"


def run(settings: Settings) -> Report:
    size_bytes = int(settings.either(FULL_BYTES, QUICK_BYTES))
    free = shutil.disk_usage(settings.directory).free
    if free < size_bytes * SPARE_FACTOR:
        raise RuntimeError(
            f"{size_bytes * SPARE_FACTOR / 1e9:.1f} GB of disk are needed, and {free / 1e9:.1f} are free"
        )
    empty_s = _time_empty(settings.directory, int(settings.either(5, 3)))
    data = settings.directory / "open"
    try:
        _fill(data, size_bytes)
        times = _time_openings(data)
        stored = sum(file.stat().st_size for file in data.rglob("*") if file.is_file())
    finally:
        remove(data)
    return Report(
        name=NAME,
        title=f"(d) Seconds to open a partition of {size_bytes / 1e9:.1f} GB",
        columns=["after", "from the page cache", "from the disk"],
        rows=[
            [how, *(f"{max(0.0, times[how, where] - empty_s):.3f}" for where in ("cached", "cold"))]
            for how in ("a clean stop", "SIGKILL under load")
        ],
        figures={
            "bytes": stored,
            "empty_start_s": empty_s,
            "start_s": {f"{how}, {where}": seconds for (how, where), seconds in times.items()},
        },
        notes=[f"Less the {empty_s:.3f} s of a start with nothing to open."],
    )


def _time_empty(directory: Path, rounds: int) -> float:
    times = []
    for _ in range(rounds):
        with running_node(directory / "empty") as node:
            times.append(node.start_s)
    return median(times)


def _fill(data: Path, size_bytes: int) -> None:
    node = start_node(data)
    try:
        options = ("--size", str(MESSAGE_BYTES), "--messages", str(size_bytes // MESSAGE_BYTES))
        create_topics(Target(server=node.address, topic=TOPIC), partitions=1, settings={"headrace.durability": "fsync"})
        generator.produce(node.address, TOPIC, *options)
        node.stop()
    finally:
        node.kill()


def _time_openings(data: Path) -> dict[tuple[str, str], float]:
    times = {("a clean stop", "cached"): _open_and_stop(data)}
    drop_from_cache(data)
    times["a clean stop", "cold"] = _open_and_stop(data)
    _kill_under_load(data)
    times["SIGKILL under load", "cached"] = _open_and_stop(data)
    _kill_under_load(data)
    drop_from_cache(data)
    times["SIGKILL under load", "cold"] = _open_and_stop(data)
    return times


def _open_and_stop(data: Path) -> float:
    node = start_node(data)
    try:
        node.stop()
    finally:
        node.kill()
    return node.start_s


def _kill_under_load(data: Path) -> None:
    node = start_node(data)
    load = subprocess.Popen(
        generator.command("produce", node.address, TOPIC, ("--size", "1024", "--seconds", str(LOAD_S * 10))),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        env=clean_environment(),
    )
    try:
        time.sleep(LOAD_S)
    finally:
        node.kill()
        load.kill()
        load.wait()


def drop_from_cache(directory: Path) -> None:
    """Ask the kernel to forget the pages of every file; those not yet written have to be written first."""
    for path in directory.rglob("*"):
        if path.is_file():
            descriptor = os.open(path, os.O_RDONLY)
            try:
                os.fdatasync(descriptor)
                os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
            finally:
                os.close(descriptor)
