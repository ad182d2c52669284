"""What a process asks of its machine: at its start, and about itself."""

import asyncio
import fcntl
import gc
import os
import platform
import resource
import signal
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple


class DirectoryLock:
    """Held by the one process that uses a data directory; the kernel lets go of it when the process ends."""

    def __init__(self, path: str) -> None:
        self._fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)

    def try_lock(self) -> bool:
        try:
            fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True

    def release(self) -> None:
        os.close(self._fd)


def raise_open_files_limit() -> int:
    """Allow this process as many descriptors as the machine lets it have; return how many those are."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < hard:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    return hard


def keep_collector_off_the_hot_path() -> None:
    """Leave what exists now out of every later collection, and collect seldom: requests make no cycles."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000, 20, 50)


def let_threads_in_quickly() -> None:
    """Have a busy event loop let a thread in within half a millisecond instead of five.

    A thread that comes back from a sync needs the interpreter to say so, and everybody waits for that answer.
    """
    sys.setswitchinterval(0.0005)


def hears_signals() -> bool:
    """Whether this thread is the one that signals of the process come to."""
    return threading.current_thread() is threading.main_thread()


def on_stop_signal(callback: Callable[[], None]) -> None:
    """Call on the loop when somebody asks the process to stop, or closes its terminal without having said `nohup`.

    The loop runs in the main thread.
    """
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        if number != signal.SIGHUP or signal.getsignal(number) != signal.SIG_IGN:
            loop.add_signal_handler(number, callback)


class ProcessUsage(NamedTuple):
    cpu_seconds: float
    resident_bytes: int


def boot_id() -> str:
    """Differs after each boot of the machine; empty where the kernel does not say."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    except OSError:
        return ""


def process_usage() -> ProcessUsage:
    """What this process has used so far. Reads memory files of the kernel, which do not block."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
    return ProcessUsage(used.ru_utime + used.ru_stime, pages * resource.getpagesize())


def collector_stats() -> Sequence[Mapping[str, int]]:
    """What Python's cycle collector has done, generation by generation."""
    return gc.get_stats()


def python_version() -> str:
    return platform.python_version()
