"""Threads without threads: a blocking call runs on the loop, at once or when the test says so."""

import asyncio
from collections import deque
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


class InlineThreads:
    """Runs every call before `run` returns; the future is done already."""

    def run(self, call: Callable[[], T]) -> "asyncio.Future[T]":
        future: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        _finish(future, call)
        return future

    def close(self) -> None:
        pass


class HeldThreads:
    """Keeps every call until the test lets it run, so that something can happen while a sync is on its way."""

    def __init__(self) -> None:
        self._held: deque[Callable[[], None]] = deque()

    def __len__(self) -> int:
        return len(self._held)

    def run(self, call: Callable[[], T]) -> "asyncio.Future[T]":
        future: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        self._held.append(lambda: _finish(future, call))
        return future

    def release(self, count: int | None = None) -> int:
        """Run the oldest calls, or all that are held now, and return how many ran."""
        count = len(self._held) if count is None else min(count, len(self._held))
        for _ in range(count):
            self._held.popleft()()
        return count

    def close(self) -> None:
        self.release()


def _finish(future: "asyncio.Future[T]", call: Callable[[], T]) -> None:
    try:
        result = call()
    except Exception as error:  # noqa: BLE001 -- it belongs to whoever awaits the future
        if not future.cancelled():
            future.set_exception(error)
    else:
        if not future.cancelled():
            future.set_result(result)
