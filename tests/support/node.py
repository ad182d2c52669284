"""A real node in a process of its own, on loopback: started, stopped, killed and started again on the same data.

Its log goes to a file as JSON, so that tests ask for a line by its message. Whatever happens in a test, `running`
leaves no process behind.
"""

import json
import os
import random
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.support.wait import wait_until

START_DEADLINE_S = 30.0
STOP_DEADLINE_S = 15.0
HEADRACE = (sys.executable, "-c", "from headrace.cli.main import main; main()")

# Below the range that the kernel gives to outgoing connections: a client that tries to reconnect while the node is
# down could otherwise be given the node's own port, and be connected to itself.
_PORTS = range(18_000, 32_000)


def free_port() -> int:
    """A loopback port that nobody listens on."""
    # From the system, since pytest-randomly seeds `random` alike for each test: a client that an earlier test left
    # behind would find a node of this test at its port.
    for port in random.SystemRandom().sample(_PORTS, 100):
        with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            return port
    raise AssertionError("no free loopback port")


def environment(settings: Mapping[str, object]) -> dict[str, str]:
    """This process's environment without settings of a node, and with these, given by their paths."""
    own = {name: value for name, value in os.environ.items() if not name.startswith("HEADRACE_")}
    return own | {"HEADRACE_" + path.upper().replace(".", "_"): str(value) for path, value in settings.items()}


class NodeProcess:
    """One node: a data directory, a port, and the process that serves them, if there is one."""

    def __init__(
        self,
        data: Path,
        *,
        settings: Mapping[str, object] | None = None,
        arguments: Sequence[str] = (),
        open_files: int | None = None,
    ) -> None:
        self.data = data
        self.port = free_port()
        self.settings = dict(settings or {})
        self.arguments = arguments
        self.open_files = open_files  # what `ulimit -n` gives it
        self.process: subprocess.Popen[bytes] | None = None
        self._directory = data.parent / f"{data.name}.run"
        self._directory.mkdir(exist_ok=True)
        self._run_count = 0

    @property
    def server(self) -> str:
        return f"127.0.0.1:{self.port}"

    @property
    def http(self) -> str:
        """Where it listens for HTTP, which it says once it is ready."""
        return self._ready()["http"]

    @property
    def admin(self) -> str:
        """Where it listens for administrators."""
        return self._ready()["admin"]

    def _ready(self) -> dict[str, str]:
        said: dict[str, str] = json.loads(self._output("out").read_text(encoding="utf-8"))
        return said

    @property
    def pid(self) -> int:
        assert self.process is not None, "the node was never started"
        return self.process.pid

    def launch(self) -> None:
        """Start the process without waiting for it."""
        assert self.process is None or self.process.poll() is not None, "the node runs"
        self._run_count += 1
        command = [*HEADRACE, "up", "--json", "--log-format", "json", "--data", str(self.data)]
        command += ["--kafka", self.server, "--http", "127.0.0.1:0", *self.arguments]
        if self.open_files is not None:
            command = ["sh", "-c", f'ulimit -n {self.open_files}; exec "$@"', "sh", *command]
        with self._output("out").open("wb") as out, self._output("log").open("wb") as log:
            self.process = subprocess.Popen(command, stdout=out, stderr=log, env=environment(self.settings))

    def start(self, *, deadline_s: float = START_DEADLINE_S) -> None:
        """Start the process and wait until it serves."""
        self.launch()
        self.wait_ready(deadline_s=deadline_s)

    def wait_ready(self, *, deadline_s: float = START_DEADLINE_S) -> None:
        wait_until(
            lambda: self.is_ready() or self.exit_code() is not None,
            deadline_s=deadline_s,
            what=lambda: f"the node is ready; it said:\n{self.log_text()}",
        )
        assert self.exit_code() is None, f"the node did not start; it said:\n{self.log_text()}"

    def is_ready(self) -> bool:
        return self._output("out").read_bytes().endswith(b"\n")

    def exit_code(self) -> int | None:
        assert self.process is not None
        return self.process.poll()

    def wait_exit(self, *, deadline_s: float = STOP_DEADLINE_S) -> int:
        assert self.process is not None
        return self.process.wait(deadline_s)

    def kill(self) -> None:
        """SIGKILL, as a crash."""
        assert self.process is not None
        self.process.kill()
        self.process.wait(STOP_DEADLINE_S)

    def stop(self, *, deadline_s: float = STOP_DEADLINE_S) -> int:
        """SIGTERM, as an operator; returns the exit code."""
        os.kill(self.pid, signal.SIGTERM)
        return self.wait_exit(deadline_s=deadline_s)

    def clean_up(self) -> None:
        if self.process is not None and self.process.poll() is None:
            self.kill()

    # What it said.

    def _output(self, kind: str) -> Path:
        return self._directory / f"{self._run_count}.{kind}"

    def log_text(self) -> str:
        """The log of the latest run."""
        return self._output("log").read_text(encoding="utf-8", errors="replace")

    def log_lines(self) -> list[dict[str, Any]]:
        """The log lines of the latest run. A last line that is still being written is left out."""
        lines = []
        for line in self.log_text().splitlines(keepends=True):
            if line.startswith("{") and line.endswith("\n"):
                lines.append(json.loads(line))
        return lines

    def said(self, message: str) -> list[dict[str, Any]]:
        """The lines whose message has this in it."""
        return [line for line in self.log_lines() if message in line["message"]]

    def wait_said(self, message: str, *, deadline_s: float = 10.0) -> dict[str, Any]:
        wait_until(
            lambda: bool(self.said(message)),
            deadline_s=deadline_s,
            what=lambda: f"{message!r} in the node's log, which is:\n{self.log_text()}",
        )
        return self.said(message)[0]


@contextmanager
def running(
    data: Path,
    *,
    settings: Mapping[str, object] | None = None,
    arguments: Sequence[str] = (),
    open_files: int | None = None,
) -> Iterator[NodeProcess]:
    """A node that serves, and is gone afterwards."""
    node = NodeProcess(data, settings=settings, arguments=arguments, open_files=open_files)
    try:
        node.start()
        yield node
    finally:
        node.clean_up()
