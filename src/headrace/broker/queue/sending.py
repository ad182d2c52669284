"""Sends to a queue: which partition, whether at all, and what counts as sent before."""

from collections.abc import Sequence
from hashlib import sha256
from typing import Protocol
from zlib import crc32

from headrace.broker.promise import Promise
from headrace.broker.queue.gather import Gather
from headrace.broker.queue.outbox import Outcome, message_share, moved_share, request_share, single_share
from headrace.broker.queue.partition_queue import PartitionQueue
from headrace.model.errors import BatchTooLargeError, HeadraceError, InvalidRequestError, QueueFullError
from headrace.model.message import Message, Sent
from headrace.model.queue import PRIORITY_DEFAULT, PRIORITY_MAX, SPAN_MS_MAX, Deduplication, Overflow, Queue

# Bytes that a batch adds to a message: its own header and the record's.
_ENVELOPE_BYTES = 200
# By a name of its own: a member of an enumeration is looked up through its class, for the price of two calls.
_BY_CONTENT = Deduplication.CONTENT


class Target(Protocol):
    """The queue that is sent to."""

    queue: Queue
    partitions: list[PartitionQueue]


class Sending:
    def __init__(self, live: Target) -> None:
        self._live = live
        self._partitions = live.partitions
        self._turn = 0

    def send_one(self, message: Message) -> Promise[Sent]:
        """The way of most sends, without what only several messages need."""
        partitions = self._partitions
        if self._live.queue.config.deduplication is _BY_CONTENT:
            message = _with_content_id(message)
        partition = partitions[0] if len(partitions) == 1 else self._route(message, self._next())
        try:
            self._check(message, partition)
        except HeadraceError as error:
            refused: Promise[Sent] = Promise()
            refused.fail(error)
            return refused
        single = single_share(message)
        partition.send(single)
        return single

    def send(self, messages: Sequence[Message], *, request_id: str | None = None) -> Promise[list[Outcome]]:
        if len(messages) == 1 and request_id is None:
            outcomes: Promise[list[Outcome]] = Promise()
            self.send_one(messages[0]).then(lambda sent: outcomes.keep([_outcome(sent)]))
            return outcomes
        gather: Gather[Outcome] = Gather(len(messages))
        default = self._next()
        if request_id is not None:
            # The same request goes the same way, or its repetition would not meet it.
            default = self._partitions[crc32(request_id.encode()) % len(self._partitions)]
        if self._live.queue.config.deduplication is _BY_CONTENT:
            messages = [_with_content_id(message) for message in messages]
        # Messages with ids are stored or known one by one, and their neighbours with them, so that the order stays.
        is_whole = all(message.deduplication_id is None for message in messages)
        shares: dict[PartitionQueue, list[int]] = {}
        for at, message in enumerate(messages):
            partition = default if len(self._partitions) == 1 else self._route(message, default)
            share = shares.setdefault(partition, []) if is_whole else ()
            try:
                self._check(message, partition, ahead=len(share))
            except HeadraceError as error:
                gather.set(at, error)
                continue
            if is_whole:
                shares[partition].append(at)
            else:
                partition.send(message_share(message, gather, at))
        for partition, places in shares.items():
            if not places:
                continue
            if len(places) == len(messages):
                partition.send(request_share(messages, gather, range(len(messages)), request_id))
            else:
                partition.send(request_share([messages[at] for at in places], gather, places, request_id))
        return gather.promise

    def _next(self) -> PartitionQueue:
        """Where messages go that are bound to no partition: to each in turn."""
        self._turn += 1
        return self._partitions[self._turn % len(self._partitions)]

    def plan(
        self, messages: Sequence[Message]
    ) -> tuple[dict[PartitionQueue, list[tuple[int, Message]]], dict[int, HeadraceError]]:
        """Where messages would go, by their places in the call, and which of them the queue does not take.

        For those who write them in their own way: in a transaction, where ids are looked at when it commits.
        """
        default = self._next()
        if self._live.queue.config.deduplication is _BY_CONTENT:
            messages = [_with_content_id(message) for message in messages]
        planned: dict[PartitionQueue, list[tuple[int, Message]]] = {}
        refused: dict[int, HeadraceError] = {}
        for at, message in enumerate(messages):
            partition = self._route(message, default)
            try:
                self._check(message, partition, ahead=len(planned.get(partition, ())))
            except HeadraceError as error:
                refused[at] = error
            else:
                planned.setdefault(partition, []).append((at, message))
        return planned, refused

    def send_moved(self, messages: Sequence[Message]) -> Promise[list[Outcome]]:
        """Store copies of another queue's messages, each known by the id of its move. No policy refuses them."""
        gather: Gather[Outcome] = Gather(len(messages))
        for at, message in enumerate(messages):
            share = moved_share(message, gather, at)
            index = 0 if len(self._partitions) == 1 else crc32(message.key or share.id or b"") % len(self._partitions)
            try:
                self._partitions[index].check_open()
                self._partitions[index].check_space()
                self._partitions[index].send(share)
            except HeadraceError as error:
                gather.set(at, error)
        return gather.promise

    def _route(self, message: Message, default: PartitionQueue) -> PartitionQueue:
        """By key, so that a key stays in order; else by deduplication id, so that both copies meet."""
        by = message.key
        if by is None and message.deduplication_id is not None:
            by = message.deduplication_id.encode()
        return default if by is None else self._partitions[crc32(by) % len(self._partitions)]

    def _check(self, message: Message, partition: PartitionQueue, *, ahead: int = 0) -> None:
        """Refuse what the queue does not take. `ahead` of it are others of the same request, not handed over yet."""
        stored_in = partition.partition
        log = stored_in.log
        if log.broken is not None:
            log.check_usable()
        stored_in.check_space()
        body, key, headers, priority, delay_ms, ttl_ms, _ = message
        if priority != PRIORITY_DEFAULT and not 0 <= priority <= PRIORITY_MAX:
            raise InvalidRequestError(f"priority is 0 to {PRIORITY_MAX}, not {priority}")
        if delay_ms is not None:
            _check_span("delay", delay_ms)
        if ttl_ms is not None:
            _check_span("time to live", ttl_ms)
        size = len(body) + _ENVELOPE_BYTES
        if headers or key:
            size += len(key or b"") + sum(len(name) + len(value) for name, value in headers)
        bytes_max = log.config.message_bytes_max
        if size > bytes_max:
            raise BatchTooLargeError(f"a message has at most {bytes_max - _ENVELOPE_BYTES} bytes here, not {size}")
        config = self._live.queue.config
        if config.messages_max is not None:
            self._make_room(partition, config.messages_max, ahead)

    def _make_room(self, partition: PartitionQueue, messages_max: int, ahead: int) -> None:
        """The limit is the queue's, shared evenly by its partitions."""
        share = max(messages_max // len(self._partitions), 1)
        count = partition.message_count + ahead
        if count < share:
            return
        if self._live.queue.config.overflow is Overflow.REJECT:
            raise QueueFullError(
                f"queue {self._live.queue.name} holds its {messages_max} messages; acknowledge some, then retry"
            )
        partition.drop_oldest(count - share + 1)


def _outcome(sent: Promise[Sent]) -> Outcome:
    """A refusal is an outcome as well. What nobody expected is neither, and is raised."""
    error = sent.exception()
    return error if isinstance(error, HeadraceError) else sent.result()


def _check_span(what: str, span_ms: int) -> None:
    if not 0 <= span_ms <= SPAN_MS_MAX:
        raise InvalidRequestError(f"a {what} is 0 to {SPAN_MS_MAX} ms, not {span_ms}")


def _with_content_id(message: Message) -> Message:
    if message.deduplication_id is not None:
        return message
    return message._replace(deduplication_id=sha256(message.body).hexdigest())
