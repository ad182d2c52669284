"""From a thread into an event loop of another one: how the synchronous client waits."""

import asyncio
import threading
from collections.abc import Coroutine
from concurrent.futures import CancelledError, Future
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
        except CancelledError:
            # Nobody but the loop's end cancels what somebody waits for.
            raise ClosedError("the client was closed before this was done; make another one") from None
        except BaseException:
            future.cancel()
            raise


def _running_loop() -> asyncio.AbstractEventLoop | None:
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None


class BackgroundLoop(Portal):
    """A loop with a thread of its own, which does not keep the program from ending.

    Work that is still under way at its close is cancelled and waited for, and none is taken any more: whoever waits
    for a loop that has stopped would wait for ever.
    """

    def __init__(self, *, name: str) -> None:
        super().__init__(uvloop.new_event_loop())
        self._gate = threading.Lock()  # between those who bring work and the one who closes
        self._is_open = True
        self._thread = threading.Thread(target=self._loop.run_forever, name=name, daemon=True)
        self._thread.start()

    @property
    def is_open(self) -> bool:
        """Whether it can be used, which it cannot in a process that was forked from its own."""
        return self._is_open and self._thread.is_alive()

    def start(self, work: Coroutine[Any, Any, T]) -> Future[T]:
        # A fork copies the loop and not the thread that runs it. Asked before the gate, which may be copied shut.
        if self._is_open and not self._thread.is_alive():
            work.close()
            raise InvalidRequestError("the client was made in another process; make one in each, after the fork")
        with self._gate:
            if self._is_open:
                return super().start(work)
        work.close()
        raise ClosedError("the client is closed; make another one")

    def close(self) -> None:
        if not self._thread.is_alive():
            # Closed already, or in a forked process: the loop's files are its parent's too, and stay as they are.
            return
        with self._gate:
            if not self._is_open:
                return
            self._is_open = False
        asyncio.run_coroutine_threadsafe(_cancel_the_others(), self._loop).result()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()


async def _cancel_the_others() -> None:
    others = asyncio.all_tasks() - {asyncio.current_task()}
    for task in others:
        task.cancel()
    await asyncio.gather(*others, return_exceptions=True)
