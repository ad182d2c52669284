"""A result that will come, for the road of every message.

It does what the sender's side needs of an asyncio future and costs a fifth: whoever listens is called in the turn in
which the result comes, not a turn later, because nothing between a partition and its gateway waits for anything. Code
off that road awaits it like any other awaitable.
"""

import asyncio
from collections.abc import Callable, Generator
from typing import Any, Generic, TypeVar

import msgspec

T = TypeVar("T")


# A struct, because one is made for every request and a constructor in Python takes three times as long. What a kind of
# promise adds comes first in its constructor; nobody gives the fields here.
class Promise(msgspec.Struct, Generic[T], eq=False, kw_only=True):
    """Kept or broken once, with at most one listener."""

    _is_done: bool = False
    _result: T | None = None
    _error: Exception | None = None
    _listener: "Callable[[Promise[T]], None] | None" = None
    _foreseer: Callable[[T], None] | None = None

    def done(self) -> bool:
        return self._is_done

    def keep(self, result: T) -> None:
        assert not self._is_done, "a promise is kept once"
        self._result = result
        self._is_done = True
        self._foreseer = None
        listener = self._listener
        if listener is not None:
            self._listener = None
            listener(self)

    def fail(self, error: Exception) -> None:
        """Break it, unless it is done: the first word counts."""
        if self._is_done:
            return
        self._error = error
        self._is_done = True
        self._foreseer = None
        listener = self._listener
        if listener is not None:
            self._listener = None
            listener(self)

    def exception(self) -> Exception | None:
        assert self._is_done
        return self._error

    def result(self) -> T:
        assert self._is_done
        if self._error is not None:
            raise self._error
        return self._result  # type: ignore[return-value]  # kept with a T

    def foresee(self, result: T) -> None:
        """Say with what it will be kept if it is, which is not certain yet: who wants to be ready then can be."""
        foreseer = self._foreseer
        if foreseer is not None:
            self._foreseer = None
            self._result = result
            foreseer(result)

    @property
    def foreseen(self) -> T | None:
        """What was said with `foresee`, if somebody was told."""
        return self._result

    def then(self, listener: Callable[["Promise[T]"], None], foreseer: Callable[[T], None] | None = None) -> None:
        """Call once it is done; at once if it is. The second is told before, perhaps, with what it will be kept."""
        assert self._listener is None, "one listener"
        if self._is_done:
            listener(self)
        else:
            self._listener = listener
            self._foreseer = foreseer

    def __await__(self) -> Generator[Any, None, T]:
        if not self._is_done:
            woken: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self.then(lambda _: None if woken.done() else woken.set_result(None))
            yield from woken.__await__()
        return self.result()
