"""A message that goes from one queue to another: as a dead letter, or back.

It is copied with a move id first and ended at its source when the copy is committed. The queue that it goes to knows
the move ids of the last hour of its own running time, so a copy that is made again after a crash is not stored twice
(failure row 34).
"""

from headrace.broker.queue.live_queue import LiveQueue
from headrace.broker.queue.partition_queue import PartitionQueue
from headrace.folds.queue.fold import Dying
from headrace.model.message import (
    DEAD_ATTEMPTS_HEADER,
    DEAD_ERROR_HEADER,
    DEAD_FIRST_HEADER,
    DEAD_LAST_HEADER,
    DEAD_OFFSET_HEADER,
    DEAD_PREFIX,
    DEAD_REASON_HEADER,
    DEAD_RECEIVES_HEADER,
    DEAD_SENT_HEADER,
    DEAD_SOURCE_HEADER,
    ID_HEADER,
    MOVE_HEADER,
    ORIGIN_HEADER,
    Headers,
    Message,
    message_id,
    receives_before,
)
from headrace.wire.message import StoredMessage


def dead_letter(live: LiveQueue, partition: PartitionQueue, dying: Dying, message: StoredMessage) -> Message:
    """The copy that goes to the dead-letter queue, which tells why and from where."""
    attempts, first_ms, last_ms = dying.history
    reason = dying.reason or f"delivered {attempts} times without an acknowledgement"
    return Message(
        message.body,
        message.key,
        (
            *_without_dead(message.headers),
            (DEAD_REASON_HEADER, reason.encode()),
            *(((DEAD_ERROR_HEADER, dying.error.encode()),) if dying.error else ()),
            (DEAD_SOURCE_HEADER, live.queue.name.encode()),
            (DEAD_OFFSET_HEADER, message_id(partition.index, message.offset).encode()),
            (DEAD_ATTEMPTS_HEADER, b"%d" % attempts),
            (DEAD_RECEIVES_HEADER, b"%d" % (attempts + receives_before(message.headers))),
            (DEAD_FIRST_HEADER, b"%d" % first_ms),
            (DEAD_LAST_HEADER, b"%d" % last_ms),
            (DEAD_SENT_HEADER, (header_of(message, DEAD_SENT_HEADER) or str(message.sent_ms)).encode()),
            *_identity(live, partition, message),
        ),
        message.priority,
        delay_ms=0,
    )


def redriven(live: LiveQueue, partition: PartitionQueue, message: StoredMessage) -> Message:
    """The copy that goes back, as if it were sent anew."""
    return Message(
        message.body,
        message.key,
        (*_without_dead(message.headers), *_identity(live, partition, message)),
        message.priority,
        delay_ms=0,
    )


def header_of(message: StoredMessage, name: str) -> str | None:
    return next((value.decode("utf-8", "replace") for found, value in message.headers if found == name), None)


def _identity(live: LiveQueue, partition: PartitionQueue, message: StoredMessage) -> Headers:
    id = message.id or message_id(partition.index, message.offset)
    move_id = f"{live.queue.id}/{partition.index}/{message.offset}"
    identity: Headers = ((ID_HEADER, id.encode()), (MOVE_HEADER, move_id.encode()))
    # Ids are unique within a queue, so the id alone does not tell a moved message from the queue's own.
    if header_of(message, ORIGIN_HEADER) is None:
        identity += ((ORIGIN_HEADER, str(live.queue.id).encode()),)
    return identity


def _without_dead(headers: Headers) -> Headers:
    return tuple((name, value) for name, value in headers if not name.startswith(DEAD_PREFIX))
