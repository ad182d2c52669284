"""A queue at work: several partitions that look like one.

A receive takes what is visible in any partition, beginning with another one each time; with nothing visible it stands
in one line for all of them, first come first served, and whichever partition has something wakes the line. Nothing
polls.

The guarantee decides what stands between choosing a message and handing it out:

    at least once   nothing: the lease is written behind
    exactly once    the commit of the lease
    at most once    the commit of the acknowledgement
"""

import re
from collections.abc import Callable, Mapping, Sequence
from hashlib import sha256
from zlib import crc32

from headrace.broker.promise import Promise
from headrace.broker.queue.gather import Gather
from headrace.broker.queue.loader import Found, Loader, Wanted
from headrace.broker.queue.outbox import Outcome, message_share, moved_share, request_share
from headrace.broker.queue.partition_queue import PartitionQueue, Told
from headrace.broker.queue.port import Extension, Reader, Rejection, Release
from headrace.broker.queue.receipt import Receipt, Signer
from headrace.broker.queue.receive import PendingReceive
from headrace.folds.queue.fold import Lease
from headrace.host.clock import Clock
from headrace.model.errors import (
    BatchTooLargeError,
    HeadraceError,
    InvalidRequestError,
    QueueFullError,
    StaleReceiptError,
    UnknownMessageError,
)
from headrace.model.message import Message, Received, message_id
from headrace.model.queue import (
    ATTEMPTS_MAX,
    LEASE_MS_MAX,
    PRIORITY_MAX,
    SPAN_MS_MAX,
    Deduplication,
    Guarantee,
    Overflow,
    Queue,
)
from headrace.wire.message import StoredMessage

# Bytes that a batch adds to a message: its own header and the record's.
_ENVELOPE_BYTES = 200
# How long a receive's attempt id is remembered, and how many are.
_ATTEMPT_MS = 5 * 60_000
_ATTEMPT_COUNT_MAX = 10_000

_READER_NAME = re.compile(r"[A-Za-z0-9._-]{1,100}", re.ASCII)


class LiveQueue:
    def __init__(self, *, queue: Queue, signer: Signer, clock: Clock, loader: Loader) -> None:
        self.queue = queue
        self.partitions: list[PartitionQueue] = []
        self._signer = signer
        self._clock = clock
        self._loader = loader
        self._line: dict[PendingReceive, None] = {}
        self._turn = 0
        self._attempts: dict[str, tuple[int, list[tuple[PartitionQueue, Lease]]]] = {}
        self.is_closed = False

    # Sending.

    def send(self, messages: Sequence[Message], *, request_id: str | None = None) -> Promise[list[Outcome]]:
        gather: Gather[Outcome] = Gather(len(messages))
        self._turn += 1
        default = self.partitions[self._turn % len(self.partitions)]
        if request_id is not None:
            # The same request goes the same way, or its repetition would not meet it.
            default = self.partitions[crc32(request_id.encode()) % len(self.partitions)]
        if self.queue.config.deduplication is Deduplication.CONTENT:
            messages = [_with_content_id(message) for message in messages]
        # Messages with ids are stored or known one by one, and their neighbours with them, so that the order stays.
        is_whole = all(message.deduplication_id is None for message in messages)
        shares: dict[PartitionQueue, list[int]] = {}
        for at, message in enumerate(messages):
            partition = default if len(self.partitions) == 1 else self._route(message, default)
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
            index = 0 if len(self.partitions) == 1 else crc32(message.key or share.id or b"") % len(self.partitions)
            self.partitions[index].send(share)
        return gather.promise

    def _route(self, message: Message, default: PartitionQueue) -> PartitionQueue:
        """By key, so that a key stays in order; else by deduplication id, so that both copies meet."""
        by = message.key
        if by is None and message.deduplication_id is not None:
            by = message.deduplication_id.encode()
        return default if by is None else self.partitions[crc32(by) % len(self.partitions)]

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
        config = self.queue.config
        if config.messages_max is not None:
            self._make_room(partition, config.messages_max)

    def _make_room(self, partition: PartitionQueue, messages_max: int) -> None:
        """The limit is the queue's, shared evenly by its partitions."""
        share = max(messages_max // len(self.partitions), 1)
        if partition.message_count < share:
            return
        if self.queue.config.overflow is Overflow.REJECT:
            raise QueueFullError(
                f"queue {self.queue.name} holds its {messages_max} messages; receive and acknowledge some, then retry"
            )
        partition.drop_oldest(partition.message_count - share + 1)

    # Receiving.

    def receive(self, *, count_max: int, lease_ms: int | None, wait_ms: int, attempt_id: str | None) -> PendingReceive:
        lease_ms = self.queue.config.lease_ms if lease_ms is None else lease_ms
        receive = PendingReceive(count_max=count_max, lease_ms=lease_ms, attempt_id=attempt_id)
        if not 0 <= lease_ms <= LEASE_MS_MAX:
            receive.fail(InvalidRequestError(f"a lease is 0 to {LEASE_MS_MAX} ms long, not {lease_ms}"))
        elif count_max < 1:
            receive.fail(InvalidRequestError(f"at least one message is received, not {count_max}"))
        elif attempt_id is not None and self._repeat(receive, attempt_id):
            pass
        elif self._line or not self._hand_out(receive):
            if wait_ms > 0:
                receive.line = self._line
                self._line[receive] = None
                receive.timer = self._clock.call_later(wait_ms, receive.time_out)
            else:
                receive.promise.keep([])
        return receive

    def serve(self) -> None:
        """Something may be visible: serve the line."""
        while self._line:
            receive = next(iter(self._line))
            try:
                if not self._hand_out(receive):
                    return
            except HeadraceError as error:
                receive.fail(error)
                continue
            receive.leave()

    def _hand_out(self, receive: PendingReceive) -> bool:
        """Take messages for a receive. False: there are none."""
        taken = receive.taken
        left = receive.count_max
        self._turn += 1
        count = len(self.partitions)
        for step in range(count):
            partition = self.partitions[(self._turn + step) % count]
            leases = partition.take(left, receive.lease_ms)
            if leases:
                taken.append((partition, leases))
                left -= len(leases)
                if not left:
                    break
        if not taken:
            return False
        if self.queue.config.guarantee is Guarantee.AT_LEAST_ONCE:
            self._deliver(receive)
        else:
            self._deliver_committed(receive)
        return True

    def _deliver_committed(self, receive: PendingReceive) -> None:
        missing = len(receive.taken)

        def told(error: HeadraceError | None) -> None:
            nonlocal missing
            missing -= 1
            if error is not None:
                receive.fail(error)
            elif not missing and not receive.promise.done():
                self._deliver(receive)

        for partition, _ in list(receive.taken):
            partition.tell_written(told)

    def _deliver(self, receive: PendingReceive) -> None:
        """Read the messages and hand them out; at once where they are at hand."""
        received: list[Received] = []
        cold = False
        for partition, leases in receive.taken:
            for lease in leases:
                message = partition.cache.get(lease.offset)
                if message is None:
                    cold = True
                    break
                received.append(self._received(partition, lease, message, receive.lease_ms))
            if cold:
                break
        if cold:
            wanted = [Wanted(partition, lease.offset) for partition, leases in receive.taken for lease in leases]
            self._loader.load(wanted, lambda found, error: self._loaded(receive, found, error))
            return
        for partition, leases in receive.taken:
            for lease in leases:
                partition.cache.take(lease.offset)
        self._finish(receive, received)

    def _loaded(self, receive: PendingReceive, found: Found, error: HeadraceError | None) -> None:
        if error is not None:
            receive.give_back()
            receive.fail(error)
            return
        received = []
        for partition, leases in receive.taken:
            unreadable = []
            for lease in leases:
                message = found.get((partition.index, lease.offset))
                if message is None:
                    unreadable.append(lease.offset)
                else:
                    partition.cache.take(lease.offset)
                    received.append(self._received(partition, lease, message, receive.lease_ms))
            if unreadable:
                partition.give_up(unreadable)
        self._finish(receive, received)

    def _finish(self, receive: PendingReceive, received: list[Received]) -> None:
        if receive.attempt_id is not None:
            self._remember(receive.attempt_id, receive)
        receive.keep(received)

    def _received(self, partition: PartitionQueue, lease: Lease, message: StoredMessage, lease_ms: int) -> Received:
        offset, attempt, first_ms = lease
        index = partition.index
        if self.queue.config.guarantee is Guarantee.AT_MOST_ONCE:
            receipt = ""
        else:
            receipt = self._signer.sign(index, offset, min(attempt, ATTEMPTS_MAX), partition.partition.epoch)
        return Received(
            message.id or message_id(index, offset),
            message.body,
            message.key,
            message.headers,
            message.priority,
            message.deduplication_id,
            message.sent_ms,
            attempt,
            first_ms,
            receipt,
            lease_ms,
            index,
            offset,
        )

    # The queue itself.

    async def reconfigure(self, queue: Queue) -> None:
        """Obey another configuration; it is in the log when this returns."""
        self.queue = queue
        await self._all(lambda partition, told: partition.configure(queue.config, told))
        self.serve()

    async def purge(self) -> int:
        """Drop what is there, and say how much that was."""
        before = sum(partition.fold.counts.purged for partition in self.partitions)
        await self._all(lambda partition, told: partition.purge(told))
        return sum(partition.fold.counts.purged for partition in self.partitions) - before

    async def move_reader(self, name: str, positions: Mapping[int, int]) -> None:
        if not _READER_NAME.fullmatch(name):
            raise InvalidRequestError("a reader's name has 1 to 100 letters, digits, '.', '_' and '-'")
        for index, offset in positions.items():
            if not 0 <= index < len(self.partitions):
                raise InvalidRequestError(f"queue {self.queue.name} has no partition {index}")
            end = self.partitions[index].partition.high_watermark
            if not 0 <= offset <= end:
                raise InvalidRequestError(f"partition {index} has offsets up to {end}, not {offset}")

        def move(partition: PartitionQueue, told: Told) -> None:
            known = partition.fold.readers.get(name, partition.partition.start_offset)
            partition.move_reader(name, positions.get(partition.index, known), told)

        await self._all(move)

    def reader(self, name: str) -> Reader:
        positions = {
            partition.index: partition.fold.readers[name]
            for partition in self.partitions
            if name in partition.fold.readers
        }
        if not positions:
            raise UnknownMessageError(f"queue {self.queue.name} has no reader {name}")
        return Reader(name=name, positions=positions)

    def readers(self) -> list[Reader]:
        names = {name for partition in self.partitions for name in partition.fold.readers}
        return [self.reader(name) for name in sorted(names)]

    async def remove_reader(self, name: str) -> None:
        self.reader(name)
        await self._all(lambda partition, told: partition.remove_reader(name, told))

    async def _all(self, act: Callable[[PartitionQueue, Told], None]) -> None:
        gather: Gather[HeadraceError | None] = Gather(len(self.partitions))
        for at, partition in enumerate(self.partitions):
            partition.check_open()
            act(partition, _setter(gather, [at]))
        for error in await gather.promise:
            if error is not None:
                raise error

    @property
    def oldest_ms(self) -> int | None:
        """When the oldest message that is not done was sent, as of a few seconds ago."""
        return min((partition.oldest[1] for partition in self.partitions if partition.oldest is not None), default=None)

    @property
    def waiting_count(self) -> int:
        return len(self._line)

    def end(self, error: HeadraceError) -> None:
        """Send home everybody who waits in line."""
        for receive in list(self._line):
            receive.fail(error)

    def close(self) -> None:
        """The queue is gone."""
        self.is_closed = True
        for partition in self.partitions:
            partition.close()

    # Attempt ids: a receive that is repeated gets what the first try got, where it is still leased.

    def _remember(self, attempt_id: str, receive: PendingReceive) -> None:
        now_ms = self._clock.monotonic_ms()
        held = [(partition, lease) for partition, leases in receive.taken for lease in leases]
        self._attempts[attempt_id] = now_ms + _ATTEMPT_MS, held
        for known, (until_ms, _) in list(self._attempts.items()):
            if until_ms > now_ms and len(self._attempts) <= _ATTEMPT_COUNT_MAX:
                break
            del self._attempts[known]

    def _repeat(self, receive: PendingReceive, attempt_id: str) -> bool:
        until_ms, held = self._attempts.get(attempt_id, (0, []))
        if until_ms <= self._clock.monotonic_ms():
            return False
        for partition, lease in held:
            if partition.holds(lease.offset, lease.attempt):
                partition.extend(lease.offset, receive.lease_ms)
                receive.taken.append((partition, [lease]))
        if not receive.taken:
            return False
        self._deliver(receive)
        return True

    # Ending and moving leases.

    def acknowledge(self, receipts: Sequence[str]) -> Promise[list[HeadraceError | None]]:
        gather: Gather[HeadraceError | None] = Gather(len(receipts))
        by_partition: dict[PartitionQueue, dict[int, tuple[int, list[int]]]] = {}
        for at, text in enumerate(receipts):
            try:
                partition, receipt = self._read(text)
            except HeadraceError as error:
                gather.set(at, error)
                continue
            held = by_partition.setdefault(partition, {})
            try:
                if receipt.offset not in held:
                    partition.check(receipt)
            except StaleReceiptError as error:
                # Whoever repeats an acknowledgement because its answer got lost has done nothing wrong.
                if partition.was_acknowledged(receipt.offset, receipt.attempt):
                    partition.tell_written(_setter(gather, [at]))
                else:
                    gather.set(at, error)
                continue
            held.setdefault(receipt.offset, (receipt.attempt, []))[1].append(at)
        for partition, held in by_partition.items():
            if held:
                places = [at for _, ats in held.values() for at in ats]
                attempts = {offset: attempt for offset, (attempt, _) in held.items()}
                partition.acknowledge(attempts, _setter(gather, places))
        return gather.promise

    def extend(self, extensions: Sequence[Extension]) -> Promise[list[HeadraceError | None]]:
        def extend(partition: PartitionQueue, offset: int, at: int, told: Told) -> None:
            lease_ms = extensions[at].lease_ms
            if not 0 <= lease_ms <= LEASE_MS_MAX:
                raise InvalidRequestError(f"a lease is 0 to {LEASE_MS_MAX} ms long, not {lease_ms}")
            partition.extend(offset, lease_ms, told)

        return self._each([extension.receipt for extension in extensions], extend)

    def release(self, releases: Sequence[Release]) -> Promise[list[HeadraceError | None]]:
        def release(partition: PartitionQueue, offset: int, at: int, told: Told) -> None:
            delay_ms = releases[at].delay_ms
            if delay_ms is not None and not 0 <= delay_ms <= SPAN_MS_MAX:
                raise InvalidRequestError(f"a delay is 0 to {SPAN_MS_MAX} ms, not {delay_ms}")
            partition.release(offset, delay_ms, told)

        return self._each([release.receipt for release in releases], release)

    def reject(self, rejections: Sequence[Rejection]) -> Promise[list[HeadraceError | None]]:
        def reject(partition: PartitionQueue, offset: int, at: int, told: Told) -> None:
            if self.queue.dead_letter_name is None:
                raise InvalidRequestError(
                    f"queue {self.queue.name} has no dead-letter queue to reject to; set dead_letter, "
                    "or acknowledge the message to drop it"
                )
            partition.reject(offset, rejections[at].reason, told)

        return self._each([rejection.receipt for rejection in rejections], reject)

    def _each(
        self, receipts: Sequence[str], act: Callable[[PartitionQueue, int, int, Told], None]
    ) -> Promise[list[HeadraceError | None]]:
        gather: Gather[HeadraceError | None] = Gather(len(receipts))
        for at, text in enumerate(receipts):
            try:
                partition, receipt = self._read(text)
                partition.check(receipt)
                act(partition, receipt.offset, at, _setter(gather, [at]))
            except HeadraceError as error:
                gather.set(at, error)
        return gather.promise

    def _read(self, text: str) -> tuple[PartitionQueue, Receipt]:
        receipt = self._signer.read(text)
        partition = self.partitions[receipt.partition]
        partition.check_open()
        return partition, receipt


def _with_content_id(message: Message) -> Message:
    if message.deduplication_id is not None:
        return message
    return message._replace(deduplication_id=sha256(message.body).hexdigest())


def _setter(gather: Gather[HeadraceError | None], places: list[int]) -> Callable[[HeadraceError | None], None]:
    def told(error: HeadraceError | None) -> None:
        for at in places:
            gather.set(at, error)

    return told
