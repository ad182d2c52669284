"""The entries that a queue writes to its log: what was decided, each with the moment of the decision.

Every entry has its moment, on both clocks, because time alone changes the state too (leases end, delays pass): whoever
replays the log first lets time pass up to the entry's moment, and so sees what the one who decided saw.
"""

from enum import Enum

import msgspec

from headrace.folds.queue.instant import Instant
from headrace.model.queue import QueueConfig

Offsets = tuple[int, ...]


class ExpiryCause(Enum):
    TIME_TO_LIVE = 0
    RETENTION = 1
    LOG_START = 2


class Leased(msgspec.Struct, frozen=True):
    """Handed out for so long, in this order. Each counts as an attempt."""

    offsets: Offsets
    length_ms: int
    at: Instant


class Extended(msgspec.Struct, frozen=True):
    """Leases that now end so long after the moment, also some that were over while no other consumer had them."""

    offsets: Offsets
    length_ms: int
    at: Instant


class Acked(msgspec.Struct, frozen=True):
    offsets: Offsets
    at: Instant


class Released(msgspec.Struct, frozen=True):
    """Leases given back, also those that were over. Visible again after the delay; None: after the queue's back-off."""

    offsets: Offsets
    delay_ms: int | None
    at: Instant


class Failed(msgspec.Struct, frozen=True):
    """A lease given back by a consumer that failed, and what it failed with. Otherwise like `Released`."""

    offset: int
    delay_ms: int | None
    error: str
    at: Instant


class Returned(msgspec.Struct, frozen=True):
    """Leases given back by somebody who had not begun with the messages. Visible again at once; no attempt counts."""

    offsets: Offsets
    at: Instant


class Rejected(msgspec.Struct, frozen=True):
    """A lease that ended for good: the message waits to be copied to the dead-letter queue."""

    offset: int
    reason: str
    at: Instant


class DeadLettered(msgspec.Struct, frozen=True):
    """Gone to the dead-letter queue: written when the copies are committed there."""

    offsets: Offsets
    reason: str
    at: Instant


class Moved(msgspec.Struct, frozen=True):
    """Gone to another queue by a redrive: written when the copies are committed there."""

    offsets: Offsets
    at: Instant


class Expired(msgspec.Struct, frozen=True):
    """Dropped by age: these, and every message below `upto`; by retention, none whose delay is not over for so long."""

    offsets: Offsets
    upto: int
    cause: ExpiryCause
    at: Instant


class Dropped(msgspec.Struct, frozen=True):
    """Dropped because the queue was full."""

    offsets: Offsets
    at: Instant


class Repeated(msgspec.Struct, frozen=True):
    """Messages whose ids another partition of the queue knew when they arrived: as if they had not been sent."""

    offsets: Offsets
    at: Instant


class Purged(msgspec.Struct, frozen=True):
    """Every message below `upto`, whatever its state."""

    upto: int
    at: Instant


class Configured(msgspec.Struct, frozen=True):
    """The configuration from here on: state must follow from the log alone."""

    config: QueueConfig
    at: Instant


class ReaderMoved(msgspec.Struct, frozen=True):
    """A named reader wants this offset next."""

    name: str
    offset: int
    at: Instant


class ReaderRemoved(msgspec.Struct, frozen=True):
    name: str
    at: Instant


class TxnAcked(msgspec.Struct, frozen=True):
    """Acknowledged if a transaction commits: until it ends, the leases are the transaction's, and do not end."""

    producer_id: int
    offsets: Offsets
    at: Instant


class TxnEnded(msgspec.Struct, frozen=True):
    """The end of a transaction, for what was acknowledged in it. Messages that were sent in it end by its marker."""

    producer_id: int
    is_commit: bool
    at: Instant


class Ticked(msgspec.Struct, frozen=True):
    """Nothing but the time. Written now and then where nothing else says it.

    The lease clock goes on from the last entry when a node comes back, and ids are forgotten by entries.
    """

    at: Instant


Op = (
    Leased
    | Extended
    | Acked
    | Released
    | Failed
    | Returned
    | Rejected
    | DeadLettered
    | Moved
    | Expired
    | Dropped
    | Repeated
    | Purged
    | Configured
    | ReaderMoved
    | ReaderRemoved
    | TxnAcked
    | TxnEnded
    | Ticked
)
