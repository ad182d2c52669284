"""Faults in a running process's system calls, by strace: errors and delays that a healthy machine does not have."""

import shutil
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest
from tests.support.wait import wait_until

_DEADLINE_S = 10.0


@contextmanager
def injected(pid: int, calls: str, fault: str, output: Path, *, paths: Sequence[Path] = ()) -> Iterator[None]:
    """Inject a fault (strace's words: `error=EIO`, `delay_enter=500000`) into calls of every thread of a process.

    With paths, only into calls on those files. Afterwards the process goes on unharmed.
    """
    assert shutil.which("strace") is not None, "strace is missing; tools/install-test-tools.sh installs it"
    command = ["strace", "-f", "-p", str(pid), "-o", str(output), "-e", f"trace={calls}"]
    command += ["-e", f"inject={calls}:{fault}"]
    for path in paths:
        command += ["-P", str(path)]
    said = output.with_suffix(".said")
    with said.open("wb") as errors:
        tracer = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=errors)
    try:
        wait_until(
            lambda: "attached" in said.read_text() or tracer.poll() is not None,
            deadline_s=_DEADLINE_S,
            what="strace is attached",
        )
        if tracer.poll() is not None:
            text = said.read_text()
            if "not permitted" in text or "ptrace_scope" in text:
                pytest.skip(f"this machine does not let a test trace a process: {text.strip()}")
            raise AssertionError(f"strace ended: {text}")
        yield
    finally:
        if tracer.poll() is None:
            tracer.terminate()
        tracer.wait(_DEADLINE_S)
