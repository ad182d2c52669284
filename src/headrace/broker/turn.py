"""When a partition's turn is written: what arrived is gathered first, as long as that costs nobody anything.

A sync takes as long for one message as for a hundred, and whoever sends one after the other sends the next when the
last is answered. So what is sent to a queue is not written at the end of the loop's turn but after a look at the
sockets, and after another for as long as each brings more. With nobody else there this is one turn of the loop that
finds nothing, some microseconds beside a sync; with many, it is the difference between two syncs for all and one.
"""

import asyncio
from collections.abc import Callable

# Whoever sends without waiting for answers could go on for ever.
_LOOKS_MAX = 8


class Turn:
    """The next turn of one partition."""

    def __init__(self, *, write: Callable[[], None], count: Callable[[], int]) -> None:
        self._loop = asyncio.get_running_loop()
        self._write = write  # ends with `begin_next`, or asks again
        self._count = count  # what waits to be written
        self._looks_left = 0
        self.is_due = False

    def write_soon(self) -> None:
        """Have it written at the end of this turn of the loop, or of the look that is being taken."""
        self._looks_left = 0
        if not self.is_due:
            self.is_due = True
            self._loop.call_soon(self._write)

    def write_after_reading(self) -> None:
        """Have it written once the loop has looked at its sockets and nothing more came."""
        if not self.is_due:
            self.is_due = True
            self._looks_left = _LOOKS_MAX
            self._look()

    def begin_next(self) -> None:
        """It is being written: what comes from now on is of the next."""
        self.is_due = False

    def _look(self) -> None:
        # Twice: what is called soon is called before the loop looks at its sockets again.
        self._loop.call_soon(self._loop.call_soon, self._looked, self._count())

    def _looked(self, count_before: int) -> None:
        if not self.is_due:
            return  # somebody could not wait
        if self._looks_left and self._count() > count_before:
            self._looks_left -= 1
            self._look()
        else:
            self._write()
