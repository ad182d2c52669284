"""Sends to a queue: which partition, whether at all, and what counts as sent before."""

from collections.abc import Sequence
from hashlib import sha256
from typing import Protocol
from zlib import crc32

from headrace.broker.promise import Promise
from headrace.broker.queue.gather import Gather
from headrace.broker.queue.outbox import Outcome, message_share, moved_share, request_share
from headrace.broker.queue.partition_queue import PartitionQueue
from headrace.model.errors import BatchTooLargeError, HeadraceError, InvalidRequestError, QueueFullError
from headrace.model.message import Message
from headrace.model.queue import PRIORITY_MAX, SPAN_MS_MAX, Deduplication, Overflow, Queue

# Bytes that a batch adds to a message: its own header and the record's.
_ENVELOPE_BYTES = 200


class Target(Protocol):
    """The queue that is sent to."""

    queue: Queue
    partitions: list[PartitionQueue]


class Sending:
    def __init__(self, live: Target) -> None:
        self._live = live
        self._partitions = live.partitions
        self._turn = 0

    def send(self, messages: Sequence[Message], *, request_id: str | None = None) -> Promise[list[Outcome]]:
        gather: Gather[Outcome] = Gather(len(messages))
        self._turn += 1
        default = self._partitions[self._turn % len(self._partitions)]
        if request_id is not None:
            # The same request goes the same way, or its repetition would not meet it.
            default = self._partitions[crc32(request_id.encode()) % len(self._partitions)]
        if self._live.queue.config.deduplication is Deduplication.CONTENT:
            messages = [_with_content_id(message) for message in messages]
        # Messages with ids are stored or known one by one, and their neighbours with them, so that the order stays.
        is_whole = all(message.deduplication_id is None for message in messages)
        shares: dict[PartitionQueue, list[int]] = {}
        for at, message in enumerate(messages):
            partition = default if len(self._partitions) == 1 else self._route(message, default)
            try:
                self._check(message, partition)
            except HeadraceError as error:
                gather.set(at, error)
                continue
            if is_whole:
                shares.setdefault(partition, []).append(at)
            else:
                partition.send(message_share(message, gather, at))
        for partition, places in shares.items():
            if len(places) == len(messages):
                partition.send(request_share(messages, gather, range(len(messages)), request_id))
            else:
                partition.send(request_share([messages[at] for at in places], gather, places, request_id))
        return gather.promise

    def send_moved(self, messages: Sequence[Message]) -> Promise[list[Outcome]]:
        """Store copies of another queue's messages, each known by the id of its move. No policy refuses them."""
        gather: Gather[Outcome] = Gather(len(messages))
        for at, message in enumerate(messages):
            share = moved_share(message, gather, at)
            index = 0 if len(self._partitions) == 1 else crc32(message.key or share.id or b"") % len(self._partitions)
            self._partitions[index].send(share)
        return gather.promise

    def _route(self, message: Message, default: PartitionQueue) -> PartitionQueue:
        """By key, so that a key stays in order; else by deduplication id, so that both copies meet."""
        by = message.key
        if by is None and message.deduplication_id is not None:
            by = message.deduplication_id.encode()
        return default if by is None else self._partitions[crc32(by) % len(self._partitions)]

    def _check(self, message: Message, partition: PartitionQueue) -> None:
        partition.check_open()
        if not 0 <= message.priority <= PRIORITY_MAX:
            raise InvalidRequestError(f"priority is 0 to {PRIORITY_MAX}, not {message.priority}")
        for what, span_ms in (("delay", message.delay_ms), ("time to live", message.ttl_ms)):
            if span_ms is not None and not 0 <= span_ms <= SPAN_MS_MAX:
                raise InvalidRequestError(f"a {what} is 0 to {SPAN_MS_MAX} ms, not {span_ms}")
        size = len(message.body) + _ENVELOPE_BYTES
        if message.headers or message.key:
            size += len(message.key or b"") + sum(len(name) + len(value) for name, value in message.headers)
        bytes_max = partition.partition.log.config.message_bytes_max
        if size > bytes_max:
            raise BatchTooLargeError(f"a message has at most {bytes_max - _ENVELOPE_BYTES} bytes here, not {size}")
        config = self._live.queue.config
        if config.messages_max is not None:
            self._make_room(partition, config.messages_max)

    def _make_room(self, partition: PartitionQueue, messages_max: int) -> None:
        """The limit is the queue's, shared evenly by its partitions."""
        share = max(messages_max // len(self._partitions), 1)
        if partition.message_count < share:
            return
        if self._live.queue.config.overflow is Overflow.REJECT:
            raise QueueFullError(
                f"queue {self._live.queue.name} holds its {messages_max} messages; acknowledge some, then retry"
            )
        partition.drop_oldest(partition.message_count - share + 1)


def _with_content_id(message: Message) -> Message:
    if message.deduplication_id is not None:
        return message
    return message._replace(deduplication_id=sha256(message.body).hexdigest())
