"""Threads for handlers that block. They do not keep a program from ending: a handler that hangs is left behind."""

import asyncio
import queue
import threading
from collections.abc import Callable
from contextlib import suppress

from headrace.client.worker.failure import failure_of

Job = tuple[Callable[[], object], "asyncio.Future[None]", asyncio.AbstractEventLoop]


class HandlerThreads:
    def __init__(self, *, name: str, count_max: int) -> None:
        self._name = name
        self._count_max = count_max
        self._count = 0
        self._jobs: queue.SimpleQueue[Job | None] = queue.SimpleQueue()

    def run(self, call: Callable[[], object]) -> "asyncio.Future[None]":
        """Start a call; the caller sees to it that there are never more than there are threads."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[None] = loop.create_future()
        if self._count < self._count_max:
            self._count += 1
            threading.Thread(target=self._work, name=f"{self._name}-{self._count}", daemon=True).start()
        self._jobs.put((call, future, loop))
        return future

    def close(self) -> None:
        """Have the threads end when they are done. Nobody waits for them here."""
        for _ in range(self._count):
            self._jobs.put(None)

    def _work(self) -> None:
        while (job := self._jobs.get()) is not None:
            call, future, loop = job
            error: BaseException | None = None
            try:
                call()
            except BaseException as raised:  # noqa: BLE001 - handed to whoever waits
                error = raised
            # A loop that is closed has nobody left who waits.
            with suppress(RuntimeError):
                loop.call_soon_threadsafe(_finish, future, error)


def _finish(future: "asyncio.Future[None]", error: BaseException | None) -> None:
    if future.done():
        return
    if error is None:
        future.set_result(None)
    else:
        future.set_exception(failure_of(error))
