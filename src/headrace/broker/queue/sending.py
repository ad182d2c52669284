"""Sends to a queue: which partition, whether at all, and what counts as sent before.

A key and an id are bound to a partition, and refused while that one is offline. What was sent before is answered by the
partition that has it, wherever its second copy is bound to: that may have another key, and since the first one came
partitions may have been added. What is bound to none goes to those that are at work. Between the two are requests with
an id, which clients draw for each call in case they have to repeat it: their home follows from the id, and is given up
once the queue would not remember a first copy there any more.

Whether something was sent before is looked at before a full queue refuses it or makes room: a duplicate takes none.
"""

from collections.abc import Sequence
from hashlib import sha256
from typing import Protocol
from zlib import crc32

from headrace.broker.promise import Promise
from headrace.broker.queue.gather import Gather
from headrace.broker.queue.outbox import (
    Outcome,
    message_share,
    moved_share,
    named_id,
    own_id,
    request_share,
    single_share,
)
from headrace.broker.queue.partition_queue import PartitionQueue
from headrace.broker.queue.partitions import QueuePartitions
from headrace.broker.queue.request import Request
from headrace.broker.queue.room import Room
from headrace.host.clock import Clock
from headrace.model.errors import BatchTooLargeError, HeadraceError, InvalidRequestError, QueueFullError
from headrace.model.message import Message, Sent
from headrace.model.queue import PRIORITY_DEFAULT, PRIORITY_MAX, SPAN_MS_MAX, Deduplication, Queue

# Bytes that a batch adds to a message: its own header and the record's.
_ENVELOPE_BYTES = 200
# By a name of its own: a member of an enumeration is looked up through its class, for the price of two calls.
_BY_CONTENT = Deduplication.CONTENT


class Target(Protocol):
    """The queue that is sent to."""

    queue: Queue
    partitions: QueuePartitions


class Sending:
    def __init__(self, live: Target, room: Room, clock: Clock) -> None:
        self._live = live
        self._room = room
        self._partitions = live.partitions
        self._opened = live.partitions.opened
        self._clock = clock
        self._turn = 0
        # How many partitions there were last, and since when (monotonic).
        self._count = self._count_since_ms = 0
        # Since when requests find their home offline, by its number (monotonic).
        self._homeless_ms: dict[int, int] = {}

    def send_one(self, message: Message) -> Promise[Sent]:
        """The way of most sends, without what only several messages need."""
        config = self._live.queue.config
        if config.deduplication is _BY_CONTENT:
            message = _with_content_id(message)
        try:
            partition = self._opened[0] if self._partitions.count == 1 else self._route(message)
            stored_in = partition.partition  # as in _check_open, for the price of a call less
            log = stored_in.log
            if log.broken is not None:
                log.check_usable()
            stored_in.check_space()
            _check(message, log.config.message_bytes_max)
            single = single_share(message)
            if single.id is not None:
                partition = self._holder(single.id) or partition
            if config.messages_max is not None:
                self._room.make(partition, single.id)
        except HeadraceError as error:
            refused: Promise[Sent] = Promise()
            refused.fail(error)
            return refused
        partition.send(single)
        return single

    def send(self, messages: Sequence[Message], *, request_id: str | None = None) -> Promise[list[Outcome]]:
        if len(messages) == 1 and request_id is None:
            outcomes: Promise[list[Outcome]] = Promise()
            self.send_one(messages[0]).then(lambda sent: outcomes.keep([_outcome(sent)]))
            return outcomes
        gather: Gather[Outcome] = Gather(len(messages))
        if self._live.queue.config.deduplication is _BY_CONTENT:
            messages = [_with_content_id(message) for message in messages]
        places = self._check_all(messages, gather)
        request = None if request_id is None else self._request(request_id, messages, places)
        default = self._next().index if request is None else self._home(request, messages, places)
        spread = (request and request.spread) or self._partitions.count
        for partition, share in self._split(messages, places, default, spread, gather).items():
            try:
                _check_open(partition)
            except HeadraceError as error:
                gather.set_all(share, [error] * len(share))
            else:
                self._store(partition, messages, share, gather, request)
        return gather.promise

    def _check_all(self, messages: Sequence[Message], gather: Gather[Outcome]) -> Sequence[int]:
        """The places of those that are not refused for what they are, which they would be each time."""
        bytes_max = self._opened[0].partition.log.config.message_bytes_max
        refused: set[int] = set()
        for at, message in enumerate(messages):
            try:
                _check(message, bytes_max)
            except HeadraceError as error:
                refused.add(at)
                gather.set(at, error)
        places = range(len(messages))
        return [at for at in places if at not in refused] if refused else places

    def _split(
        self, messages: Sequence[Message], places: Sequence[int], default: int, spread: int, gather: Gather[Outcome]
    ) -> dict[PartitionQueue, Sequence[int]]:
        """Which of them go where, by so many partitions."""
        if self._partitions.count == 1:
            return {self._opened[0]: places} if places else {}
        shares: dict[PartitionQueue, Sequence[int]] = {}
        for index, share in _grouped(messages, places, default, spread).items():
            try:
                shares[self._partitions.at(index)] = share
            except HeadraceError as error:
                gather.set_all(share, [error] * len(share))
        return shares

    def _store(
        self,
        partition: PartitionQueue,
        messages: Sequence[Message],
        places: Sequence[int],
        gather: Gather[Outcome],
        request: Request | None,
    ) -> None:
        """Send a request's share of a partition: as a whole if it can be, or else one after the other."""
        # Messages with ids are stored or known one by one, and their neighbours with them, so that the order stays.
        if all(messages[at].deduplication_id is None for at in places):
            chosen = messages if len(places) == len(messages) else [messages[at] for at in places]
            whole = request_share(chosen, gather, places, request)
            if self._takes_whole(partition, whole.id, places, request):
                partition.send(whole)
                return
        for at in places:
            share = message_share(messages[at], gather, at, request)
            try:
                holder = partition if share.id is None else self._holder(share.id) or partition
                self._room.make(holder, share.id)
            except HeadraceError as error:
                gather.set(at, error)
            else:
                holder.send(share)

    def _takes_whole(
        self, partition: PartitionQueue, id: bytes | None, places: Sequence[int], request: Request | None
    ) -> bool:
        """Not where there is no room for all, or was none when this request came before."""
        # The first of them is taken before the others are, so it tells of them all.
        if request is not None and partition.knows(named_id(request.message_name(places[0]))):
            return False
        try:
            self._room.make(partition, id, count=len(places))
        except QueueFullError:
            return False
        return True

    def _next(self) -> PartitionQueue:
        """Where messages go that are bound to no partition: to each that is at work, in turn."""
        opened = self._opened
        for _ in opened:
            self._turn += 1
            partition = opened[self._turn % len(opened)]
            if partition.partition.log.broken is None:
                break
        return partition  # with none at work, the last one says why

    def _holder(self, id: bytes) -> PartitionQueue | None:
        """Who has what is known by this id, or gets it in this turn."""
        if self._partitions.count == 1:
            return None
        holder = next((partition for partition in self._opened if partition.knows(id)), None)
        return holder and self._partitions.at(holder.index)

    def _request(self, id: str, messages: Sequence[Message], places: Sequence[int]) -> Request:
        """A request over as many partitions as there are, or as there were when it came first, if that was lately."""
        count = self._partitions.count
        request = Request(id.encode(), len(messages))
        if count == 1 or all(_bound_by(messages[at]) is None for at in places):
            return request
        if self._may_have_grown(count):
            for spread in range(count - 1, 0, -1):
                before = request._replace(spread=spread)
                if self._is_known(before, messages, places):
                    return before
        return request._replace(spread=count)

    def _may_have_grown(self, count: int) -> bool:
        """Whether there may have been fewer partitions when something was sent that is remembered."""
        now_ms = self._clock.monotonic_ms()
        if count != self._count:
            self._count, self._count_since_ms = count, now_ms
        return now_ms - self._count_since_ms < self._live.queue.config.deduplication_window_ms

    def _is_known(self, request: Request, messages: Sequence[Message], places: Sequence[int]) -> bool:
        """Whether something of a request is stored, over as many partitions as it says."""
        home = crc32(request.id) % request.spread
        for index, share in _grouped(messages, places, home, request.spread).items():
            unbound = [at for at in share if messages[at].deduplication_id is None]
            if unbound and self._partitions.is_at_work(index):
                names = request.share_name(len(share)), request.message_name(unbound[0])
                if any(self._partitions.at(index).knows(named_id(name)) for name in names):
                    return True
        return False

    def _home(self, request: Request, messages: Sequence[Message], places: Sequence[int]) -> int:
        """Where a request goes: always the same way, or its repetition would not meet it."""
        partitions, count = self._partitions, self._partitions.count
        home = crc32(request.id) % (request.spread or count)
        # With keys, a request has parts in several partitions, and an id that is known tells of one of them.
        if count == 1 or any(message.key is not None for message in messages):
            return home
        unbound = [at for at in places if messages[at].deduplication_id is None]
        if not unbound:
            return home
        ids = [named_id(name) for name in (request.share_name(len(unbound)), request.message_name(unbound[0]))]
        for partition in self._opened:
            if any(partition.knows(id) for id in ids):
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
                _check_open(partition)
                _check(message, partition.partition.log.config.message_bytes_max)
                self._room.make(partition, own_id(message), ahead=at - len(refused))
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
            assert share.id is not None
            try:
                partition = self._holder(share.id) or self._partitions.at(crc32(message.key or share.id) % count)
                partition.check_space()
                partition.send(share)
            except HeadraceError as error:
                gather.set(at, error)
        return gather.promise

    def _route(self, message: Message, default: int | None = None) -> PartitionQueue:
        """By key, so that a key stays in order; else by deduplication id, so that both copies meet; else anywhere."""
        by = _bound_by(message)
        if by is not None:
            return self._partitions.at(crc32(by) % self._partitions.count)
        return self._next() if default is None else self._partitions.at(default)


def _bound_by(message: Message) -> bytes | None:
    """What says to which partition a message goes; None: any."""
    if message.key is None and message.deduplication_id is not None:
        return message.deduplication_id.encode()
    return message.key


def _grouped(messages: Sequence[Message], places: Sequence[int], default: int, spread: int) -> dict[int, list[int]]:
    """The places of messages by the partition to which they are bound, of so many; the second of an id to the first."""
    groups: dict[int, list[int]] = {}
    of_id: dict[str, int] = {}
    for at in places:
        by = _bound_by(messages[at])
        index = default if by is None else crc32(by) % spread
        id = messages[at].deduplication_id
        groups.setdefault(index if id is None else of_id.setdefault(id, index), []).append(at)
    return groups


def _check_open(partition: PartitionQueue) -> None:
    """Refuse what is for a partition that takes nothing now."""
    log = partition.partition.log
    if log.broken is not None:
        log.check_usable()
    partition.partition.check_space()


def _check(message: Message, bytes_max: int) -> None:
    """Refuse what no queue takes, or not this one."""
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
    if size > bytes_max:
        raise BatchTooLargeError(
            f"a message has at most {max(bytes_max - _ENVELOPE_BYTES, 0)} bytes here, with its key and headers, "
            f"not {size - _ENVELOPE_BYTES}; send less, or raise max.message.bytes of the topic"
        )


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
