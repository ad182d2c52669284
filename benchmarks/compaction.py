"""(n): the memory of the driver's Python process while an archive's small files are joined, by the table's size."""

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

from benchmarks.process import clean_environment
from benchmarks.report import Goal, Report
from benchmarks.settings import Settings

NAME = "compaction"
MEMORY_MB = 256  # what `--compact-memory` is without being given
OTHER_MEMORY_MB = (64, 1024)
GIGABYTES = (0.5, 1.0, 2.0, 4.0)
GIGABYTES_QUICK = (0.1, 0.2)


def run(settings: Settings) -> Report:
    sizes = GIGABYTES_QUICK if settings.is_quick else GIGABYTES
    found = [_joined(settings.directory, gigabytes, MEMORY_MB) for gigabytes in sizes]
    found += [_joined(settings.directory, sizes[1], memory_mb) for memory_mb in OTHER_MEMORY_MB]
    growth = max(one["peak_bytes"] - one["before_bytes"] for one in found if one["memory_mb"] == MEMORY_MB)
    return Report(
        name=NAME,
        title="(n) Joining the small files of an archive",
        columns=["table", "--compact-memory", "files", "joined to", "seconds", "resident before", "at its peak"],
        rows=[
            [
                f"{one['table_bytes'] / 1e9:.1f} GB",
                f"{one['memory_mb']} MB",
                str(one["files"]),
                str(one["joined"]),
                f"{one['seconds']:.0f}",
                f"{one['before_bytes'] / 1e6:.0f} MB",
                f"{one['peak_bytes'] / 1e6:.0f} MB",
            ]
            for one in found
        ],
        figures=found,
        goals=[Goal.at_most("MB of memory that joining takes, as configured", MEMORY_MB * 1.048576, growth / 1e6)],
        notes=["1 KB a message, half of which is random; files of 20,000 messages, about 11 MB each."],
    )


def _joined(directory: Path, gigabytes: float, memory_mb: int) -> dict[str, Any]:
    path = directory / "compaction"
    try:
        _call("make", str(path), "--gigabytes", str(gigabytes))
        # A process of its own: its peak is of nothing else.
        said: dict[str, Any] = json.loads(_call("join", str(path), "--memory-mb", str(memory_mb)))
        return said
    finally:
        shutil.rmtree(path, ignore_errors=True)


def _call(*arguments: str) -> str:
    command = [sys.executable, "-m", "benchmarks.compact_table", *arguments]
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, env=clean_environment()).stdout
