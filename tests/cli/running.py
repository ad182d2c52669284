"""A real node in a process of its own, started and stopped as a user would."""

import json
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

START_DEADLINE_S = 20.0
STOP_DEADLINE_S = 20.0
HEADRACE = (sys.executable, "-c", "from headrace.cli.main import main; main()")


class RunningNode:
    def __init__(self, process: subprocess.Popen[bytes], ready: dict[str, Any], data: Path) -> None:
        self.process = process
        self.server: str = ready["kafka"]
        self.ready = ready
        self.data = data

    def stop(self, with_signal: signal.Signals = signal.SIGTERM) -> int:
        """Ask it to stop and give its exit code."""
        self.process.send_signal(with_signal)
        return self.process.wait(STOP_DEADLINE_S)


def clean_environment() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if not name.startswith("HEADRACE_")}


@contextmanager
def running_node(data: Path, *arguments: str) -> Iterator[RunningNode]:
    command = [*HEADRACE, "up", "--json", "--data", str(data), "--http", "127.0.0.1:0", *arguments]
    if "--kafka" not in arguments:
        command += ["--kafka", "127.0.0.1:0"]
    with (data.parent / f"{data.name}.stderr").open("ab") as errors:
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=errors, env=clean_environment())
        try:
            yield RunningNode(process, json.loads(_first_line(process, Path(errors.name))), data)
        finally:
            if process.poll() is None:
                process.kill()
                process.wait(STOP_DEADLINE_S)
            assert process.stdout is not None
            process.stdout.close()


def _first_line(process: subprocess.Popen[bytes], errors: Path) -> bytes:
    assert process.stdout is not None
    line, deadline = b"", time.monotonic() + START_DEADLINE_S
    while not line.endswith(b"\n"):
        left = deadline - time.monotonic()
        ready, _, _ = select.select([process.stdout], [], [], max(0.0, left))
        data = os.read(process.stdout.fileno(), 4096) if ready else b""
        if not data:
            raise AssertionError(f"the node did not start; it said:\n{errors.read_text(errors='replace')}")
        line += data
    return line
