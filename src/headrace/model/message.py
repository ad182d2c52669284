"""A queue's message on its way in and on its way out, whatever protocol it came by.

A queue's messages are ordinary records of its topic. What a record has no field for travels in headers that begin with
`headrace-`, so a Kafka producer can set them and a Kafka consumer sees them:

    headrace-priority         0 to 9, 9 first
    headrace-delay-ms         not handed out before its timestamp plus this
    headrace-ttl-ms           dropped at its timestamp plus this
    headrace-deduplication-id a second one with the same id within the queue's window is not stored
    headrace-request-id       what of a request begins with this message, so that a repeated request stores nothing
    headrace-id               of a moved message: the id that it had in the queue to which it was sent first
    headrace-origin           of a moved message: the id of the queue in which it had that id first
    headrace-move-id          set on a moved message, so that a repeated move stores it once
    headrace-dead-*           of a dead letter: reason, the last attempt's error, source queue, offset there, attempts,
                              times of first and last
"""

from typing import NamedTuple

from headrace.model.queue import PRIORITY_DEFAULT

HEADER_PREFIX = "headrace-"
PRIORITY_HEADER = "headrace-priority"
DELAY_HEADER = "headrace-delay-ms"
TTL_HEADER = "headrace-ttl-ms"
DEDUPLICATION_HEADER = "headrace-deduplication-id"
REQUEST_HEADER = "headrace-request-id"
ID_HEADER = "headrace-id"
ORIGIN_HEADER = "headrace-origin"
MOVE_HEADER = "headrace-move-id"
DEAD_PREFIX = "headrace-dead-"
DEAD_REASON_HEADER = "headrace-dead-reason"
DEAD_ERROR_HEADER = "headrace-dead-error"  # what the last attempt failed with, where its consumer said so
DEAD_SOURCE_HEADER = "headrace-dead-source"
DEAD_OFFSET_HEADER = "headrace-dead-offset"  # "<partition>-<offset>"
DEAD_ATTEMPTS_HEADER = "headrace-dead-attempts"
DEAD_RECEIVES_HEADER = "headrace-dead-receives"  # the same, with those in the queues that it died in before
DEAD_FIRST_HEADER = "headrace-dead-first-attempt-ms"
DEAD_LAST_HEADER = "headrace-dead-last-attempt-ms"
DEAD_SENT_HEADER = "headrace-dead-sent-ms"  # when it was first sent

Headers = tuple[tuple[str, bytes], ...]

_DIGITS_MAX = 18  # of a count that a producer of any protocol may have written


class Message(NamedTuple):
    """What somebody sends to a queue. Only a mover sets headers that begin with `headrace-`."""

    body: bytes
    key: bytes | None = None
    headers: Headers = ()
    priority: int = PRIORITY_DEFAULT
    delay_ms: int | None = None  # None: the queue's default
    ttl_ms: int | None = None  # None: the queue's default
    deduplication_id: str | None = None


def plain_message(body: bytes) -> Message:
    """A message without any option. By the tuple's own constructor: that of a named one takes three times as long."""
    return tuple.__new__(Message, (body, None, (), PRIORITY_DEFAULT, None, None, None))


class Sent(NamedTuple):
    """Where a message went. A duplicate gets the place of the first one."""

    id: str
    partition: int
    offset: int
    is_duplicate: bool


class Received(NamedTuple):
    """A message that was handed out under a lease."""

    id: str  # the one that it had first: it keeps it when it is moved, so another queue's message may have the same
    body: bytes
    key: bytes | None
    headers: Headers  # without those that the other fields tell
    priority: int
    deduplication_id: str | None
    sent_ms: int
    attempt: int  # counted from 1
    first_received_ms: int
    receipt: str  # empty where the guarantee is at most once: there is nothing to acknowledge
    lease_ms: int
    partition: int
    offset: int

    @property
    def place(self) -> str:
        """Where it lies in the queue that handed it out; no other message of that queue has it."""
        return message_id(self.partition, self.offset)


class Properties(NamedTuple):
    """What a queue must know of a message before it hands it out. A message without any is plain."""

    priority: int = PRIORITY_DEFAULT
    due_ms: int | None = None  # wall clock; None: the queue's default delay after it was sent
    expires_ms: int | None = None  # wall clock; None: the queue's default time to live after it was sent
    key: bytes | None = None  # obeyed where the queue is ordered or fair
    deduplication_id: bytes | None = None
    move_id: bytes | None = None


def property_headers(priority: int, delay_ms: int | None, ttl_ms: int | None, deduplication_id: str | None) -> Headers:
    """The headers that say what of a message differs from the default."""
    headers: list[tuple[str, bytes]] = []
    if priority != PRIORITY_DEFAULT:
        headers.append((PRIORITY_HEADER, b"%d" % priority))
    if delay_ms is not None:
        headers.append((DELAY_HEADER, b"%d" % delay_ms))
    if ttl_ms is not None:
        headers.append((TTL_HEADER, b"%d" % ttl_ms))
    if deduplication_id:
        headers.append((DEDUPLICATION_HEADER, deduplication_id.encode()))
    return tuple(headers)


def receives_before(headers: Headers) -> int:
    """How often a dead letter was received before it came to its queue; 0 for any other message."""
    for name, value in headers:
        if name == DEAD_RECEIVES_HEADER:
            return int(value) if value.isdigit() and len(value) <= _DIGITS_MAX else 0
    return 0


def message_id(partition: int, offset: int) -> str:
    """How a message is known in the queue in which it lies."""
    return f"{partition}-{offset}"
