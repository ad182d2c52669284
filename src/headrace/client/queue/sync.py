"""The queue client for programs without an event loop.

    with Client("127.0.0.1:8080") as client:
        tasks = client.queue("tasks")
        tasks.send({"tea": 1}, key="alice")
        for message in tasks.receive(max=10):
            with message:
                brew(message.json())

What is done is the asynchronous client's affair, on a loop in a thread of its own; here is only the waiting for it. A
client may be shared by threads, whose single sends then leave in batches.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from types import TracebackType
from typing import Self, Unpack

from headrace.client.errors import ClosedError
from headrace.client.portal import BackgroundLoop, Portal
from headrace.client.process_bound import ProcessBound
from headrace.client.queue.client import AsyncClient
from headrace.client.queue.description import (
    BrowsePage,
    ClockReport,
    Description,
    Explanation,
    Reader,
    Redrive,
    RedriveFilter,
    Settings,
    State,
)
from headrace.client.queue.message import AsyncMessage, MessageData
from headrace.client.queue.outgoing import HeaderValues, Key, Span, several
from headrace.client.queue.queue import AsyncQueue
from headrace.client.queue.sync_transaction import Transaction
from headrace.client.settings import QueueClientConfig
from headrace.host.clock import Clock
from headrace.host.rand import Rand
from headrace.host.transport import Transport
from headrace.model.address import Address
from headrace.model.message import Sent
from headrace.model.queue import PRIORITY_DEFAULT


class Message(MessageData):
    """A received message; see `headrace.client.queue.message`."""

    __slots__ = ("_message", "_portal")

    def __init__(self, message: AsyncMessage, portal: Portal) -> None:
        super().__init__(message._delivery)
        self._message = message
        self._portal = portal

    @property
    def is_settled(self) -> bool:
        """Whether it was acknowledged, released or rejected here, with whatever outcome."""
        return self._message.is_settled

    @property
    def is_lost(self) -> bool:
        """Whether an extension was refused because the lease is over: somebody else may have the message by now.

        A worker extends while a handler runs, which can so learn that its acknowledgement will be refused.
        """
        return self._message.is_lost

    def ack(self, transaction: Transaction | None = None) -> None:
        """It is done and will not come again. Where the guarantee is at most once, that is so already.

        In a transaction it is done once that commits; if it aborts, somebody gets the message again.
        """
        self._portal.run(self._message.ack(None if transaction is None else transaction.inner))

    def release(self, delay: Span | None = None, *, error: BaseException | None = None) -> None:
        """Give it back; it is delivered again after a delay, by default the queue's back-off. `error` is why."""
        self._portal.run(self._message.release(delay, error=error))

    def reject(self, reason: str) -> None:
        """No attempt can help: to the dead-letter queue with it."""
        self._portal.run(self._message.reject(reason))

    def extend(self, lease: Span) -> None:
        """Hold it for so long from now on."""
        self._portal.run(self._message.extend(lease))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> bool:
        try:
            return self._portal.run(self._message.__aexit__(kind, error, traceback))
        except ClosedError as closed:
            if error is None:
                raise
            # The block's own error is the one to be seen.
            return self._message.not_told(error, closed)


class Queue(ProcessBound):
    """Made by `Client.queue`. Its methods are those of `AsyncQueue`, which wait."""

    def __init__(self, queue: AsyncQueue, portal: Portal) -> None:
        self._queue = queue
        self._run = portal.run
        self._portal = portal

    @property
    def name(self) -> str:
        return self._queue.name

    # Messages.

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
        """Store one message and say where. Bytes and text are sent as they are, anything else as JSON."""
        return self._run(
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
        """Store many: bodies, or `OutgoingMessage`s. PartlySentError has every outcome where some failed."""
        return self._run(self._queue.send_many(several(messages)))

    def receive(self, max: int = 10, wait: Span = 20, lease: Span | None = None) -> list[Message]:
        """Lease up to so many messages, waiting up to so long for the first; an empty list when the time is over."""
        portal = self._portal
        return [Message(message, portal) for message in self._run(self._queue.receive(max, wait, lease))]

    def messages(
        self, *, batch: int = 10, wait: Span = 20, lease: Span | None = None, until_empty: bool = False
    ) -> Iterator[Message]:
        """Messages as they come, without end; or until none came for the length of a wait.

        They are leased in batches, and the lease of one runs while those before it are handled. What was leased and
        not yet given out when the loop is left is released.
        """
        left: list[Message] = []
        try:
            while True:
                left = self.receive(batch, wait, lease)[::-1]
                if not left and until_empty:
                    return
                while left:
                    yield left.pop()
        finally:
            # A loop that outlives its client has nobody to give them back to; their leases end by themselves.
            with suppress(ClosedError):
                self.release_all(left)

    def acknowledge_all(self, messages: Iterable[Message]) -> None:
        """Acknowledge many together. The first error is raised when all of them have been tried."""
        self._run(self._queue.acknowledge_all([message._message for message in messages]))

    def release_all(self, messages: Iterable[Message]) -> None:
        """Give back, at once, what was leased and not looked at: it costs no attempt.

        A failure only means that the lease runs out.
        """
        self._run(self._queue.release_all([message._message for message in messages]))

    # The queue itself.

    def create(
        self,
        *,
        partitions: int | None = None,
        durability: str | None = None,
        convert: bool = False,
        **settings: Unpack[Settings],
    ) -> Description:
        """Make the queue. One that exists with the same settings is fine; with others, QueueExistsError.

        A topic of this name becomes a queue: at once if it holds no records, else only with `convert`. Without it,
        TopicHasRecordsError says what would change.
        """
        return self._run(self._queue.create(partitions=partitions, durability=durability, convert=convert, **settings))

    def describe(self) -> Description:
        return self._run(self._queue.describe())

    def update(self, **settings: Unpack[Settings]) -> Description:
        """Change some settings; the others stay as they are."""
        return self._run(self._queue.update(**settings))

    def delete(self) -> None:
        """Delete the queue and its messages. Nodes allow it on their administrator's address only."""
        self._run(self._queue.delete())

    def purge(self) -> int:
        """Drop every message that is there now, and say how many that were."""
        return self._run(self._queue.purge())

    def browse(self, *, state: State | None = None, limit: int = 10, after: str | None = None) -> BrowsePage:
        """Look at messages without taking them."""
        return self._run(self._queue.browse(state=state, limit=limit, after=after))

    def explain(self, *, id: str | None = None, key: str | None = None) -> Explanation:
        """Where a message is, or why a key stands still: give one of the two."""
        return self._run(self._queue.explain(id=id, key=key))

    def redrive(
        self, *, target: str | None = None, filter: RedriveFilter | None = None, rate: int | None = None
    ) -> Redrive:
        """Send this queue's dead letters back to where they came from, or to a target; so many a second."""
        return self._run(self._queue.redrive(target=target, filter=filter, rate=rate))

    def redrives(self) -> list[Redrive]:
        """The last redrives and how far they are, newest first."""
        return self._run(self._queue.redrives())

    def cancel_redrive(self, id: str) -> Redrive:
        return self._run(self._queue.cancel_redrive(id))

    def readers(self) -> list[Reader]:
        return self._run(self._queue.readers())

    def move_reader(self, reader: str, positions: Mapping[int, int]) -> Reader:
        """Register a reader by offset, or note how far it has read."""
        return self._run(self._queue.move_reader(reader, positions))

    def remove_reader(self, reader: str) -> None:
        self._run(self._queue.remove_reader(reader))


class Client(ProcessBound):
    """Queues of a node, reached over HTTP. Use it as a context manager, or `close` it.

    Without `servers` it takes those that HEADRACE_HTTP names, or else 127.0.0.1:8080.
    """

    def __init__(
        self,
        servers: str | Sequence[str | Address] | None = None,
        *,
        config: QueueClientConfig | None = None,
        clock: Clock | None = None,
        rand: Rand | None = None,
        transport: Transport | None = None,
    ) -> None:
        self._client = AsyncClient(servers, config=config, clock=clock, rand=rand, transport=transport)
        self._loop = BackgroundLoop(name="headrace-client")

    def connect(self) -> None:
        """Reach a server. Without a retry: who begins with a wrong address should hear of it at once."""
        self._loop.run(self._client.connect())

    def close(self) -> None:
        """Send what is pending and let go of the connections; receives of other threads end in ClosedError."""
        if self._loop.is_open:
            try:
                # Another thread may be closing it too.
                with suppress(ClosedError):
                    self._loop.run(self._client.close())
            finally:
                self._loop.close()

    def __enter__(self) -> Self:
        try:
            self.connect()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def queue(self, name: str) -> Queue:
        """A queue by its name. Nothing is asked of the node yet: a queue that is missing is made by its first send."""
        return Queue(self._client.queue(name), self._loop)

    def transaction(self, *, timeout: Span | None = None) -> Transaction:
        """Sends and acknowledgements that count together: `with client.transaction() as tx`.

        It is aborted by itself so long after it began; None leaves that to the node.
        """
        return Transaction(self._client.transaction(timeout=timeout), self._loop)

    def queues(self, prefix: str = "") -> list[str]:
        """The names of all queues, sorted."""
        return self._loop.run(self._client.queues(prefix))

    def clock(self) -> ClockReport:
        """Whether the node believes its machine's clock."""
        return self._loop.run(self._client.clock())

    def confirm_clock(self) -> ClockReport:
        """Have the node believe its machine's clock. Taken at its administrator's address only."""
        return self._loop.run(self._client.confirm_clock())

    def describe_queues(self, prefix: str = "") -> list[Description]:
        """What all queues hold and how they are set, by name: one request for each thousand of them."""
        return self._loop.run(self._client.describe_queues(prefix))
