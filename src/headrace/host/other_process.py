"""Another process of this machine: known again by when it began, asked to end, never taken for one that has its number.

A process id is used again. What does not come twice is the id together with the moment at which the process began, as
the kernel counts it, and the machine's own start.
"""

import os
import signal
from pathlib import Path

_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
# Of the fields after the command's closing parenthesis in /proc/PID/stat: the state, and the start in clock ticks.
_STATE, _START = 0, 19
_ENDED = {"Z", "X"}


def birth_of(pid: int) -> str | None:
    """What tells this process from any other that has or had its id; None where none runs."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
        boot = _BOOT_ID.read_text(encoding="ascii").strip()
    except OSError:
        return None
    fields = text.rpartition(")")[2].split()
    return None if fields[_STATE] in _ENDED else f"{boot}/{fields[_START]}"


def is_alive(pid: int, birth: str) -> bool:
    return birth_of(pid) == birth


def ask_to_end(pid: int, birth: str) -> bool:
    """SIGTERM to that process and to no other. False where it has ended."""
    try:
        handle = os.pidfd_open(pid)
    except ProcessLookupError:
        return False
    try:
        # The handle is of whoever has the id now, for good: looked at after it was taken, it cannot change any more.
        if not is_alive(pid, birth):
            return False
        signal.pidfd_send_signal(handle, signal.SIGTERM)
    except ProcessLookupError:
        return False
    finally:
        os.close(handle)
    return True
