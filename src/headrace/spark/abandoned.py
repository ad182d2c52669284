"""Silence for workers whose rows or answers the JVM no longer wants.

After `.show()` or `.limit()` the JVM hangs up on workers that are starting or still giving rows. PySpark's daemon
prints the BrokenPipeError that it gets for that, once for each worker, to the user's terminal. It is no fault and is
left out; everything else is printed as before.

A session of headrace's has a daemon that does so for all workers (`daemon.py`). In any other session each process in
which source and sinks run does so for itself.
"""

import sys
import traceback
from typing import Any

_DAEMON = "pyspark.daemon"
_DAEMONS = (_DAEMON, "headrace.spark.daemon")
_print_exc = traceback.print_exc


def silence_hang_ups() -> None:
    """In a process of PySpark's daemon. Anywhere else nothing changes."""
    spec = getattr(sys.modules["__main__"], "__spec__", None)
    if spec is not None and spec.name in _DAEMONS:
        traceback.print_exc = _print_unless_abandoned


def is_hang_up(error: BaseException | None) -> bool:
    """Whether the daemon itself found the JVM's side closed, and not a function of the user's some other pipe."""
    if not isinstance(error, BrokenPipeError | ConnectionResetError) or error.__traceback__ is None:
        return False
    *_, (innermost, _) = traceback.walk_tb(error.__traceback__)
    spec = innermost.f_globals.get("__spec__")  # the name is __main__ where `-m` runs the daemon
    return spec is not None and spec.name == _DAEMON


def _print_unless_abandoned(*arguments: Any, **named: Any) -> None:
    if not is_hang_up(sys.exception()):
        _print_exc(*arguments, **named)
