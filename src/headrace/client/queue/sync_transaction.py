"""Transactions for programs without an event loop; see `headrace.client.queue.transaction`.

with client.transaction() as tx:
    tx.queue("invoices").send(invoice)
    tx.ack(message)
"""

from collections.abc import Iterable
from types import TracebackType
from typing import TYPE_CHECKING, Self

from headrace.client.errors import ClosedError
from headrace.client.portal import Portal
from headrace.client.queue.outgoing import HeaderValues, Key, Span, several
from headrace.client.queue.transaction import AsyncTransaction, AsyncTransactionQueue
from headrace.model.message import Sent
from headrace.model.queue import PRIORITY_DEFAULT

if TYPE_CHECKING:
    from headrace.client.queue.sync import Message


class Transaction:
    """Made by `Client.transaction`. Use it as a context manager: it commits at the end, and aborts on an error."""

    def __init__(self, inner: AsyncTransaction, portal: Portal) -> None:
        self.inner = inner
        self._portal = portal

    @property
    def is_committed(self) -> bool:
        return self.inner.is_committed

    def begin(self) -> Self:
        """Begin. The context manager does this."""
        self._portal.run(self.inner.begin())
        return self

    def commit(self) -> None:
        """Let everything count. The context manager does this; after UnknownOutcomeError it may be called again."""
        self._portal.run(self.inner.commit())

    def abort(self) -> None:
        """Let nothing count: what was acknowledged is visible again. The context manager does this on an error."""
        self._portal.run(self.inner.abort())

    def __enter__(self) -> Self:
        return self.begin()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        try:
            self._portal.run(self.inner.__aexit__(kind, error, traceback))
        except ClosedError:
            # The node aborts it in time; the block's own error is the one to be seen.
            if error is None:
                raise

    def queue(self, name: str) -> "TransactionQueue":
        """A queue, or a topic that is no queue, to send to."""
        return TransactionQueue(self.inner.queue(name), self._portal)

    def ack(self, message: "Message") -> None:
        """Acknowledge a message with the transaction: it is done if this commits, and visible again if it aborts."""
        message.ack(self)

    def ack_all(self, messages: "Iterable[Message]") -> None:
        """Acknowledge many together. The first error is raised when all of them have been tried."""
        self._portal.run(self.inner.ack_all([message._message for message in messages]))


class TransactionQueue:
    """A queue inside a transaction. What is sent is there for others once the transaction commits."""

    def __init__(self, queue: AsyncTransactionQueue, portal: Portal) -> None:
        self._queue = queue
        self._portal = portal

    @property
    def name(self) -> str:
        return self._queue.name

    def send(
        self,
        body: object,
        *,
        key: Key | None = None,
        priority: int = PRIORITY_DEFAULT,
        delay: Span | None = None,
        ttl: Span | None = None,
        headers: HeaderValues | None = None,
        deduplication_id: str | None = None,
    ) -> Sent:
        """Send one message; the place that it has if the transaction commits. The options are those of a queue."""
        return self._portal.run(
            self._queue.send(
                body,
                key=key,
                priority=priority,
                delay=delay,
                ttl=ttl,
                headers=headers,
                deduplication_id=deduplication_id,
            )
        )

    def send_many(self, messages: Iterable[object]) -> list[Sent]:
        """Send many in their order: bodies, or `OutgoingMessage`s. PartlySentError has every outcome if some failed."""
        return self._portal.run(self._queue.send_many(several(messages)))
