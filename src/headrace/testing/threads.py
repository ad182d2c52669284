"""Threads without threads: a blocking call runs on the loop, at once or when the test says so."""

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Any, TypeVar

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


class DelayedThreads:
    """A bounded pool on a virtual loop: a call happens at one moment, and its answer arrives at a later one."""

    def __init__(self, *, count_max: int, delay_s: Callable[[], float]) -> None:
        self._count_max = count_max
        self._delay_s = delay_s
        self._busy_count = 0
        self._waiting: deque[DelayedCall] = deque()
        self._begun: dict[DelayedCall, None] = {}  # not carried out yet, oldest first
        self._is_closed = False

    def run(self, call: Callable[[], T]) -> "asyncio.Future[T]":
        if self._is_closed:
            raise RuntimeError("the threads are closed")
        future: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        self._waiting.append(DelayedCall(call, future))
        self._begin_next()
        return future

    def close(self) -> None:
        """Carry out what was asked for. The answers are on their way, as those of joined threads are."""
        self._is_closed = True
        for work in (*self._begun, *self._waiting):
            work.carry_out()
        self._begun.clear()

    def _begin_next(self) -> None:
        loop = asyncio.get_running_loop()
        while self._waiting and self._busy_count < self._count_max:
            self._busy_count += 1
            work = self._waiting.popleft()
            self._begun[work] = None
            loop.call_later(self._delay_s(), self._carry_out, work)

    def _carry_out(self, work: "DelayedCall") -> None:
        self._begun.pop(work, None)
        work.carry_out()
        asyncio.get_running_loop().call_later(self._delay_s(), self._finish, work)

    def _finish(self, work: "DelayedCall") -> None:
        self._busy_count -= 1
        self._begin_next()
        work.answer()


class DelayedCall:
    """A blocking call, its outcome, and the future that will have it."""

    __slots__ = ("_call", "_error", "_future", "_is_done", "_result")

    def __init__(self, call: Callable[[], Any], future: "asyncio.Future[Any]") -> None:
        self._call = call
        self._future = future
        self._is_done = False
        self._result: Any = None
        self._error: BaseException | None = None

    def carry_out(self) -> None:
        if self._is_done:
            return
        self._is_done = True
        try:
            self._result = self._call()
        except Exception as error:  # noqa: BLE001 -- it belongs to the caller that awaits the future
            self._error = error

    def answer(self) -> None:
        if self._future.done():
            return
        if self._error is None:
            self._future.set_result(self._result)
        else:
            self._future.set_exception(self._error)
