"""The tasks of a node's queues and who owns them: none outlives a stop, and one that dies is heard of (row 41)."""

import asyncio
import logging
from collections.abc import Coroutine
from typing import Any, TypeVar

from headrace.model.errors import HeadraceError

_logger = logging.getLogger(__name__)

T = TypeVar("T")


class Tasks:
    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[Any]] = set()
        self._failure: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def spawn(self, work: Coroutine[Any, Any, T]) -> "asyncio.Task[T]":
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._done)
        return task

    async def wait_failed(self) -> None:
        """Wait for ever, or until a task dies of something that no rule expects."""
        await asyncio.shield(self._failure)

    def cancel(self) -> None:
        for task in list(self._tasks):
            task.cancel()

    async def stop(self) -> None:
        self.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)

    def _done(self, task: "asyncio.Task[Any]") -> None:
        self._tasks.discard(task)
        if task.cancelled() or (error := task.exception()) is None or isinstance(error, HeadraceError):
            return
        _logger.critical("a task of the queues died", exc_info=error)
        if not self._failure.done():
            self._failure.set_exception(error)
