"""Trying again what the metadata store refused or did not answer, a bounded number of times."""

from collections.abc import Awaitable, Callable
from typing import TypeVar

from headrace.host.clock import Clock
from headrace.host.rand import Rand
from headrace.model.errors import StoreConflictError, StoreUnavailableError

ATTEMPTS_MAX = 10

_RETRY_MS_MAX = 1000

T = TypeVar("T")


async def retried(attempt: Callable[[], Awaitable[T]], *, clock: Clock, rand: Rand) -> T:
    """Read, decide and write until a write is carried out. The attempt looks for its own earlier write first."""
    for number in range(1, ATTEMPTS_MAX + 1):
        try:
            return await attempt()
        except (StoreConflictError, StoreUnavailableError) as error:
            if number == ATTEMPTS_MAX:
                raise
            # A conflict is over at once; a store that is away takes a while.
            ceiling_ms = 5 if isinstance(error, StoreConflictError) else min(20 * 2**number, _RETRY_MS_MAX)
            await clock.sleep(rand.uniform(0, ceiling_ms))
    raise AssertionError("the last attempt returned or raised")
