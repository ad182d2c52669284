"""Transactions over HTTP: `port.Transactions`, by the same coordinator that Kafka's producers have.

Each is a transaction of a producer of our own. Producers are used again, one transaction after the other, so that a
partition has few to remember; not at once, though, so that a commit whose answer got lost can be repeated and still
finds its transaction the last one. Sends are numbered here, from 0 for each partition: the epoch is new with every
transaction. What an earlier process began is aborted at the start, since nobody knows its numbers any more.
"""

import logging
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from typing import NamedTuple
from zlib import crc32

from headrace.broker.broker import Broker
from headrace.broker.partition import Partition
from headrace.broker.pending import Appended
from headrace.broker.promise import Promise
from headrace.broker.queue.gather import Gather
from headrace.broker.queue.leases import setter
from headrace.broker.queue.partition_queue import PartitionQueue
from headrace.broker.transaction.coordinator import Coordinator
from headrace.broker.transaction.held import LiveQueues
from headrace.broker.transaction.port import Begun
from headrace.broker.transaction.token import RESERVED_PREFIX, Token, TokenSigner, slot_id
from headrace.folds.transaction.transaction import State
from headrace.host.clock import Clock, stamp_ms
from headrace.model.errors import (
    HeadraceError,
    OverloadedError,
    ProducerFencedError,
    ProducerMappingError,
    TransactionStateError,
)
from headrace.model.ids import PartitionId
from headrace.model.message import Message, Sent, message_id
from headrace.wire.kafka.stamp import stamp_transactional
from headrace.wire.message import encode_messages

_logger = logging.getLogger(__name__)

_OPEN_MAX = 10_000
_REST_MS = 10_000  # before a producer is used again
_BATCH_BYTES = 256 * 1024
_BATCH_COUNT = 1000

Placed = tuple[int, Message]  # a message, and its place in the call


class Session:
    """A transaction that this process began."""

    def __init__(self, token: Token, due_ms: int) -> None:
        self.token = token
        self.due_ms = due_ms
        self.sequences: dict[PartitionId, int] = {}

    def take_sequences(self, place: PartitionId, count: int) -> int:
        first = self.sequences.get(place, 0)
        self.sequences[place] = first + count
        return first

    def return_sequences(self, place: PartitionId, count: int, first: int) -> None:
        """So many were refused, so the next send has their numbers; unless another one was numbered after them."""
        if self.sequences[place] == first + count:
            self.sequences[place] = first


class _Part(NamedTuple):
    """What of a call goes into one partition, and the time of day there: a queue's goes on when clocks are set."""

    placed: list[Placed]
    wall_ms: Callable[[], int]


class _Rested(NamedTuple):
    free_ms: int  # monotonic
    slot: int


class NodeTransactions:
    def __init__(self, *, coordinator: Coordinator, broker: Broker, queues: LiveQueues, clock: Clock) -> None:
        self._coordinator = coordinator
        self._broker = broker
        self._queues = queues
        self._clock = clock
        self._signer = TokenSigner(b"")
        self._sessions: dict[int, Session] = {}
        self._resting: deque[_Rested] = deque()
        self._slot_count = 0
        self._turn = 0
        self._swept_ms = 0

    async def start(self, key: bytes) -> None:
        """Sign with this key, and abort what an earlier process began."""
        self._signer = TokenSigner(key)
        for known in list(self._coordinator.transactions()):
            number = known.id.removeprefix(RESERVED_PREFIX)
            if number == known.id or not number.isdecimal():
                continue
            self._slot_count = max(self._slot_count, int(number) + 1)
            self._rest(int(number))
            if known.state is State.ONGOING:
                with suppress(HeadraceError):  # it is aborted when its time is over, then
                    producer = Token(int(number), known.producer_id, known.epoch).producer
                    await self._coordinator.end(producer, is_commit=False, is_bumped=True)

    @property
    def open_count(self) -> int:
        return len(self._sessions)

    # The port.

    async def begin(self, *, timeout_ms: int | None = None) -> Begun:
        if timeout_ms is None:
            timeout_ms = self._coordinator.config.timeout_ms
        self._sweep()
        if len(self._sessions) >= _OPEN_MAX:
            raise OverloadedError(f"{_OPEN_MAX} transactions are open over HTTP; end some, then retry")
        slot = self._take_slot()
        try:
            producer_id, epoch = await self._coordinator.begin_producer(slot_id(slot), timeout_ms=timeout_ms)
        except HeadraceError:
            self._rest(slot)
            raise
        token = Token(slot, producer_id, epoch)
        self._sessions[slot] = Session(token, self._clock.monotonic_ms() + timeout_ms)
        return Begun(self._signer.sign(token), timeout_ms)

    async def send(self, transaction: str, queue: str, messages: Sequence[Message]) -> list[Sent | HeadraceError]:
        session = self._session(transaction)
        planned, outcomes = await self._plan(queue, messages)
        with _in_words():
            await self._coordinator.add(session.token.producer, partitions=[partition.id for partition in planned])
            promises = [
                (partition, chunk, *self._append(session, partition, chunk, part.wall_ms()))
                for partition, part in planned.items()
                for chunk in _chunks(part.placed)
            ]
        errors: dict[PartitionId, HeadraceError] = {}  # the first one; what comes after it is only out of order
        refused: list[tuple[PartitionId, int, int]] = []
        for partition, chunk, sequence, promise in promises:
            try:
                appended = await promise
            except HeadraceError as error:
                refused.append((partition.id, len(chunk), sequence))
                outcomes |= dict.fromkeys((at for at, _ in chunk), errors.setdefault(partition.id, error))
                continue
            for number, (at, _) in enumerate(chunk):
                index, offset = partition.id.partition, appended.base_offset + number
                outcomes[at] = Sent(message_id(index, offset), index, offset, False)
        for numbers in reversed(refused):
            session.return_sequences(*numbers)
        return [outcomes[at] for at in range(len(messages))]

    async def acknowledge(self, transaction: str, queue: str, receipts: Sequence[str]) -> list[HeadraceError | None]:
        session = self._session(transaction)
        producer = session.token.producer
        live = await self._queues.live(queue)
        held, _ = live.leases.read_held(receipts, producer.producer_id)
        with _in_words():
            await self._coordinator.add(producer, acknowledgements=[partition.partition.id for partition in held])
            # Leases may have ended meanwhile: what counts is what is held now, in the turn that writes it.
            held, refused = live.leases.read_held(receipts, producer.producer_id)
            for partition in held:
                self._coordinator.verify(producer, acknowledgement=partition.partition.id)
        gather: Gather[HeadraceError | None] = Gather(len(receipts))
        asked = {at for leases in held.values() for _, places in leases.values() for at in places}
        for partition, leases in held.items():
            places = [at for _, ats in leases.values() for at in ats]
            attempts = {offset: attempt for offset, (attempt, _) in leases.items()}
            partition.acknowledge_later(producer.producer_id, attempts, setter(gather, places))
        for at in range(len(receipts)):
            if at not in asked:
                gather.set(at, refused.get(at))
        return await gather.promise

    async def commit(self, transaction: str) -> None:
        token = self._signer.read(transaction)
        known = self._coordinator.describe(slot_id(token.slot))
        if known.state is State.EMPTY and (known.producer_id, known.epoch) == (token.producer_id, token.epoch):
            await self.abort(transaction)  # nothing joined it: there is nothing to decide
            return
        with _in_words():
            await self._coordinator.end(token.producer, is_commit=True, is_bumped=True)
        self._ended(token)

    async def abort(self, transaction: str) -> None:
        token = self._signer.read(transaction)
        self._ended(token)
        try:
            await self._coordinator.end(token.producer, is_commit=False, is_bumped=True)
        except (ProducerFencedError, ProducerMappingError):
            known = self._coordinator.describe(slot_id(token.slot))
            if known.is_commit and (known.last_producer_id, known.last_epoch) == (token.producer_id, token.epoch):
                raise TransactionStateError("the transaction was committed, and cannot be aborted any more") from None
            _logger.info("a transaction was aborted before it was asked to be", extra={"slot": token.slot})

    # Sending.

    async def _plan(
        self, name: str, messages: Sequence[Message]
    ) -> tuple[dict[Partition, _Part], dict[int, Sent | HeadraceError]]:
        catalog = self._broker.catalog
        if name not in catalog.topics or name in catalog.queues:
            await self._queues.ensure(name)
            live = await self._queues.live(name)
            planned, refused = live.sending.plan(messages)
            parts = {one.partition: _Part(placed, _wall_clock(one)) for one, placed in planned.items()}
            return parts, dict(refused)
        topic = self._broker.topic(name)
        self._turn += 1
        by_partition: dict[Partition, _Part] = {}
        for at, message in enumerate(messages):
            index = (self._turn if message.key is None else crc32(message.key)) % topic.partition_count
            part = by_partition.setdefault(
                self._broker.partition(name, index), _Part([], partial(stamp_ms, self._clock))
            )
            part.placed.append((at, message))
        return by_partition, {}

    def _append(
        self, session: Session, partition: Partition, chunk: list[Placed], sent_ms: int
    ) -> tuple[int, Promise[Appended]]:
        """In the turn in which the coordinator says that this belongs to the transaction; with its sequence."""
        token = session.token
        self._coordinator.verify(token.producer, partition=partition.id)
        batch = encode_messages([message for _, message in chunk], sent_ms, keys=True).batch
        sequence = session.take_sequences(partition.id, len(chunk))
        stamp_transactional(batch, producer_id=token.producer_id, epoch=token.epoch, sequence=sequence)
        return sequence, partition.append(memoryview(batch), is_verified=True)

    # Sessions and their producers.

    def _session(self, transaction: str) -> Session:
        token = self._signer.read(transaction)
        session = self._sessions.get(token.slot)
        if session is None or session.token != token:
            raise TransactionStateError(
                "the transaction has ended: it was committed or aborted, its time was over, or the node was restarted"
            )
        return session

    def _take_slot(self) -> int:
        if self._resting and self._resting[0].free_ms <= self._clock.monotonic_ms():
            return self._resting.popleft().slot
        self._slot_count += 1
        return self._slot_count - 1

    def _rest(self, slot: int) -> None:
        self._resting.append(_Rested(self._clock.monotonic_ms() + _REST_MS, slot))

    def _ended(self, token: Token) -> None:
        session = self._sessions.get(token.slot)
        if session is not None and session.token == token:
            del self._sessions[token.slot]
            self._rest(token.slot)

    def _sweep(self) -> None:
        """Let go of what nobody ended. The coordinator aborts it by itself."""
        now_ms = self._clock.monotonic_ms()
        if now_ms - self._swept_ms < 1000:
            return
        self._swept_ms = now_ms
        for session in [session for session in self._sessions.values() if session.due_ms <= now_ms]:
            self._ended(session.token)


@contextmanager
def _in_words() -> Iterator[None]:
    """Say what a fenced producer means to somebody who knows nothing of producers."""
    try:
        yield
    except (ProducerFencedError, ProducerMappingError) as error:
        raise TransactionStateError(
            "the transaction has ended: it was aborted, its time was over, or the node was restarted; begin anew"
        ) from error


def _wall_clock(partition: PartitionQueue) -> Callable[[], int]:
    return lambda: partition.now.now().wall_ms


def _chunks(placed: list[Placed]) -> list[list[Placed]]:
    """Batches of a size that is cheap to read one message of."""
    chunks: list[list[Placed]] = []
    size = 0
    for one in placed:
        message_bytes = len(one[1].body) + sum(len(name) + len(value) for name, value in one[1].headers)
        if not chunks or size + message_bytes > _BATCH_BYTES or len(chunks[-1]) >= _BATCH_COUNT:
            chunks.append([])
            size = 0
        chunks[-1].append(one)
        size += message_bytes
    return chunks
