"""All tests, in two runs at once: those of Spark, which spend much of their time waiting for a JVM, and all others.

    python -m tools.run_tests [--grace-s SECONDS] PYTEST [OPTION ...]

The options go to both runs. Spark's report comes when both are over, and the last line says which of them failed.

Each run leads a session of its own. A Ctrl-C of the terminal therefore reaches this program alone, which tells both
runs, once: their fixtures end the nodes and JVMs that they have started, and a second Ctrl-C would break that off.
What is still there after the time of grace is killed.
"""

import argparse
import contextlib
import os
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from typing import BinaryIO

GRACE_S = 30.0
INTERRUPTED_CODE = 128 + signal.SIGINT
_INTERRUPTS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Half:
    """One of the two runs.

    Its process is reaped by `end` alone. Until then its id, which is the id of its group too, can be nobody else's, so
    that every signal reaches the one that is meant.
    """

    def __init__(self, name: str, command: Sequence[str], output: BinaryIO | None = None) -> None:
        self.name = name
        self.is_killed = False
        self.code = 0
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=None if output is None else subprocess.STDOUT,
            start_new_session=True,
        )

    def is_over(self) -> bool:
        return os.waitid(os.P_PID, self._process.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None

    def interrupt(self) -> None:
        os.kill(self._process.pid, signal.SIGINT)

    def end(self) -> None:
        """Kill what is left of the group, be it the run itself or something that it has left behind."""
        self.is_killed = not self.is_over()
        os.killpg(self._process.pid, signal.SIGKILL)
        self.code = self._process.wait()


class Bell:
    """Rings when a run may be over and when a signal asks this program to stop: something to wait for both with.

    To be made before the first run is started. A signal that has a handler here has its default action in a new
    process, and a pytest that was started with SIGINT ignored (by a shell, in the background) would not hear it.
    """

    def __init__(self) -> None:
        # Whoever had a signal ignored, as nohup has, wants the run to outlive it.
        self._interrupts = {number for number in _INTERRUPTS if signal.getsignal(number) is not signal.SIG_IGN}
        self._reader, writer = os.pipe()
        os.set_blocking(writer, False)
        signal.set_wakeup_fd(writer)
        for number in (*_INTERRUPTS, signal.SIGCHLD):
            signal.signal(number, lambda _number, _frame: None)

    def wait(self, timeout_s: float | None) -> bool:
        """Whether a signal asks this program to stop."""
        ready, _, _ = select.select([self._reader], [], [], timeout_s)
        return bool(ready) and not self._interrupts.isdisjoint(os.read(self._reader, 512))


def wait_for(halves: Sequence[Half], bell: Bell, *, grace_s: float) -> bool:
    """Wait until both are over, or until the time of grace is. Says whether they were interrupted."""
    end_s: float | None = None
    while not all(half.is_over() for half in halves):
        left_s = None if end_s is None else end_s - time.monotonic()
        if left_s is not None and left_s <= 0:
            break
        if bell.wait(left_s) and end_s is None:
            end_s = time.monotonic() + grace_s
            for half in halves:
                half.interrupt()
            say(f"interrupted: the tests have {grace_s:g} s to clean up")
    return end_s is not None


def verdict(halves: Sequence[Half], *, is_interrupted: bool) -> str:
    if is_interrupted:
        killed = [half.name for half in halves if half.is_killed]
        return f"interrupted; killed, for it did not end: {', '.join(killed)}" if killed else "interrupted"
    failed = [f"{half.name} (exit code {half.code})" for half in halves if half.code]
    return f"failed: {', '.join(failed)}" if failed else "both halves passed"


def say(line: str) -> None:
    # A terminal may be gone, which is one of the reasons to be interrupted: the cleaning up goes on without it.
    with contextlib.suppress(OSError):
        print(line, flush=True)


def run(command: Sequence[str], *, grace_s: float) -> int:
    bell = Bell()
    halves: list[Half] = []
    with tempfile.TemporaryFile() as report:
        try:
            say("tests/spark runs beside the rest and reports at the end")
            halves.append(Half("tests/spark", [*command, "tests/spark"], report))
            halves.append(Half("all other tests", [*command, "tests", "--ignore", "tests/spark"]))
            is_interrupted = wait_for(halves, bell, grace_s=grace_s)
        finally:
            for half in halves:
                half.end()
        say("tests/spark:")
        report.seek(0)
        with contextlib.suppress(OSError):
            shutil.copyfileobj(report, sys.stdout.buffer)
    say(verdict(halves, is_interrupted=is_interrupted))
    if is_interrupted:
        return INTERRUPTED_CODE
    return int(any(half.code for half in halves))


def main() -> None:
    parser = argparse.ArgumentParser(description="Run Spark's tests and all others at once.")
    parser.add_argument("--grace-s", type=float, default=GRACE_S, help="to clean up in, after an interrupt")
    parser.add_argument("command", nargs=argparse.REMAINDER, help="pytest, and options for both runs")
    arguments = parser.parse_args()
    if not arguments.command:
        parser.error("say which pytest")
    sys.exit(run(arguments.command, grace_s=arguments.grace_s))


if __name__ == "__main__":
    main()
