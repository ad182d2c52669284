"""The one way in which the event loop, a timer or the log calls a partition's code.

An exception that reaches the guard is one that no rule expects. What the code had changed by then is not known, so the
partition's term ends: it is offline with the reason, everyone who waits for it is answered, and the node and its other
partitions go on (failure row 41). Nothing of a partition is scheduled in any other way; a test says so.
"""

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeVarTuple

from headrace.broker.promise import raised_on
from headrace.host.clock import Clock, Timer
from headrace.model.errors import HeadraceError, PartitionOfflineError

Args = TypeVarTuple("Args")


class Guard:
    """The guard of one partition."""

    def __init__(self, *, clock: Clock, stop: Callable[[Exception], None]) -> None:
        self.stop = stop  # ends the term
        self._clock = clock
        self._loop = asyncio.get_running_loop()
        self._raised = raised_on(self._loop)

    def run(self, call: Callable[[*Args], object], *args: *Args) -> None:
        """Call now. An exception, also of a listener of a promise that was kept, ends the term and goes no further."""
        raised = self._raised
        count = len(raised)
        try:
            call(*args)
        except Exception as error:  # noqa: BLE001 - whatever it is
            self.stop(error)
        if len(raised) > count:
            failures = raised[count:]
            del raised[count:]
            for failure in failures:
                self.stop(failure)

    def call_soon(self, call: Callable[[*Args], object], *args: *Args) -> None:
        self._loop.call_soon(self.run, call, *args)

    def call_after_reading(self, call: Callable[[*Args], object], *args: *Args) -> None:
        """Call once the loop has looked at its sockets: what is called soon is called before it does so again."""
        self._loop.call_soon(self._loop.call_soon, self.run, call, *args)

    def call_later(self, delay_ms: float, call: Callable[[], object]) -> Timer:
        return self._clock.call_later(delay_ms, lambda: self.run(call))

    @contextmanager
    def watching(self) -> Iterator[None]:
        """The same for a piece of a task: refusals go on to the task, anything else ends the term."""
        try:
            yield
        except HeadraceError:
            raise
        except Exception as error:  # noqa: BLE001 - whatever it is
            self.stop(error)


def in_doubt(error: HeadraceError) -> HeadraceError:
    """The same error, for a caller whose message or decision was written and not yet committed."""
    if isinstance(error, PartitionOfflineError):
        return PartitionOfflineError(f"{error}; what was sent or asked for last may have been stored")
    return error
