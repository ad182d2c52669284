"""Idempotent producers: a retried send is stored once and answered with its first offset (failure row 27).

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
"""

import struct
from collections.abc import Iterator
from typing import NamedTuple

from headrace.folds.snapshot import FoldState, decode_snapshot, encode_snapshot
from headrace.model.batch import SEQUENCE_LIMIT, BatchHeader
from headrace.model.errors import (
    DuplicateSequenceError,
    InvalidRecordError,
    OutOfOrderSequenceError,
    ProducerFencedError,
)
from headrace.model.ids import Offset

FOLD_NAME = "producer"
BATCHES_REMEMBERED = 5
PRODUCERS_MAX = 10_000  # for each partition; the one that was silent longest is forgotten first

_START = Offset(0)
_STATE_VERSION = 1
_COUNT = struct.Struct(">I")
_PRODUCER = struct.Struct(">qhqIB")
_BATCH = struct.Struct(">iiqqq")


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

    @property
    def end_offset(self) -> Offset:
        """Every batch below it was applied."""
        return self._end_offset

    def __len__(self) -> int:
        return len(self._producers)

    def check(
        self, header: BatchHeader, *, base_offset: Offset, tentative: Tentative | None = None
    ) -> Fresh | Duplicate:
        """Say whether a batch that would be written at an offset is fresh. Raises where it must not be written."""
        if not header.has_producer:
            return FRESH
        state = self._producers.get(header.producer_id)
        if tentative is not None:
            state = tentative.get(header.producer_id, state)
        duplicate = _judge(state, header)
        if duplicate is not None:
            return duplicate
        if tentative is not None:
            tentative[header.producer_id] = _advance(state, header, base_offset, 0)
        return FRESH

    def apply(self, header: BatchHeader, *, seen_ms: int, base_offset: Offset | None = None) -> None:
        """Take over a batch that was written at an offset, or is replayed with its own. Gaps between them are fine."""
        if base_offset is None:
            base_offset = Offset(header.base_offset)
        assert base_offset >= self._end_offset, f"offset {base_offset} applied after {self._end_offset}"
        self._end_offset = Offset(base_offset + header.last_offset_delta + 1)
        if not header.has_producer:
            return
        state = self._producers.pop(header.producer_id, None)
        if state is None or header.producer_epoch >= state.epoch:
            state = _advance(state, header, base_offset, seen_ms)
        self._producers[header.producer_id] = state
        self._evict()

    def expire(self, now_ms: int, after_ms: int) -> int:
        """Forget producers that were silent for so long, and return how many."""
        silent = [producer for producer, state in self._producers.items() if now_ms - state.seen_ms >= after_ms]
        for producer_id in silent:
            del self._producers[producer_id]
        return len(silent)

    def producers(self) -> Iterator[tuple[int, ProducerState]]:
        """Who is known, the one that was silent longest first."""
        yield from self._producers.items()

    def snapshot(self) -> bytes:
        parts = [_COUNT.pack(len(self._producers))]
        for producer_id, state in self._producers.items():
            parts.append(_PRODUCER.pack(producer_id, state.epoch, state.seen_ms, state.run_count, len(state.batches)))
            parts.extend(_BATCH.pack(*batch) for batch in state.batches)
        return encode_snapshot(FoldState(FOLD_NAME, _STATE_VERSION, self._end_offset, b"".join(parts)))

    @classmethod
    def restore(
        cls, data: bytes, *, producers_max: int = PRODUCERS_MAX, file: str = "producer snapshot"
    ) -> "ProducerFold":
        """The fold as it was when the snapshot was taken. An error says not to use it: replay the log instead."""
        state = decode_snapshot(data, fold=FOLD_NAME, version_max=_STATE_VERSION, file=file)
        fold = cls(end_offset=state.end_offset, producers_max=producers_max)
        payload = state.payload
        (count,) = _COUNT.unpack_from(payload)
        position = _COUNT.size
        for _ in range(count):
            producer_id, epoch, seen_ms, run_count, batch_count = _PRODUCER.unpack_from(payload, position)
            position += _PRODUCER.size
            end = position + batch_count * _BATCH.size
            batches = tuple(map(RememberedBatch._make, _BATCH.iter_unpack(payload[position:end])))
            position = end
            fold._producers[producer_id] = ProducerState(epoch, seen_ms, run_count, batches)
        fold._evict()
        return fold

    def _evict(self) -> None:
        while len(self._producers) > self._producers_max:
            del self._producers[next(iter(self._producers))]


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


def _advance(state: ProducerState | None, header: BatchHeader, base_offset: Offset, seen_ms: int) -> ProducerState:
    """The state after a batch of the same or a newer epoch, whose sequence is taken as it is."""
    if state is not None and state.epoch != header.producer_epoch:
        state = None
    if header.is_control:
        # A transaction's marker has no sequence; it may bring a new epoch.
        return ProducerState(header.producer_epoch, seen_ms, *((state.run_count, state.batches) if state else (0, ())))
    count = header.last_offset_delta + 1
    batches: tuple[RememberedBatch, ...] = ()
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
    return ProducerState(header.producer_epoch, seen_ms, count, (*batches[1 - BATCHES_REMEMBERED :], remembered))


def _out_of_order(header: BatchHeader, *, expected: int) -> OutOfOrderSequenceError:
    return OutOfOrderSequenceError(
        f"producer {header.producer_id} sent sequence {header.base_sequence} in epoch {header.producer_epoch}, "
        f"and {expected} comes next; something that it sent before is missing"
    )
