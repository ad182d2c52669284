"""Sends to a queue: which partition, whether at all, and what counts as sent before.

A key and an id are bound to a partition, and refused while that one is offline. What is bound to none goes to those
that are at work. Between the two are requests with an id, which clients draw for each call in case they have to repeat
it: their home follows from the id, and is given up once the queue would not remember a first copy there any more.
"""

from collections.abc import Sequence
from hashlib import sha256
from typing import Protocol
from zlib import crc32

from headrace.broker.promise import Promise
from headrace.broker.queue.gather import Gather
from headrace.broker.queue.outbox import Outcome, message_share, moved_share, request_share, single_share
from headrace.broker.queue.partition_queue import PartitionQueue
from headrace.broker.queue.partitions import QueuePartitions
from headrace.host.clock import Clock
from headrace.model.errors import BatchTooLargeError, HeadraceError, InvalidRequestError, QueueFullError
from headrace.model.message import Message, Sent
from headrace.model.queue import PRIORITY_DEFAULT, PRIORITY_MAX, SPAN_MS_MAX, Deduplication, Overflow, Queue
from headrace.wire.message import REQUEST_PREFIX

# Bytes that a batch adds to a message: its own header and the record's.
_ENVELOPE_BYTES = 200
# By a name of its own: a member of an enumeration is looked up through its class, for the price of two calls.
_BY_CONTENT = Deduplication.CONTENT


class Target(Protocol):
    """The queue that is sent to."""

    queue: Queue
    partitions: QueuePartitions


class Sending:
    def __init__(self, live: Target, clock: Clock) -> None:
        self._live = live
        self._partitions = live.partitions
        self._opened = live.partitions.opened
        self._clock = clock
        self._turn = 0
        # Since when requests find their home offline, by its number (monotonic).
        self._homeless_ms: dict[int, int] = {}

    def send_one(self, message: Message) -> Promise[Sent]:
        """The way of most sends, without what only several messages need."""
        if self._live.queue.config.deduplication is _BY_CONTENT:
            message = _with_content_id(message)
        try:
            partition = self._opened[0] if self._partitions.count == 1 else self._route(message)
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
        default = self._next().index if request_id is None else self._home(request_id, messages)
        if self._live.queue.config.deduplication is _BY_CONTENT:
            messages = [_with_content_id(message) for message in messages]
        # Messages with ids are stored or known one by one, and their neighbours with them, so that the order stays.
        is_whole = all(message.deduplication_id is None for message in messages)
        shares: dict[PartitionQueue, list[int]] = {}
        for at, message in enumerate(messages):
            try:
                partition = self._opened[0] if self._partitions.count == 1 else self._route(message, default)
                share = shares.setdefault(partition, []) if is_whole else ()
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
        """Where messages go that are bound to no partition: to each that is at work, in turn."""
        opened = self._opened
        for _ in opened:
            self._turn += 1
            partition = opened[self._turn % len(opened)]
            if partition.partition.log.broken is None:
                break
        return partition  # with none at work, the last one says why

    def _home(self, request_id: str, messages: Sequence[Message]) -> int:
        """Where a request goes: always the same way, or its repetition would not meet it."""
        partitions, count = self._partitions, self._partitions.count
        home = crc32(request_id.encode()) % count
        # With keys, a request has parts in several partitions, and an id that is known tells of one of them.
        if count == 1 or any(message.key is not None for message in messages):
            return home
        id = REQUEST_PREFIX + request_id.encode()
        for partition in self._opened:
            if partition.fold.find_duplicate(id, now=partition.now.now()) is not None:
                return partition.index
        if partitions.is_at_work(home):
            return home
        # It may have been stored there before that went offline. Once no id is remembered for so long, one that is
        # known nowhere else counts as new.
        now_ms = self._clock.monotonic_ms()
        if now_ms - self._homeless_ms.setdefault(home, now_ms) < self._live.queue.config.deduplication_window_ms:
            return home
        others = ((home + step) % count for step in range(1, count))
        return next((index for index in others if partitions.is_at_work(index)), home)

    def plan(
        self, messages: Sequence[Message]
    ) -> tuple[dict[PartitionQueue, list[tuple[int, Message]]], dict[int, HeadraceError]]:
        """Where messages would go, by their places in the call, and which of them the queue does not take.

        For those who write them in their own way: in a transaction, where ids are looked at when it commits.
        """
        default = self._next().index
        if self._live.queue.config.deduplication is _BY_CONTENT:
            messages = [_with_content_id(message) for message in messages]
        planned: dict[PartitionQueue, list[tuple[int, Message]]] = {}
        refused: dict[int, HeadraceError] = {}
        for at, message in enumerate(messages):
            try:
                partition = self._route(message, default)
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
            count = self._partitions.count
            index = 0 if count == 1 else crc32(message.key or share.id or b"") % count
            try:
                partition = self._partitions.at(index)
                partition.check_space()
                partition.send(share)
            except HeadraceError as error:
                gather.set(at, error)
        return gather.promise

    def _route(self, message: Message, default: int | None = None) -> PartitionQueue:
        """By key, so that a key stays in order; else by deduplication id, so that both copies meet; else anywhere."""
        by = message.key
        if by is None and message.deduplication_id is not None:
            by = message.deduplication_id.encode()
        if by is not None:
            return self._partitions.at(crc32(by) % self._partitions.count)
        return self._next() if default is None else self._partitions.at(default)

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
        share = max(messages_max // self._partitions.count, 1)
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
