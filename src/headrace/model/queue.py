"""A queue's configuration, and what it promises.

A queue is a topic with one subscription of the same name, whose messages are dropped once they are acknowledged. The
values here are checked as a whole before they are stored; gateways translate their own names and units to them.
"""

from enum import Enum
from typing import Annotated, Any
from uuid import UUID

import msgspec

from headrace.model.errors import InvalidConfigError
from headrace.model.names import NAME_LENGTH_MAX, check_topic_name
from headrace.model.topic import DAY_MS, INT64_MAX

LEASE_MS_MAX = 12 * 60 * 60 * 1000
PRIORITY_MAX = 9
PRIORITY_DEFAULT = 5
# Delays, lives and windows are bounded only so that a sum with the time of day stays a number of 64 bits.
SPAN_MS_MAX = INT64_MAX // 4
ATTEMPTS_MAX = 65_535

_Span = Annotated[int, msgspec.Meta(ge=0, le=SPAN_MS_MAX)]
_Count = Annotated[int, msgspec.Meta(ge=1, le=INT64_MAX)]


class Guarantee(Enum):
    """Where the commit stands relative to the hand-out."""

    AT_MOST_ONCE = "at_most_once"  # acknowledged, then handed out: a crash can lose what was being handed out
    AT_LEAST_ONCE = "at_least_once"  # handed out, the lease written behind: a crash can redeliver
    EXACTLY_ONCE = "exactly_once"  # the lease committed, then handed out: neither, before the lease's end


class Overflow(Enum):
    """What happens to a send above `messages_max`."""

    REJECT = "reject"
    DROP_OLDEST = "drop_oldest"


class Deduplication(Enum):
    """How a message that was sent twice is known."""

    ID = "id"  # by the deduplication id that a sender gives; a message without one is never a duplicate
    CONTENT = "content"  # by the SHA-256 of its body where it has no id


class Backoff(msgspec.Struct, frozen=True, kw_only=True):
    """How long a message rests after a failed attempt: the first length, doubled each time up to the last."""

    first_ms: _Span = 10_000
    last_ms: _Span = 600_000

    def delay_ms(self, attempt: int) -> int:
        """The rest after an attempt, counted from 1."""
        return min(self.first_ms << min(attempt - 1, 62), self.last_ms)


class QueueConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a queue asks of the node that leads it. Times are in milliseconds; None is no limit."""

    guarantee: Guarantee = Guarantee.AT_LEAST_ONCE
    ordered: bool = False  # by key: no message of a key while an earlier one is leased or delayed
    lease_ms: Annotated[int, msgspec.Meta(ge=0, le=LEASE_MS_MAX)] = 30_000
    delay_ms: _Span = 0  # of messages that say nothing
    ttl_ms: _Count | None = None  # of messages that say nothing
    retention_ms: _Count | None = 7 * DAY_MS  # an unacknowledged message older than this is dropped, and counted
    history_ms: _Span = 0  # how long acknowledged messages can still be read by offset
    max_deliveries: Annotated[int, msgspec.Meta(ge=1, le=ATTEMPTS_MAX)] | None = 10
    dead_letter: str | None = None  # the queue that gets what is delivered so often; None: `<name>-dead`
    dead_letter_expired: bool = False  # whether a message whose time to live is over goes there too
    backoff: Backoff | None = None  # after released and expired leases; None: at once
    deduplication: Deduplication = Deduplication.ID
    deduplication_window_ms: _Span = 5 * 60_000
    messages_max: _Count | None = None
    overflow: Overflow = Overflow.REJECT
    leased_max: _Count = 1_000_000  # leases held at once, for each partition
    fair: bool = False  # keys of an unordered queue take turns, so that a noisy one does not starve the others
    # How far a named reader may hold the log back, in age and in bytes for each partition.
    reader_lag_ms_max: _Count = 7 * DAY_MS
    reader_lag_bytes_max: _Count = 64 * 1024**3


class Queue(msgspec.Struct, frozen=True, kw_only=True):
    """A queue as the cluster knows it."""

    name: str
    topic_id: UUID
    id: UUID  # of its subscription: a queue that is deleted and made again has another one
    config: QueueConfig = QueueConfig()
    created_ms: int = 0
    modified_ms: int = 0
    # What a gateway must remember for its clients and nobody obeys: SQS attributes and tags, by the gateway's name.
    notes: dict[str, dict[str, Any]] = {}

    @property
    def dead_letter_name(self) -> str | None:
        """Where its dead letters go; None where deliveries have no limit and nothing else sends any."""
        if self.config.dead_letter is not None:
            return self.config.dead_letter
        return None if self.config.max_deliveries is None else default_dead_letter(self.name)


def default_dead_letter(name: str) -> str:
    """Where a queue's dead letters go when it does not say so. A long name is cut, so that this one is valid too."""
    end = "-dead"
    kept = len(name) if len(name) + len(end) <= NAME_LENGTH_MAX else NAME_LENGTH_MAX - 2 * len(end)
    return name[:kept] + end


def check_queue_config(name: str, config: QueueConfig) -> QueueConfig:
    """Refuse what contradicts itself, saying what to change."""
    try:
        # What is out of range here could be written and never be read again: no node would start with it.
        msgspec.convert(msgspec.to_builtins(config), QueueConfig)
    except msgspec.ValidationError as error:
        raise InvalidConfigError(f"a queue cannot have this: {error}") from None
    if config.dead_letter is not None:
        check_topic_name(config.dead_letter)
        if config.dead_letter == name and config.dead_letter_expired:
            raise InvalidConfigError(
                f"{name} is its own dead-letter queue, so messages whose time to live is over would come back to it "
                "again and again; leave out dead_letter_expired, or name another dead-letter queue"
            )
    if config.backoff is not None and config.backoff.first_ms > config.backoff.last_ms:
        raise InvalidConfigError(
            f"backoff begins at {config.backoff.first_ms} ms, above its end of {config.backoff.last_ms} ms; swap them"
        )
    if config.ordered and config.fair:
        raise InvalidConfigError("an ordered queue is fair by its keys already; leave out fair")
    return config
