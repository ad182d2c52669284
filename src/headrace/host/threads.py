"""Where blocking calls go, so that the event loop never waits for a disk."""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Protocol, TypeVar

T = TypeVar("T")


class Threads(Protocol):
    def run(self, call: Callable[[], T]) -> "asyncio.Future[T]":
        """Start a blocking call; its result or exception arrives on the loop."""

    def close(self) -> None:
        """Wait for what is running."""


class PoolThreads:
    """A bounded pool. Two pools in a node keep a slow read from delaying a sync."""

    def __init__(self, *, name: str, count_max: int) -> None:
        self._pool = ThreadPoolExecutor(max_workers=count_max, thread_name_prefix=name)

    def run(self, call: Callable[[], T]) -> "asyncio.Future[T]":
        return asyncio.get_running_loop().run_in_executor(self._pool, call)

    def close(self) -> None:
        self._pool.shutdown(wait=True)
