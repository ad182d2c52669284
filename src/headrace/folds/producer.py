"""Idempotent and transactional producers: a retried send is stored once and answered with its first offset (row 27).

Theory of operation. A producer numbers the records that it sends to a partition. For each producer id the fold keeps
the epoch and the last five batches, as many as a Kafka client has in flight. A batch is then one of:

    fresh       it goes on where the last one ended: write it, then `apply` it
    duplicate   it is one of the last five: answer with the offset that it got, write nothing
    forgotten   its sequences were stored before and are older than five batches: DuplicateSequenceError, which
                clients take for success without an offset
    gap         anything else: OutOfOrderSequenceError, and nothing is written

`check` changes nothing. Several batches of one turn are checked before the first is written by passing the same
`tentative` dict to each check: it holds what the state would be, is given up when the write fails, and only `apply`,
after the write, changes the fold. Replaying the log calls `apply` alone, so state follows from the log.

Choices, where Kafka's rules need one:
- A producer of which nothing is known may begin at any sequence, as in Kafka 4 (KIP-360): its earlier batches may have
  been expired, evicted or deleted with their topic, and refusing would stop a healthy producer for good. So the fold
  never raises UnknownProducerError.
- "Stored before" is said only of sequences that this state has seen accepted one after the other (`run_count`).
  A sequence below the first one known may never have arrived, and clients take a duplicate for success.
- A new epoch begins at sequence 0 and forgets the batches of the old one. An older epoch is refused for ever.

Transactions. A producer's transactional batches open a transaction here, which a marker of its coordinator ends
(`transaction_index.py` has what readers need of that). The first batch of a transaction is taken only when the
coordinator has confirmed that the partition belongs to the producer's transaction (`is_verified`, KIP-890), so nothing
that comes late can leave a transaction open that nobody will end (row 28). A marker is written only where there is
something to end: repeating one does nothing. One of an older producer epoch or an older coordinator is refused, and so
is one of the same epoch where the epoch is raised with every transaction: what is open then is a later transaction.
"""

import struct
from collections.abc import Iterator
from itertools import islice
from typing import NamedTuple

from headrace.folds.snapshot import FoldState, decode_snapshot, encode_snapshot
from headrace.folds.transaction_index import Aborted, TransactionIndex
from headrace.model.batch import SEQUENCE_LIMIT, BatchHeader, Buffer
from headrace.model.errors import (
    CoordinatorFencedError,
    DuplicateSequenceError,
    InvalidRecordError,
    OutOfOrderSequenceError,
    ProducerFencedError,
    TransactionStateError,
)
from headrace.model.ids import Offset
from headrace.wire.kafka.marker import Marker

FOLD_NAME = "producer"
BATCHES_REMEMBERED = 5
PRODUCERS_MAX = 10_000  # for each partition; the one that was silent longest is forgotten first

_START = Offset(0)
_STATE_VERSION = 2  # 1 had no transactions
_NO_OFFSET = Offset(-1)
_COUNT = struct.Struct(">I")
_PRODUCER_1 = struct.Struct(">qhqIB")
_PRODUCER = struct.Struct(">qhqIBqi")
_BATCH = struct.Struct(">iiqqq")
_ABORTED = struct.Struct(">qqq")


class RememberedBatch(NamedTuple):
    first_sequence: int
    last_sequence: int
    base_offset: Offset
    last_offset: Offset
    timestamp_ms: int


class ProducerState(NamedTuple):
    """What is known of one producer. Immutable, so that a tentative state can share it."""

    epoch: int
    seen_ms: int
    run_count: int  # sequences accepted without a gap up to the last one; counted no further than they wrap
    batches: tuple[RememberedBatch, ...]  # oldest first
    transaction_offset: Offset = _NO_OFFSET  # where its open transaction began; -1: it has none
    coordinator_epoch: int = -1  # of the last marker

    @property
    def next_sequence(self) -> int:
        return (self.batches[-1].last_sequence + 1) % SEQUENCE_LIMIT if self.batches else 0


Tentative = dict[int, ProducerState]


class Fresh(NamedTuple):
    """Not seen before: write it."""


class Duplicate(NamedTuple):
    """Seen before, at these offsets. Not to be answered before the first copy is: its offset must be committed."""

    base_offset: Offset
    last_offset: Offset
    timestamp_ms: int


FRESH = Fresh()


class ProducerFold:
    """The producers of one partition, as of `end_offset`."""

    def __init__(self, *, end_offset: Offset = _START, producers_max: int = PRODUCERS_MAX) -> None:
        assert producers_max > 0
        self._end_offset = end_offset
        self._producers_max = producers_max
        # In the order in which they were last heard, the most recent at the end.
        self._producers: dict[int, ProducerState] = {}
        self.transactions = TransactionIndex()

    @property
    def end_offset(self) -> Offset:
        """Every batch below it was applied."""
        return self._end_offset

    def __len__(self) -> int:
        return len(self._producers)

    def check(
        self,
        header: BatchHeader,
        *,
        base_offset: Offset,
        tentative: Tentative | None = None,
        is_verified: bool = False,
    ) -> Fresh | Duplicate:
        """Say whether a batch that would be written at an offset is fresh. Raises where it must not be written."""
        if not header.has_producer:
            if header.is_transactional:
                raise InvalidRecordError("a transactional batch has a producer id; this one has none")
            return FRESH
        state = self._state(header.producer_id, tentative)
        duplicate = _judge(state, header)
        if duplicate is not None:
            return duplicate
        _check_transaction(state, header, is_verified=is_verified)
        if tentative is not None:
            tentative[header.producer_id] = _advance(state, header, base_offset, 0)
        return FRESH

    def check_marker(
        self,
        header: BatchHeader,
        marker: Marker,
        *,
        base_offset: Offset,
        tentative: Tentative,
        is_bumped: bool,
    ) -> bool:
        """Whether a marker that would be written at an offset ends anything. Raises where it comes too late.

        `is_bumped`: its epoch is above that of the transaction that it ends.
        """
        state = self._state(header.producer_id, tentative)
        if state is None or state.transaction_offset < 0:
            return False
        if header.producer_epoch < state.epoch + is_bumped:
            raise ProducerFencedError(
                f"producer {header.producer_id} has a transaction of epoch {state.epoch} here, and this marker of "
                f"epoch {header.producer_epoch} was meant for an earlier one"
            )
        if marker.coordinator_epoch < state.coordinator_epoch:
            raise CoordinatorFencedError(
                f"a coordinator of epoch {state.coordinator_epoch} has written markers of producer "
                f"{header.producer_id}, and this one is of epoch {marker.coordinator_epoch}"
            )
        tentative[header.producer_id] = _advance(state, header, base_offset, 0, marker)
        return True

    def is_open(self, producer_id: int, epoch: int) -> bool:
        """Whether a producer has a transaction of this epoch here."""
        state = self._producers.get(producer_id)
        return state is not None and state.transaction_offset >= 0 and state.epoch == epoch

    def next_sequence(self, producer_id: int, epoch: int) -> int:
        """With which sequence a producer goes on."""
        state = self._producers.get(producer_id)
        return state.next_sequence if state is not None and state.epoch == epoch else 0

    def _state(self, producer_id: int, tentative: Tentative | None) -> ProducerState | None:
        state = self._producers.get(producer_id)
        return state if tentative is None else tentative.get(producer_id, state)

    def apply(
        self,
        header: BatchHeader,
        *,
        seen_ms: int,
        base_offset: Offset | None = None,
        marker: Marker | None = None,
    ) -> None:
        """Take over a batch that was written at an offset, or is replayed with its own. Gaps between them are fine.

        `marker`: what the batch says, where it is one.
        """
        if base_offset is None:
            base_offset = Offset(header.base_offset)
        assert base_offset >= self._end_offset, f"offset {base_offset} applied after {self._end_offset}"
        self._end_offset = Offset(base_offset + header.last_offset_delta + 1)
        if not header.has_producer:
            return
        state = self._producers.pop(header.producer_id, None)
        if state is None or header.producer_epoch >= state.epoch:
            state = _advance(state, header, base_offset, seen_ms, marker)
        self._producers[header.producer_id] = state
        if marker is not None:
            self.transactions.ended(header.producer_id, base_offset, is_commit=marker.is_commit)
        elif header.is_transactional:
            self.transactions.began(header.producer_id, base_offset)
        self._evict()

    def expire(self, now_ms: int, after_ms: int) -> int:
        """Forget producers that were silent for so long, and return how many."""
        silent = [
            producer
            for producer, state in self._producers.items()
            if now_ms - state.seen_ms >= after_ms and state.transaction_offset < 0
        ]
        for producer_id in silent:
            del self._producers[producer_id]
        return len(silent)

    def producers(self) -> Iterator[tuple[int, ProducerState]]:
        """Who is known, the one that was silent longest first."""
        yield from self._producers.items()

    def snapshot(self) -> bytes:
        parts = [_COUNT.pack(len(self._producers))]
        for producer_id, state in self._producers.items():
            epoch, seen_ms, run_count, batches, transaction_offset, coordinator_epoch = state
            parts.append(
                _PRODUCER.pack(
                    producer_id, epoch, seen_ms, run_count, len(batches), transaction_offset, coordinator_epoch
                )
            )
            parts.extend(_BATCH.pack(*batch) for batch in batches)
        aborted = list(self.transactions.aborted())
        parts.append(_COUNT.pack(len(aborted)))
        parts.extend(_ABORTED.pack(*one) for one in aborted)
        return encode_snapshot(FoldState(FOLD_NAME, _STATE_VERSION, self._end_offset, b"".join(parts)))

    @classmethod
    def restore(
        cls, data: Buffer, *, producers_max: int = PRODUCERS_MAX, file: str = "producer snapshot"
    ) -> "ProducerFold":
        """The fold as it was when the snapshot was taken. An error says not to use it: replay the log instead."""
        state = decode_snapshot(data, fold=FOLD_NAME, version_max=_STATE_VERSION, file=file)
        fold = cls(end_offset=state.end_offset, producers_max=producers_max)
        fold._load(bytes(state.payload), state.version)
        fold._evict()
        return fold

    def _load(self, payload: bytes, version: int) -> None:
        (count,) = _COUNT.unpack_from(payload)
        position = _COUNT.size
        form = _PRODUCER_1 if version == 1 else _PRODUCER
        for _ in range(count):
            producer_id, epoch, seen_ms, run_count, batch_count, *transaction = form.unpack_from(payload, position)
            position += form.size
            end = position + batch_count * _BATCH.size
            batches = tuple(map(RememberedBatch._make, _BATCH.iter_unpack(payload[position:end])))
            position = end
            self._producers[producer_id] = ProducerState(epoch, seen_ms, run_count, batches, *transaction)
        aborted: list[Aborted] = []
        if version > 1:
            (count,) = _COUNT.unpack_from(payload, position)
            position += _COUNT.size
            aborted = [Aborted._make(one) for one in _ABORTED.iter_unpack(payload[position:])]
            assert len(aborted) == count
        opened = (
            (producer_id, state.transaction_offset)
            for producer_id, state in self._producers.items()
            if state.transaction_offset >= 0
        )
        self.transactions.load(opened, aborted)

    def _evict(self) -> None:
        """Forget who was silent longest. Whoever has a transaction open stays, since its end must be known."""
        surplus = len(self._producers) - self._producers_max
        if surplus <= 0:
            return
        closed = (producer_id for producer_id, state in self._producers.items() if state.transaction_offset < 0)
        for producer_id in list(islice(closed, surplus)):
            del self._producers[producer_id]


def _judge(state: ProducerState | None, header: BatchHeader) -> Duplicate | None:
    """None for a batch to be written, the first copy for one that was."""
    if header.producer_epoch < 0 or (header.base_sequence < 0 and not header.is_control):
        raise InvalidRecordError(
            f"producer {header.producer_id} sent epoch {header.producer_epoch} and sequence {header.base_sequence}; "
            "a batch with a producer id has both"
        )
    if state is None:
        return None
    if header.producer_epoch < state.epoch:
        raise ProducerFencedError(
            f"producer {header.producer_id} is at epoch {state.epoch}, and this batch is of {header.producer_epoch}; "
            "a newer instance took over"
        )
    if header.is_control:
        return None
    if header.producer_epoch > state.epoch:
        if header.base_sequence != 0:
            raise _out_of_order(header, expected=0)
        return None
    if header.base_sequence == state.next_sequence:
        return None
    for batch in state.batches:
        if batch.first_sequence == header.base_sequence and batch.last_sequence == header.last_sequence:
            return Duplicate(batch.base_offset, batch.last_offset, batch.timestamp_ms)
    # How far before the next sequence it begins. All of it was stored if it begins within the run and ends before it.
    behind_count = (state.next_sequence - header.base_sequence) % SEQUENCE_LIMIT
    if header.last_offset_delta < behind_count <= state.run_count:
        raise DuplicateSequenceError(
            f"producer {header.producer_id} sent sequence {header.base_sequence} again, which was stored before "
            f"the last {BATCHES_REMEMBERED} batches"
        )
    raise _out_of_order(header, expected=state.next_sequence)


def _check_transaction(state: ProducerState | None, header: BatchHeader, *, is_verified: bool) -> None:
    """A batch belongs to the producer's open transaction, opens one that was verified, or to none at all."""
    is_open = state is not None and state.transaction_offset >= 0
    if header.is_transactional:
        if is_verified or (is_open and state is not None and state.epoch == header.producer_epoch):
            return
        raise TransactionStateError(
            f"producer {header.producer_id} has no transaction in this partition; "
            "it ended, or the partition was not added to it: abort and begin anew"
        )
    if is_open and not header.is_control:
        raise TransactionStateError(
            f"producer {header.producer_id} has a transaction open in this partition and sent a batch outside of it"
        )


def _advance(
    state: ProducerState | None, header: BatchHeader, base_offset: Offset, seen_ms: int, marker: Marker | None = None
) -> ProducerState:
    """The state after a batch of the same or a newer epoch, whose sequence is taken as it is."""
    transaction_offset, coordinator_epoch = _NO_OFFSET, -1
    if state is not None:
        transaction_offset, coordinator_epoch = state.transaction_offset, state.coordinator_epoch
        if state.epoch != header.producer_epoch:
            state = None
    if header.is_control:
        # A transaction's marker has no sequence; it may bring a new epoch.
        if marker is not None:
            transaction_offset, coordinator_epoch = _NO_OFFSET, max(marker.coordinator_epoch, coordinator_epoch)
        run_count, batches = (state.run_count, state.batches) if state else (0, ())
        return ProducerState(header.producer_epoch, seen_ms, run_count, batches, transaction_offset, coordinator_epoch)
    count = header.last_offset_delta + 1
    batches = ()
    if state is not None:
        batches = state.batches
        if header.base_sequence == state.next_sequence:
            count = min(count + state.run_count, SEQUENCE_LIMIT // 2)
    remembered = RememberedBatch(
        header.base_sequence,
        header.last_sequence,
        base_offset,
        Offset(base_offset + header.last_offset_delta),
        header.max_timestamp_ms,
    )
    if header.is_transactional and transaction_offset < 0:
        transaction_offset = base_offset
    batches = (*batches[1 - BATCHES_REMEMBERED :], remembered)
    return ProducerState(header.producer_epoch, seen_ms, count, batches, transaction_offset, coordinator_epoch)


def _out_of_order(header: BatchHeader, *, expected: int) -> OutOfOrderSequenceError:
    return OutOfOrderSequenceError(
        f"producer {header.producer_id} sent sequence {header.base_sequence} in epoch {header.producer_epoch}, "
        f"and {expected} comes next; something that it sent before is missing"
    )
