"""What a queue tells about itself. Durations are seconds, moments milliseconds since 1970."""

from typing import Literal, TypedDict

import msgspec

from headrace.model.message import Headers

Guarantee = Literal["at_most_once", "at_least_once", "exactly_once"]
State = Literal[
    "delayed",
    "visible",
    "leased",
    "blocked",
    "dying",
    "acknowledged",
    # How else a message was done, in an explanation.
    "dead_lettered",
    "moved",
    "expired",
    "dropped",
    "purged",
    "withdrawn",
    "done",  # it is not known how
]


class Backoff(TypedDict):
    """The rest after a failed attempt: the first, doubled each time up to the last."""

    first: float
    last: float


class Settings(TypedDict, total=False):
    """A queue's settings; those that are left out have the node's defaults. None is no limit."""

    guarantee: Guarantee
    ordered: bool  # by key: no message of a key while an earlier one is not done
    lease: float
    delay: float
    ttl: float | None
    retention: float | None
    history: float
    max_deliveries: int | None
    dead_letter: str | None
    dead_letter_expired: bool
    backoff: Backoff | None
    deduplication: Literal["id", "content"]
    deduplication_window: float
    messages_max: int | None
    overflow: Literal["reject", "drop_oldest"]
    leased_max: int
    fair: bool
    reader_lag_max: float
    reader_lag_bytes_max: int


class Counts(msgspec.Struct, frozen=True, kw_only=True):
    visible: int = 0
    leased: int = 0
    delayed: int = 0
    sent: int = 0
    acknowledged: int = 0
    dead_lettered: int = 0
    expired: int = 0
    dropped: int = 0
    purged: int = 0
    withdrawn: int = 0
    deduplicated: int = 0
    oldest_ms: int | None = None
    size_bytes: int = 0


class OfflinePartition(msgspec.Struct, frozen=True, kw_only=True):
    """A partition that failed or could not be opened. What it holds comes back with it."""

    partition: int
    reason: str


class Description(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    partitions: int
    durability: str
    config: Settings
    counts: Counts = Counts()  # of the partitions that are at work
    offline: list[OfflinePartition] = []
    created_ms: int = 0
    modified_ms: int = 0


class BrowsedMessage(msgspec.Struct, frozen=True, kw_only=True):
    """A message that was looked at and not taken."""

    id: str
    state: State
    body: bytes
    key: bytes | None = None
    headers: Headers = ()
    priority: int
    sent_ms: int
    attempt: int | None = None  # None: it is done, and nobody has kept it
    partition: int
    offset: int
    due_ms: int | None = None  # delayed: when it becomes visible; leased: when the lease ends
    expires_ms: int | None = None
    first_id: str | None = (
        None  # of a moved message, where it is another: its id in the queue to which it was sent first
    )


class BrowsePage(msgspec.Struct, frozen=True, kw_only=True):
    messages: list[BrowsedMessage]
    next: str | None = None  # pass it back to go on; None: that was all
    offline: list[OfflinePartition] = []  # which were not looked into


class Explanation(msgspec.Struct, frozen=True, kw_only=True):
    """Where a message is and since when, or why a key stands still."""

    state: State
    text: str
    id: str
    partition: int
    offset: int
    attempt: int | None = None  # None: it is done, and nobody has kept it
    since_ms: int | None = None  # where that is known: not of a message that was given back
    until_ms: int | None = None
    waiting: int = 0


class RedriveFilter(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Which dead letters go back; everything that is said must hold."""

    reason: str | None = None  # a part of the reason
    key: str | None = None
    source: str | None = None
    sent_before_ms: int | None = None
    sent_after_ms: int | None = None
    body_contains: str | None = None
    places: tuple[str, ...] | None = None  # "<partition>-<offset>", as dead letters are known where they lie


class Redrive(msgspec.Struct, frozen=True, kw_only=True):
    """A redrive and its progress."""

    id: str
    queue: str
    state: Literal["running", "completed", "cancelled", "failed"]
    moved: int
    skipped: int
    total: int
    started_ms: int
    target: str | None = None
    filter: RedriveFilter = RedriveFilter()
    rate: int | None = None
    ended_ms: int | None = None
    failure: str | None = None
    failure_code: str | None = None  # "no_source": letters that do not say where they came from were left behind


class Reader(msgspec.Struct, frozen=True, kw_only=True):
    """A named reader by offset: what it has not read is not dropped."""

    name: str
    positions: dict[int, int]


class QueueName(msgspec.Struct, frozen=True):
    name: str


class QueuePage(msgspec.Struct, frozen=True, kw_only=True):
    queues: list[QueueName]
    next: str | None = None


class DescribedPage(msgspec.Struct, frozen=True, kw_only=True):
    queues: list[Description]
    next: str | None = None


class Redrives(msgspec.Struct, frozen=True):
    redrives: list[Redrive]


class Readers(msgspec.Struct, frozen=True):
    readers: list[Reader]


class Purged(msgspec.Struct, frozen=True):
    purged: int


class ClockReport(msgspec.Struct, frozen=True):
    """Whether a node believes its machine's clock. Lengths in milliseconds too."""

    is_believed: bool
    wall_ms: int
    trusted_ms: int  # the time of day that the node goes by where it deletes by age
    ahead_ms: int  # of trusted time; negative where the clock was set back
    believed_in_ms: int  # 0 where it is, and so long otherwise, unless it jumps again
