"""What an operation may give back: an answer, a promise of one, or a coroutine where it takes several steps."""

from collections.abc import Callable, Coroutine
from typing import Any, Generic, TypeVar

from headrace.broker.promise import Promise
from headrace.wire.sqs.answer import Answer

T = TypeVar("T")


class Pending(Generic[T]):
    """An answer that is made from a promise's result, in the turn in which that comes."""

    __slots__ = ("answer", "cancel", "promise")

    def __init__(
        self, promise: Promise[T], answer: Callable[[T], Answer], cancel: Callable[[], None] | None = None
    ) -> None:
        self.promise = promise
        self.answer = answer
        self.cancel = cancel


Outcome = Answer | Pending[Any] | Coroutine[Any, Any, Answer]
