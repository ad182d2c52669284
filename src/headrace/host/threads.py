"""Where blocking calls go, so that the event loop never waits for a disk."""

import asyncio
from collections.abc import Callable
from contextlib import suppress
from queue import SimpleQueue
from threading import Thread
from typing import Any, NamedTuple, Protocol, TypeVar

T = TypeVar("T")


class Threads(Protocol):
    def run(self, call: Callable[[], T]) -> "asyncio.Future[T]":
        """Start a blocking call; its result or exception arrives on the loop."""

    def close(self) -> None:
        """Wait for what is running."""


class _Work(NamedTuple):
    call: Callable[[], Any]
    loop: asyncio.AbstractEventLoop
    future: "asyncio.Future[Any]"


class PoolThreads:
    """A bounded pool. Two pools in a node keep a slow read from delaying a sync.

    Every group commit goes through here twice, to a thread and back, and that is a good part of what a small one costs:
    this is what `run_in_executor` does without its second future, its locks and its chain of callbacks.
    """

    def __init__(self, *, name: str, count_max: int) -> None:
        self._name = name
        self._count_max = count_max
        self._work: SimpleQueue[_Work | None] = SimpleQueue()
        self._threads: list[Thread] = []
        self._idle_count = 0  # threads that wait, less calls that were put and not taken; touched on the loop alone
        self._is_closed = False

    def run(self, call: Callable[[], T]) -> "asyncio.Future[T]":
        if self._is_closed:
            raise RuntimeError(f"the threads {self._name} are closed")
        loop = asyncio.get_running_loop()
        future: asyncio.Future[T] = loop.create_future()
        if self._idle_count <= 0 and len(self._threads) < self._count_max:
            self._begin_thread()
        self._idle_count -= 1
        self._work.put(_Work(call, loop, future))
        return future

    def close(self) -> None:
        self._is_closed = True
        for _ in self._threads:
            self._work.put(None)
        for thread in self._threads:
            thread.join()

    def _begin_thread(self) -> None:
        thread = Thread(target=self._serve, name=f"{self._name}_{len(self._threads)}", daemon=True)
        self._threads.append(thread)
        self._idle_count += 1
        thread.start()

    def _serve(self) -> None:
        while (work := self._work.get()) is not None:
            call, loop, future = work
            try:
                result, error = call(), None
            except BaseException as raised:  # noqa: BLE001 - it belongs to whoever awaits the future
                result, error = None, raised
            with suppress(RuntimeError):  # the loop is closed: nobody waits any longer
                loop.call_soon_threadsafe(self._finish, future, result, error)
            # A thread that waits for its next call must not keep the last one's memory.
            del work, call, loop, future, result, error

    def _finish(self, future: "asyncio.Future[Any]", result: Any, error: BaseException | None) -> None:
        self._idle_count += 1
        if future.done():
            return  # whoever waited was cancelled
        if error is None:
            future.set_result(result)
        else:
            future.set_exception(error)
