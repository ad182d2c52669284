"""Messages on their way into one partition of a queue.

What is sent to a queue in one turn of the loop becomes one batch, whoever sent it. A message that repeats one of the
same turn, or one whose place is known to the fold, is not stored again: it gets the first one's answer, and not before
the first one gets it.
"""

from collections.abc import Iterator
from hashlib import sha256
from typing import NamedTuple

from headrace.broker.queue.gather import Gather
from headrace.folds.queue.fold import QueueFold
from headrace.folds.queue.instant import Instant
from headrace.log.partition_log import Incoming
from headrace.model.batch import read_header
from headrace.model.errors import HeadraceError
from headrace.model.ids import Offset
from headrace.model.message import MOVE_HEADER, Message, Properties, Sent, message_id
from headrace.model.queue import Deduplication
from headrace.wire.message import StoredMessage, encode_messages

# What a batch of joined messages may hold, well under what a topic takes, so that reading one message costs little.
_BATCH_BYTES = 256 * 1024
_BATCH_COUNT = 1000

Outcome = Sent | HeadraceError


class Place(NamedTuple):
    """Where an outcome is awaited."""

    gather: Gather[Outcome]
    at: int


class Batch(NamedTuple):
    """Messages that are written together."""

    messages: list[Message]
    places: list[Place]
    properties: dict[int, Properties]
    incoming: Incoming
    sent_ms: int


class Outbox:
    def __init__(self, fold: QueueFold) -> None:
        self._fold = fold
        self._outgoing: list[tuple[Message, Place]] = []
        # Ids of messages that are not written yet, and who else sent the same.
        self._repeats: dict[bytes, list[Place]] = {}
        self._batches: list[Batch] = []

    def __bool__(self) -> bool:
        return bool(self._outgoing or self._batches)

    @property
    def count(self) -> int:
        return len(self._outgoing)

    def add(self, message: Message, place: Place, *, now: Instant) -> int | None:
        """Take a message, unless it repeats one whose offset is known, which is returned."""
        config = self._fold.config
        id = message.deduplication_id
        if id is None and config.deduplication is Deduplication.CONTENT:
            id = sha256(message.body).hexdigest()
            message = message._replace(deduplication_id=id)
        if id is None and not message.headers:
            self._outgoing.append((message, place))
            return None
        known, offset = self._known(message, id, now)
        if offset is not None:
            return offset
        if known is not None:
            if known in self._repeats:
                self._repeats[known].append(place)
                return None
            self._repeats[known] = []
        self._outgoing.append((message, place))
        return None

    def _known(self, message: Message, id: str | None, now: Instant) -> tuple[bytes | None, int | None]:
        """The id that a message is known by, and the offset of the first one that had it."""
        for name, move_id in message.headers:
            if name == MOVE_HEADER:
                return b"move:" + move_id, self._fold.find_moved(move_id)
        if id is None:
            return None, None
        data = id.encode()
        return b"id:" + data, self._fold.find_duplicate(data, now=now)

    def build(self, *, wall_ms: int) -> list[Incoming]:
        """Batches of everything that was taken. What an earlier turn could not write has been answered."""
        assert not self._batches
        outgoing, self._outgoing = self._outgoing, []
        keys = self._fold.config.ordered or self._fold.config.fair
        for chunk in _chunks(outgoing):
            messages = [message for message, _ in chunk]
            encoded = encode_messages(messages, wall_ms, keys=keys)
            header = read_header(encoded.batch)
            self._batches.append(
                Batch(
                    messages,
                    [place for _, place in chunk],
                    encoded.properties,
                    Incoming(header, memoryview(encoded.batch)),
                    wall_ms,
                )
            )
        return [batch.incoming for batch in self._batches]

    def take_written(self) -> list[Batch]:
        """The batches that were built, whose places are no longer its own."""
        batches, self._batches = self._batches, []
        return batches

    def take_repeats(self, message: Message) -> list[Place]:
        """Who sent the same as a message that was written or refused now."""
        if not self._repeats:
            return []
        for name, move_id in message.headers:
            if name == MOVE_HEADER:
                return self._repeats.pop(b"move:" + move_id, [])
        id = message.deduplication_id
        return [] if id is None else self._repeats.pop(b"id:" + id.encode(), [])

    def refuse(self, error: HeadraceError) -> None:
        """Tell everybody whose message was to be written."""
        batches, self._batches = self._batches, []
        outgoing, self._outgoing = self._outgoing, []
        refused = [pair for batch in batches for pair in zip(batch.messages, batch.places, strict=True)]
        for message, place in [*refused, *outgoing]:
            place.gather.set(place.at, error)
            for repeat in self.take_repeats(message):
                repeat.gather.set(repeat.at, error)


def stored(message: Message, offset: Offset, sent_ms: int) -> StoredMessage:
    """A message as it would be read from the log; only for one without headers of a mover."""
    return StoredMessage(
        offset,
        sent_ms,
        message.key,
        message.body,
        message.headers,
        message.priority,
        message.delay_ms,
        message.ttl_ms,
        message.deduplication_id,
    )


def sent(partition: int, offset: int, *, is_duplicate: bool = False) -> Sent:
    return Sent(message_id(partition, offset), partition, offset, is_duplicate)


def _chunks(outgoing: list[tuple[Message, Place]]) -> Iterator[list[tuple[Message, Place]]]:
    start = size = 0
    for at, (message, _) in enumerate(outgoing):
        size += len(message.body) + 64
        if (size > _BATCH_BYTES and at > start) or at - start >= _BATCH_COUNT:
            yield outgoing[start:at]
            start, size = at, len(message.body) + 64
    if start < len(outgoing):
        yield outgoing[start:]
