"""What an operation is told of its caller, and what it may give back.

That is an answer, a promise of one, or a coroutine where the operation takes several steps.
"""

from collections.abc import Callable, Coroutine
from typing import Any, Generic, NamedTuple, TypeVar

import msgspec

from headrace.broker.promise import Promise
from headrace.wire.sqs.answer import Answer

T = TypeVar("T")


class Caller(NamedTuple):
    """What a request's HTTP headers say that concerns operations."""

    host: str  # by which the client reached this node, for the addresses of queues
    trace: str | None = None  # X-Amzn-Trace-Id, which a message carries on


class Pending(msgspec.Struct, Generic[T], frozen=True, eq=False):
    """An answer that is made from a promise's result, in the turn in which that comes."""

    promise: Promise[T]
    answer: Callable[[T], Answer]
    cancel: Callable[[], None] | None = None
    is_idle: Callable[[], bool] | None = None


class Sized(NamedTuple):
    """An operation that begins once the node has memory for so large an answer."""

    size: int
    begin: Callable[[], Pending[Any]]


Outcome = Answer | Pending[Any] | Sized | Coroutine[Any, Any, Answer]
