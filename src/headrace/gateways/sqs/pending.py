"""What an operation may give back: an answer, a promise of one, or a coroutine where it takes several steps."""

from collections.abc import Callable, Coroutine
from typing import Any, Generic, TypeVar

import msgspec

from headrace.broker.promise import Promise
from headrace.wire.sqs.answer import Answer

T = TypeVar("T")


class Pending(msgspec.Struct, Generic[T], frozen=True, eq=False):
    """An answer that is made from a promise's result, in the turn in which that comes."""

    promise: Promise[T]
    answer: Callable[[T], Answer]
    cancel: Callable[[], None] | None = None


Outcome = Answer | Pending[Any] | Coroutine[Any, Any, Answer]
