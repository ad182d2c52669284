"""What gateways may ask of queues: one call for each use case, in no protocol's words.

The three calls of every message (`send`, `receive`, `acknowledge`, and the two that move a lease) return promises: kept
in the turn of the loop in which the answer is known, with no task in between. The rest are coroutines.

Where a call takes several messages, each has its own outcome, in the order of the call; the promise itself fails only
where nothing of it could be done (no such queue, the node stops).
"""

from collections.abc import Callable, Mapping, Sequence
from enum import Enum
from typing import Any, NamedTuple, Protocol, TypeVar

import msgspec

from headrace.broker.promise import Promise
from headrace.model.errors import HeadraceError
from headrace.model.message import Headers, Message, Received, Sent
from headrace.model.queue import Queue, QueueConfig

T = TypeVar("T")

DEFAULTS = QueueConfig()
# A configuration, or what becomes of the one that is there.
NewConfig = QueueConfig | Callable[[QueueConfig], QueueConfig]


class Extension(NamedTuple):
    """A lease to be held longer: for so long from the call on."""

    receipt: str
    lease_ms: int


class Release(NamedTuple):
    """A lease to be given back. The message is visible again after the delay; None: the queue's back-off.

    One that nobody has begun with is visible again at once, and its attempt does not count.
    """

    receipt: str
    delay_ms: int | None = None
    is_unbegun: bool = False
    error: str = ""  # what the consumer failed with: goes with the message if this was its last attempt


class Rejection(NamedTuple):
    """A lease to be ended for good: the message goes to the dead-letter queue, whatever attempts are left."""

    receipt: str
    reason: str


class Receive(Protocol):
    """A receive that may wait. Its promise is kept with what was handed out, nothing if the time is over."""

    @property
    def promise(self) -> Promise[list[Received]]: ...

    @property
    def is_waiting(self) -> bool:
        """Whether it holds nothing and waits for messages."""

    def cancel(self) -> None:
        """The consumer is gone: end the wait. What was handed out meanwhile is released."""


class MessageState(Enum):
    DELAYED = "delayed"
    VISIBLE = "visible"
    LEASED = "leased"
    BLOCKED = "blocked"  # ordered: an earlier message of its key is not done
    DYING = "dying"  # on its way to the dead-letter queue
    ACKNOWLEDGED = "acknowledged"  # done, and still there to be read; for `browse` all that are done, whatever the end
    # How else a message was done, as `explain` tells it.
    DEAD_LETTERED = "dead_lettered"
    MOVED = "moved"  # by a redrive
    EXPIRED = "expired"
    DROPPED = "dropped"
    PURGED = "purged"
    WITHDRAWN = "withdrawn"
    DONE = "done"  # the entry that says how is not in the log any more

    @property
    def is_browsable(self) -> bool:
        """Whether `browse` can be asked for messages in this state."""
        return self in _BROWSABLE


_BROWSABLE = (
    MessageState.DELAYED,
    MessageState.VISIBLE,
    MessageState.LEASED,
    MessageState.BLOCKED,
    MessageState.DYING,
    MessageState.ACKNOWLEDGED,
)


class QueueCounts(msgspec.Struct, frozen=True, kw_only=True):
    """sent = visible + leased + delayed + acknowledged + dead_lettered + expired + dropped + purged + withdrawn."""

    visible: int = 0  # blocked and dying ones among them
    leased: int = 0
    delayed: int = 0  # those of open transactions among them
    sent: int = 0
    acknowledged: int = 0
    dead_lettered: int = 0
    expired: int = 0  # time to live or retention
    dropped: int = 0  # overflow
    purged: int = 0
    withdrawn: int = 0  # sent in a transaction that was aborted, or a copy that its producer wrote to the log
    deduplicated: int = 0  # sends that were answered with an earlier one's place, and are not in `sent`
    oldest_ms: int | None = None  # since when the oldest message that is not done is there (wall clock)
    size_bytes: int = 0  # of the files


class OfflinePartition(msgspec.Struct, frozen=True, kw_only=True):
    """A partition that failed or could not be opened. What it holds comes back with it."""

    partition: int
    reason: str  # and what to do


class QueueDescription(msgspec.Struct, frozen=True, kw_only=True):
    queue: Queue
    partition_count: int
    durability: str
    counts: QueueCounts  # of the partitions that are at work
    offline: Sequence[OfflinePartition] = ()


class Browsed(msgspec.Struct, frozen=True, kw_only=True):
    """A message that was looked at and not taken."""

    id: str  # its place in this queue
    state: MessageState
    body: bytes
    key: bytes | None
    headers: Headers
    priority: int
    sent_ms: int
    attempt: int | None  # None: it is done, and nobody has kept it
    partition: int
    offset: int
    due_ms: int | None = None  # delayed: when it becomes visible; leased: when the lease ends (wall clock)
    expires_ms: int | None = None
    first_id: str | None = (
        None  # of a moved message, where it is another: its id in the queue to which it was sent first
    )


class BrowsePage(msgspec.Struct, frozen=True, kw_only=True):
    messages: list[Browsed]
    next: str | None  # pass it back to go on; None: that was all
    offline: Sequence[OfflinePartition] = ()  # which were not looked into


class Explanation(msgspec.Struct, frozen=True, kw_only=True):
    """Where a message is and since when, or why a key stands still."""

    state: MessageState
    text: str  # one sentence for people
    id: str  # of the message, or of the one that blocks the key
    partition: int
    offset: int
    attempt: int | None  # None: it is done, and nobody has kept it
    since_ms: int | None  # of its state (wall clock), where that is known: not of one that was given back
    until_ms: int | None
    waiting: int = 0  # messages of the key behind it


class RedriveState(Enum):
    RUNNING = "running"
    COMPLETED = "completed"
    CANCELLED = "cancelled"
    FAILED = "failed"


class RedriveFilter(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which dead letters go back; everything that is said must hold."""

    reason: str | None = None  # a part of the reason
    key: str | None = None
    source: str | None = None  # the queue that they came from
    sent_before_ms: int | None = None
    sent_after_ms: int | None = None
    body_contains: str | None = None
    places: tuple[str, ...] | None = None  # "<partition>-<offset>" in the dead-letter queue; None: wherever they lie


EVERYTHING = RedriveFilter()


# Why a redrive failed that had letters to bring back which do not say where they came from.
NO_SOURCE = "no_source"


class Redrive(msgspec.Struct, frozen=True, kw_only=True):
    """A redrive and its progress."""

    id: str
    queue: str
    target: str | None  # None: each message goes back to the queue that it came from
    filter: RedriveFilter
    rate_per_second: int | None
    state: RedriveState
    moved: int
    skipped: int  # did not match, or had nowhere to go
    total: int  # how many were there at the start
    started_ms: int
    ended_ms: int | None = None
    failure: str | None = None
    failure_code: str | None = None  # of the error that ended it, or NO_SOURCE


class Reader(msgspec.Struct, frozen=True, kw_only=True):
    """A named reader by offset, which holds the floor: nothing is dropped before it has read it, within limits."""

    name: str
    positions: dict[int, int]  # partition -> next offset that it wants


class Queues(Protocol):
    """The queues of a node."""

    # Messages.

    def send(
        self, queue: str, messages: Sequence[Message], *, request_id: str | None = None
    ) -> Promise[list[Sent | HeadraceError]]:
        """Store messages, in order; kept when they are committed. Makes the queue where that is allowed.

        A repeated request id, within the queue's deduplication window, stores nothing and gets the first one's answer:
        for callers who ask again because they did not hear it. The request must then be the same. Where any message of
        the request has a deduplication id, those ids count and the request's does not.
        """

    def send_one(self, queue: str, message: Message) -> Promise[Sent]:
        """Store one message; kept when it is committed, broken when it is refused. Otherwise like `send`."""

    def answer_bytes(self, queue: str, count: int) -> int:
        """About how many bytes so many of a queue's messages have, and no more than one receive hands out."""

    def receive(
        self,
        queue: str,
        *,
        count_max: int,
        lease_ms: int | None = None,
        wait_ms: int = 0,
        attempt_id: str | None = None,
    ) -> Receive:
        """Lease up to so many messages, waiting up to so long for the first.

        A repeated attempt id within five minutes gets the messages of the first try that it still holds (FIFO).
        """

    def after_moves(self, queue: str, promise: Promise[T]) -> Promise[T]:
        """The outcome of a receive, kept once the messages whose last lease has ended are in the dead-letter queue.

        At the latest after a second, and at once where they cannot be moved now.
        """

    def acknowledge(
        self, queue: str, receipts: Sequence[str], *, may_be_late: bool = False
    ) -> Promise[list[HeadraceError | None]]:
        """End leases: their messages are done.

        With `may_be_late` a lease that is over counts as well, as long as nobody has leased the message since: the
        newest receipt of a message of SQS's standard queues.
        """

    def extend(
        self, queue: str, extensions: Sequence[Extension], *, may_be_late: bool = False
    ) -> Promise[list[HeadraceError | None]]:
        """Hold leases longer. With `may_be_late` also those that are over, while no consumer has the message."""

    def release(
        self, queue: str, releases: Sequence[Release], *, may_be_late: bool = False
    ) -> Promise[list[HeadraceError | None]]:
        """Give leases back, with `may_be_late` also those that are over, as `extend` has it."""

    def reject(self, queue: str, rejections: Sequence[Rejection]) -> Promise[list[HeadraceError | None]]: ...

    # Queues.

    def find(self, name: str) -> Queue:
        """UnknownQueueError where there is none."""

    def names(self, prefix: str = "") -> Sequence[str]:
        """Sorted."""

    def describe(self, name: str) -> QueueDescription: ...

    def describe_listed(self, name: str) -> QueueDescription:
        """The same for a list, where a queue that could not be opened is one with all of its partitions offline."""

    async def create(
        self,
        name: str,
        config: QueueConfig = DEFAULTS,
        *,
        partition_count: int = -1,
        durability: str | None = None,
        notes: Mapping[str, dict[str, Any]] = {},
        convert: bool = False,
    ) -> Queue:
        """Make a queue, or turn an existing topic into one: a topic that holds records only with `convert`.

        QueueExistsError if there is a queue by this name, TopicHasRecordsError where `convert` is missing.
        """

    async def ensure(self, name: str) -> Queue:
        """The queue of this name, made now with defaults if that is allowed."""

    async def update(
        self, name: str, config: NewConfig | None = None, *, notes: Mapping[str, dict[str, Any]] | None = None
    ) -> Queue:
        """Replace its configuration or some gateway's notes; obeyed when this returns.

        Whoever changes only some of the configuration says what becomes of it: another one may be changing the rest.
        """

    async def delete(self, name: str) -> None:
        """Delete a queue, its topic and its messages. An administrator's call: the gateway has checked that."""

    async def purge(self, name: str) -> int:
        """Drop everything that was sent up to now, and say how many that was. Nothing while a partition is offline."""

    # Looking.

    async def browse(
        self, name: str, *, state: MessageState | None = None, count_max: int = 10, after: str | None = None
    ) -> BrowsePage: ...

    async def explain(self, name: str, *, id: str | None = None, key: bytes | None = None) -> Explanation:
        """Exactly one of the two. UnknownMessageError where there is nothing to explain."""

    # Dead letters.

    def dead_letter_sources(self, name: str) -> Sequence[str]:
        """The queues whose dead letters come here, sorted."""

    async def redrive(
        self,
        name: str,
        *,
        target: str | None = None,
        filter: RedriveFilter = EVERYTHING,
        rate_per_second: int | None = None,
    ) -> Redrive: ...

    def redrives(self, name: str) -> Sequence[Redrive]:
        """Newest first; the ten last ones are remembered."""

    async def cancel_redrive(self, name: str, id: str) -> Redrive: ...

    # Named readers.

    async def move_reader(self, name: str, reader: str, positions: Mapping[int, int]) -> Reader:
        """Register a reader or note how far it has read. Durable when this returns."""

    def readers(self, name: str) -> Sequence[Reader]: ...

    async def remove_reader(self, name: str, reader: str) -> None: ...
