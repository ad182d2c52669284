"""Waiting for a condition with a deadline, for what happens in another process."""

import time
from collections.abc import Callable

_PAUSE_S = 0.01


def wait_until(condition: Callable[[], bool], *, deadline_s: float, what: str | Callable[[], str]) -> None:
    """Look until the condition holds. Fails with what was waited for."""
    end_s = time.monotonic() + deadline_s
    while not condition():
        if time.monotonic() > end_s:
            reason = what if isinstance(what, str) else what()
            raise AssertionError(f"not within {deadline_s} s: {reason}")
        time.sleep(_PAUSE_S)
