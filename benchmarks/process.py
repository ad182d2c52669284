"""The processes that are measured: a node, and the sink. Started as a user would start them, and always ended."""

import json
import os
import select
import shutil
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil

HEADRACE = (sys.executable, "-c", "from headrace.cli.main import main; main()")
START_DEADLINE_S = 300.0
STOP_DEADLINE_S = 120.0


def clean_environment() -> dict[str, str]:
    """A person's settings for their own node are not for this one."""
    return {name: value for name, value in os.environ.items() if not name.startswith("HEADRACE_")}


class Server:
    """A process that says on its first line where it listens."""

    def __init__(self, command: Sequence[str], log: Path, *, stdin: int = subprocess.DEVNULL) -> None:
        self._log = log
        begun = time.monotonic()
        with log.open("ab") as errors:
            self.process = subprocess.Popen(
                command, stdout=subprocess.PIPE, stderr=errors, stdin=stdin, env=clean_environment()
            )
        try:
            self.ready: dict[str, Any] = json.loads(self._first_line())
        except BaseException:
            self.kill()
            raise
        self.start_s = time.monotonic() - begun
        self.address: str = self.ready.get("kafka", "")
        self.http: str = self.ready.get("http", "")
        self._watched = psutil.Process(self.process.pid)

    def _first_line(self) -> bytes:
        assert self.process.stdout is not None
        line, deadline = b"", time.monotonic() + START_DEADLINE_S
        while not line.endswith(b"\n"):
            left = max(0.0, deadline - time.monotonic())
            readable, _, _ = select.select([self.process.stdout], [], [], left)
            data = os.read(self.process.stdout.fileno(), 4096) if readable else b""
            if not data:
                raise RuntimeError(f"the process did not start; it said: {self._log.read_text()[-2000:]}")
            line += data
        return line

    def cpu_s(self) -> float:
        """User and system time so far, of all threads."""
        times = self._watched.cpu_times()
        return float(times.user + times.system)

    def resident_bytes(self) -> int:
        return int(self._watched.memory_info().rss)

    def metrics(self) -> dict[str, float]:
        """Every sample of /metrics by its name, labels included; nothing where the node has no such page."""
        if "http" not in self.ready:
            return {}
        try:
            with urllib.request.urlopen(f"http://{self.ready['http']}/metrics", timeout=5) as answer:
                text = answer.read().decode()
        except (urllib.error.URLError, TimeoutError):
            return {}
        samples = (line.rpartition(" ") for line in text.splitlines() if line and not line.startswith("#"))
        return {name: float(value) for name, _, value in samples}

    def stop(self) -> None:
        """Gracefully, which for a node means a clean shutdown."""
        self.process.terminate()
        self._reap(STOP_DEADLINE_S)

    def kill(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self._reap(STOP_DEADLINE_S)

    def _reap(self, deadline_s: float) -> None:
        self.process.wait(deadline_s)
        for pipe in (self.process.stdin, self.process.stdout):
            if pipe is not None:
                pipe.close()


def node_command(data: Path) -> list[str]:
    return [*HEADRACE, "up", "--json", "--data", str(data), "--kafka", "127.0.0.1:0", "--http", "127.0.0.1:0"]


def start_node(data: Path) -> Server:
    return Server(node_command(data), data.parent / f"{data.name}.log")


@contextmanager
def running_node(data: Path) -> Iterator[Server]:
    """A node with a data directory that is gone afterwards."""
    node = start_node(data)
    try:
        yield node
    finally:
        node.kill()
        remove(data)


@contextmanager
def running_sink(directory: Path, size_bytes: int) -> Iterator[Server]:
    command = (sys.executable, "-m", "benchmarks.sink", "--size", str(size_bytes))
    sink = Server(command, directory / "sink.log")
    try:
        yield sink
    finally:
        sink.kill()


@contextmanager
def running_module(name: str, directory: Path) -> Iterator[Server]:
    """One of the servers of this package, such as `bare_http`."""
    server = Server((sys.executable, "-m", f"benchmarks.{name}"), directory / f"{name}.log")
    try:
        yield server
    finally:
        server.kill()


def remove(data: Path) -> None:
    shutil.rmtree(data, ignore_errors=True)
