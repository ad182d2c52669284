"""What queues that stand in for a node's have in common."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import TypeVar

from headrace.broker.promise import Promise
from headrace.model.errors import HeadraceError
from headrace.model.message import Message, Sent

T = TypeVar("T")


def kept(value: T) -> Promise[T]:
    promise: Promise[T] = Promise()
    promise.keep(value)
    return promise


class SendsOne(ABC):
    """`send_one` of a `Queues`, by its `send`, whose promise has to be kept at once."""

    @abstractmethod
    def send(
        self, queue: str, messages: Sequence[Message], *, request_id: str | None = None
    ) -> Promise[list[Sent | HeadraceError]]: ...

    def answer_bytes(self, queue: str, count: int) -> int:
        return 0

    def send_one(self, queue: str, message: Message) -> Promise[Sent]:
        promise: Promise[Sent] = Promise()
        (outcome,) = self.send(queue, (message,)).result()
        if isinstance(outcome, Sent):
            promise.keep(outcome)
        else:
            promise.fail(outcome)
        return promise

    def after_moves(self, queue: str, promise: Promise[T]) -> Promise[T]:
        """Nothing is moved here."""
        return promise
