"""A message that was received, and what its receiver says about it.

It is held under a lease until it is acknowledged, released or rejected, or the lease ends. As a context manager it is
acknowledged when the block ends well, and released when it ends in an exception, which goes on; `Retry` and `Reject`
are the two exceptions that say what is to be done, and end there.
"""

import asyncio
import logging
from collections.abc import Sequence
from types import TracebackType
from typing import Any, Protocol, Self, TypeVar, overload

import msgspec

from headrace.client.process_bound import ProcessBound
from headrace.client.queue.leases import Leases
from headrace.client.queue.outgoing import Span, checked_text, needed_seconds, seconds
from headrace.client.queue.wire import Delivery
from headrace.model.errors import HeadraceError, InvalidReceiptError, InvalidRequestError, StaleReceiptError
from headrace.model.message import Headers

_LOGGER = logging.getLogger(__name__)
T = TypeVar("T")
# What a node keeps of a reason. Many a reason is another error's text, and no reason to keep trying.
_REASON_LENGTH_MAX = 1_024


class Retry(Exception):  # noqa: N818 - an instruction to headrace, not an error of its own
    """Raised by a handler: give the message back, to be tried again after a delay."""

    def __init__(self, delay: Span | None = None) -> None:
        super().__init__("to be tried again" if delay is None else f"to be tried again in {seconds(delay)} s")
        self.delay = delay  # None: the queue's back-off

    def __reduce__(self) -> tuple[type[Self], tuple[Span | None]]:
        # An exception is made again from its text by default, and comes from pools of processes in no other way.
        return type(self), (self.delay,)


class Reject(Exception):  # noqa: N818 - an instruction to headrace, not an error of its own
    """Raised by a handler: no further attempt can help; the message goes to the dead-letter queue with this reason.

    The reason is a text, or the exception that says why.
    """

    def __init__(self, reason: str | BaseException) -> None:
        self.reason = _reason_of(reason)
        super().__init__(self.reason)


class Acknowledger(Protocol):
    """A transaction, as a message sees it."""

    async def acknowledge(self, path: str, receipts: Sequence[str]) -> None: ...


class MessageData(ProcessBound):
    """What a message holds, whoever waits for its calls."""

    __slots__ = ("_delivery",)

    def __init__(self, delivery: Delivery) -> None:
        self._delivery = delivery

    @property
    def id(self) -> str:
        """Its place in the queue that it was received from, such as 0-1234."""
        return self._delivery.id

    @property
    def first_id(self) -> str:
        """The id that it had in the queue to which it was sent first, which a dead letter and its redrive keep."""
        return self._delivery.first_id or self._delivery.id

    @property
    def body(self) -> bytes:
        return self._delivery.body

    @property
    def text(self) -> str:
        """The body as UTF-8 text."""
        return self._delivery.body.decode()

    @overload
    def json(self) -> Any: ...
    @overload
    def json(self, type: type[T]) -> T: ...
    def json(self, type: Any = Any) -> Any:
        """The body read as JSON: any value, or checked and made one of a type (a dataclass, a msgspec Struct)."""
        return msgspec.json.decode(self._delivery.body, type=type)

    @property
    def key(self) -> bytes | None:
        return self._delivery.key

    @property
    def headers(self) -> Headers:
        """Pairs of name and value; a name may be there several times."""
        return self._delivery.headers

    def header(self, name: str) -> bytes | None:
        """The first header of a name."""
        return next((value for known, value in self._delivery.headers if known == name), None)

    @property
    def priority(self) -> int:
        return self._delivery.priority

    @property
    def deduplication_id(self) -> str | None:
        return self._delivery.deduplication_id

    @property
    def attempt(self) -> int:
        """How often it was handed out, this time included."""
        return self._delivery.attempt

    @property
    def sent_ms(self) -> int:
        """When it was sent, in milliseconds since 1970."""
        return self._delivery.sent_ms

    @property
    def first_received_ms(self) -> int:
        return self._delivery.first_received_ms

    @property
    def lease(self) -> float:
        """For how many seconds it was leased."""
        return self._delivery.lease

    @property
    def receipt(self) -> str:
        """What other clients need to acknowledge it; empty where the queue's guarantee is at most once."""
        return self._delivery.receipt_handle

    @property
    def partition(self) -> int:
        return self._delivery.partition

    @property
    def offset(self) -> int:
        return self._delivery.offset

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.id} attempt {self.attempt}, {len(self.body)} bytes>"


class AsyncMessage(MessageData):
    """A received message, for asynchronous programs."""

    __slots__ = ("_is_acknowledged", "_is_lost", "_is_settled", "_leases")

    def __init__(self, delivery: Delivery, leases: Leases) -> None:
        super().__init__(delivery)
        self._leases = leases
        self._is_settled = False
        self._is_acknowledged = False
        self._is_lost = False

    @property
    def is_settled(self) -> bool:
        """Whether it was acknowledged, released or rejected here, with whatever outcome."""
        return self._is_settled

    @property
    def is_lost(self) -> bool:
        """Whether an extension was refused because the lease is over: somebody else may have the message by now.

        A worker extends while a handler runs, which can so learn that its acknowledgement will be refused.
        """
        return self._is_lost

    @property
    def is_acknowledged(self) -> bool:
        """Whether it was acknowledged here, and nothing was said against that."""
        return self._is_acknowledged

    @property
    def queue_path(self) -> str:
        """Where its queue is on the node."""
        return self._leases.path

    async def ack(self, transaction: Acknowledger | None = None) -> None:
        """It is done and will not come again. Where the guarantee is at most once, that is so already.

        In a transaction it is done once that commits; if it aborts, somebody gets the message again.
        """
        self._is_settled = True
        if self.receipt:
            if transaction is None:
                await self._leases.acknowledge(self.receipt)
            else:
                await transaction.acknowledge(self.queue_path, [self.receipt])
        self._is_acknowledged = True

    def settled_by_others(self, *, acknowledged: bool = True) -> str:
        """The queue settles this one together with others: its receipt, for that."""
        self._is_settled = True
        self._is_acknowledged = acknowledged
        return self.receipt

    async def release(self, delay: Span | None = None, *, error: BaseException | None = None) -> None:
        """Give it back; it is delivered again after a delay, by default the queue's back-off.

        `error` is why. If this was the last attempt, its type and text go with the message to the dead-letter queue.
        """
        self._check_lease()
        delay_s = seconds(delay)
        self._is_settled = True
        await self._leases.release(self.receipt, delay_s, "" if error is None else _described(error))

    async def reject(self, reason: str) -> None:
        """No attempt can help: to the dead-letter queue with it. A long reason is cut."""
        self._check_lease()
        said = checked_text("the reason", reason)[:_REASON_LENGTH_MAX]
        self._is_settled = True
        await self._leases.reject(self.receipt, said)

    async def extend(self, lease: Span) -> None:
        """Hold it for so long from now on."""
        if self.receipt:
            try:
                await self._leases.extend(self.receipt, needed_seconds(lease))
            except (StaleReceiptError, InvalidReceiptError):
                self._is_lost = not self._is_settled
                raise

    def _check_lease(self) -> None:
        if not self.receipt:
            raise InvalidRequestError(
                f"message {self.id} was handed out at most once and cannot be given back; "
                "use a queue whose guarantee is at_least_once or exactly_once"
            )

    async def settle(self, error: BaseException | None, *, back_off: Span | None = None) -> None:
        """Do what a handler's outcome asks for: nothing where it did so itself.

        A handler that was interrupted (cancelled, Ctrl-C) has not failed: its message is released at once. The
        back-off is for failures; None is the queue's.
        """
        if self._is_settled:
            return
        if error is None:
            await self.ack()
        elif self.receipt:
            match error:
                case Retry():
                    await self.release(error.delay if error.delay is not None else back_off, error=error.__cause__)
                case Reject():
                    await self.reject(error.reason)
                case Exception():
                    await self.release(back_off, error=error)
                case _:
                    await asyncio.shield(self.release(0))

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> bool:
        if error is None:
            await self.settle(None)
            return False
        try:
            await self.settle(error)
        except HeadraceError as failed:
            return self.not_told(error, failed)
        return _ends_here(error)

    def not_told(self, error: BaseException, failed: HeadraceError) -> bool:
        """A block has failed, and the node could not be told. Without a release the lease ends by itself."""
        # The block's own error is the one to be seen.
        _LOGGER.warning("message not released", extra={"message_id": self.id, "reason": str(failed)})
        return _ends_here(error)


def _reason_of(reason: object) -> str:
    """The reason as a text. Characters that UTF-8 cannot encode are replaced: they are no reason to keep trying."""
    if isinstance(reason, BaseException):
        return _described(reason)
    if not isinstance(reason, str):
        raise InvalidRequestError(f"the reason is {reason!r}; give a text or an exception")
    return reason[:_REASON_LENGTH_MAX].encode("utf-8", "replace").decode()


def _described(error: BaseException) -> str:
    """The type of an error and its text, of which the node keeps so much."""
    try:
        text = str(error)
    except Exception:  # noqa: BLE001 - an error whose text fails has none
        text = ""
    name = type(error).__qualname__
    said = f"{name}: {text}" if text else name
    return said[:_REASON_LENGTH_MAX].encode("utf-8", "replace").decode()


def _ends_here(error: BaseException) -> bool:
    return isinstance(error, Retry | Reject)
