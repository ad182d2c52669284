"""What a handler gives back.

An answer is the whole response frame as a list of buffers, or None where the protocol has no response (Produce with
acks=0). A handler that cannot answer at once returns a `Deferred`, which costs no task and no turn of the event loop,
or a coroutine, which becomes a task and goes on to its end though its peer be gone, or a `Wait`. One whose answer may
be large returns a `Sized`.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Coroutine
from typing import Any, NamedTuple

from headrace.gateways.answers import Share
from headrace.model.batch import Buffer

Answer = list[Buffer] | None


class CloseConnectionError(Exception):
    """The peer broke the protocol so that no answer can be built; its connection is closed and the reason logged.

    The reason is a constant text, so that lines can be counted and limited; what varies goes into fields.
    """

    def __init__(self, reason: str, **fields: object) -> None:
        super().__init__(reason)
        self.reason = reason
        self.fields = fields


Outcome = Answer | CloseConnectionError


class Deferred:
    """An answer that will come. Exactly one finish, at most one listener, in either order.

    It is also the request's place in its connection's order of answers: one thing for each request, not two.
    """

    __slots__ = ("_then", "done", "outcome", "share", "size")

    def __init__(self) -> None:
        self.done = False
        self.outcome: Outcome = None
        self.size = 0  # bytes of the frame, for the connection's account
        self.share: Share | None = None  # of the memory for answers, where the answer may be large
        self._then: Callable[[Deferred], None] | None = None

    def then(self, callback: Callable[["Deferred"], None]) -> None:
        if self.done:
            callback(self)
        else:
            self._then = callback

    def finish(self, outcome: Outcome) -> None:
        assert not self.done, "a request is answered once"
        self.outcome = outcome
        self.done = True
        if self._then is not None:
            then, self._then = self._then, None
            then(self)


class Wait(NamedTuple):
    """Work that only waits: all that it changes is changed at once. It ends with its connection."""

    work: Coroutine[Any, Any, Answer]


class Sized(ABC):
    """A request whose answer may be large: it begins once the node has memory for that."""

    __slots__ = ("bytes_max",)

    bytes_max: int  # it asks for no more

    @abstractmethod
    def expected(self) -> int:
        """About how many bytes there are for it now; asked where memory is short."""

    @abstractmethod
    def begin(self, size: int, share: Share) -> Answer | Wait:
        """Answer up to so many bytes. If it has to wait, it asks the share before it reads."""

    @abstractmethod
    def refuse(self) -> Answer:
        """What is said where there was no memory in time."""


Reply = Answer | Deferred | Coroutine[Any, Any, Answer] | Wait | Sized
