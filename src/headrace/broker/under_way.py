"""Work that goes on to its end, also when whoever asked for it has gone.

A change of several steps that is cut between two of them leaves what only a crash should: metadata without files, a
setting that is stored and not obeyed. A client that hangs up is no crash, so it cuts nothing.
"""

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


class UnderWay:
    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[Any]] = set()

    @property
    def count(self) -> int:
        return len(self._tasks)

    def begin(self, work: Coroutine[Any, Any, T]) -> "asyncio.Task[T]":
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._done)
        return task

    async def carry_out(self, work: Coroutine[Any, Any, T]) -> T:
        """Wait for it. Who waits may be cancelled, the work is not."""
        return await asyncio.shield(self.begin(work))

    async def finished(self) -> None:
        """Wait until nothing is under way."""
        while self._tasks:
            await asyncio.wait(self._tasks)

    def cancel(self) -> None:
        """Cut what is under way: the node's time to stop is over."""
        for task in list(self._tasks):
            task.cancel()

    def _done(self, task: "asyncio.Task[Any]") -> None:
        self._tasks.discard(task)
        if not task.cancelled():
            task.exception()  # heard also where nobody waits any longer, or asyncio reports it as forgotten
