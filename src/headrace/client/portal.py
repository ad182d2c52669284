"""From a thread into an event loop of another one: how the synchronous client waits."""

import asyncio
import threading
from collections.abc import Coroutine
from concurrent.futures import Future
from typing import Any, TypeVar

import uvloop

from headrace.client.errors import ClosedError
from headrace.model.errors import InvalidRequestError

T = TypeVar("T")


class Portal:
    """A way into a loop that runs in some other thread."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop

    def start(self, work: Coroutine[Any, Any, T]) -> Future[T]:
        """Have the loop do it, and go on."""
        if self._loop.is_closed():
            work.close()
            raise ClosedError("the client is closed; make another one")
        return asyncio.run_coroutine_threadsafe(work, self._loop)

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Have the loop do it, and wait. A caller that is interrupted takes its work along."""
        if _running_loop() is self._loop:
            work.close()
            raise InvalidRequestError("this would wait for itself; in asynchronous code, use AsyncClient")
        future = self.start(work)
        try:
            return future.result()
        except BaseException:
            future.cancel()
            raise


def _running_loop() -> asyncio.AbstractEventLoop | None:
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None


class BackgroundLoop(Portal):
    """A loop with a thread of its own, which does not keep the program from ending."""

    def __init__(self, *, name: str) -> None:
        super().__init__(uvloop.new_event_loop())
        self._thread = threading.Thread(target=self._loop.run_forever, name=name, daemon=True)
        self._thread.start()

    @property
    def is_open(self) -> bool:
        return not self._loop.is_closed()

    def close(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()
