"""Facts about the machine, without which figures mean nothing."""

import importlib.metadata
import os
import platform
from pathlib import Path

import confluent_kafka
import psutil

import headrace

GB = 1e9


def facts(directory: Path) -> dict[str, str]:
    usage = psutil.disk_usage(str(directory))
    return {
        "processor": _processor(),
        "cores": f"{len(os.sched_getaffinity(0))}",
        "memory": f"{psutil.virtual_memory().total / GB:.1f} GB",
        "file system": f"{_file_system(directory)}, {usage.free / GB:.0f} GB free",
        "kernel": platform.release(),
        "Python": f"{platform.python_implementation()} {platform.python_version()}",
        "headrace": headrace.__version__,
        "confluent-kafka": f"{confluent_kafka.version()} (librdkafka {confluent_kafka.libversion()[0]})",
        "uvloop": importlib.metadata.version("uvloop"),
        "load before the run": f"{os.getloadavg()[0]:.2f}",
    }


def _processor() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        name, _, value = line.partition(":")
        if name.strip() in ("model name", "Model"):
            return value.strip()
    return platform.machine()


def _file_system(directory: Path) -> str:
    """The type of the mount that holds a directory."""
    best = ("", "unknown")
    whole = str(directory.resolve())
    for part in psutil.disk_partitions(all=True):
        inside = whole == part.mountpoint or whole.startswith(part.mountpoint.rstrip("/") + "/")
        if inside and len(part.mountpoint) > len(best[0]):
            best = (part.mountpoint, part.fstype)
    return best[1]
