"""A queue's state as bytes: the same state gives the same bytes, whatever way led to it.

Sets of offsets are written in a form that follows from their members, since the form that they have in memory
tells their history. What follows from the rest is left out: which messages are ready, which of them are visible.

Whoever takes a snapshot lets time pass first, and has appended every decision. A snapshot saves time and nothing
else: one that does not read back is thrown away, and the log is replayed.
"""

import struct
from collections.abc import Callable, Iterator, Mapping
from uuid import UUID

import msgspec
from pyroaring import BitMap64

from headrace.folds.queue.columns import (
    Columns,
    columns_size,
    dump_columns,
    dump_offsets,
    load_columns,
    load_offsets,
)
from headrace.folds.queue.fold import QueueFold
from headrace.folds.queue.instant import Instant
from headrace.folds.queue.lately import Note
from headrace.folds.queue.places import Counts
from headrace.folds.queue.shelf import LaneImage
from headrace.folds.queue.terms import Term
from headrace.folds.queue.transaction import HeldLease, Identified, OpenTransaction
from headrace.folds.snapshot import Piece, decode_snapshot, encode_in_pieces, joined
from headrace.model.batch import Buffer
from headrace.model.errors import CorruptLogError
from headrace.model.ids import Offset
from headrace.model.queue import QueueConfig

# 1 had no transactions, 2 no attempts that do not count and no long delays, 3 no notes and no terms, 4 no marks, and of
# ordered queues no turns: those messages that were tried stand behind all others then, and keys where their fronts do.
_STATE_VERSION = 5
_LEASE_BYTES = 24
_RUNS_MAX = 65_536  # a set of no more runs is written as their starts and ends
_PIECE_COUNT = 65_535  # a longer list is encoded one by one
_ARRAY_16 = struct.Struct(">BH")  # how MessagePack begins an array
_ARRAY_32 = struct.Struct(">BI")
_AS_RUNS = b"r"
_AS_SET = b"s"

_Ids = list[tuple[bytes, int, int]]


class _Image(msgspec.Struct, frozen=True, array_like=True):
    config: QueueConfig
    now: Instant
    noted: Instant
    arrived_end: int
    counts: Counts
    readers: list[tuple[str, int]]
    live: bytes
    delayed: bytes
    lapsed: bytes
    overdue: bytes
    leases: Columns
    rests: Columns
    lives: Columns
    attempts: Columns
    rest_runs: list[tuple[int, int, int]]
    life_runs: list[tuple[int, int, int]]
    dying: list[tuple[int, str]]
    priorities: list[tuple[int, bytes]]
    lanes: list[tuple[bytes, int, bytes]]
    turn: int
    deduplication: _Ids
    moves: _Ids
    undecided: bytes = b"r"
    transactions: list[tuple[int, bytes, list[Identified]]] = []  # producer id, its offsets, those with ids
    held: list[tuple[int, int, bytes]] = []  # offset, producer id, lease
    unused: list[tuple[int, int]] = []  # offset, attempts that do not count
    late_dues: Columns = Columns()
    notes: list[tuple[int, int, bytes, int]] = []  # moment, end, what was live, the last entry's moment
    terms: list[Term] = []
    marks: list[tuple[int, int]] = []  # moment of a delivery, and where the messages ended then
    errors: list[tuple[int, str]] = []  # of dying messages, what their last attempt failed with


def fold_name(subscription_id: UUID) -> str:
    """What a subscription's snapshots are called. A deleted queue's are not taken for those of its successor."""
    return f"queue-{subscription_id.hex[:8]}"


def snapshot(fold: QueueFold, name: str) -> bytes:
    return joined(freeze(fold, name)())


def freeze(fold: QueueFold, name: str) -> Callable[[], Iterator[Piece]]:
    """Take the state down as it is now. What is returned makes its bytes, in any thread and while the fold goes on.

    A hundred thousand keys or leases are copied in some ten milliseconds; to make bytes of them takes many times as
    long, in which others are to be served.
    """
    config, end_offset, now, noted, arrived_end = fold.config, fold.end_offset, fold.now, fold.noted, fold.arrived_end
    counts, readers = msgspec.structs.replace(fold.counts), fold.readers.copy()
    live, delayed, lapsed = fold.live.copy(), fold.delayed.copy(), fold.lapsed.copy()
    overdue, undecided = fold.overdue.copy(), fold.undecided.copy()
    numbers = {
        "leases": fold.leases.values.copy(),
        "rests": fold.rests.values.copy(),
        "lives": fold.lives.values.copy(),
        "attempts": fold.attempts.copy(),
        "late_dues": fold.late_dues.values.copy(),
    }
    unused = fold.unused.copy()
    rest_runs, life_runs = fold.rest_runs.dump(), fold.life_runs.dump()
    dying, held = fold.dying_reasons.copy(), fold.held.copy()
    shelf, notes, terms = fold.shelf.freeze(), list(fold.lately.notes), fold.terms.dump()
    marks, errors = fold.marks.dump(), fold.errors.copy()
    deduplication, moves = fold.deduplication.freeze(), fold.moves.freeze()
    transactions = [
        (producer_id, one.offsets.copy(), list(one.identified.values()))
        for producer_id, one in sorted(fold.transactions.items())
    ]

    def encode() -> Iterator[Piece]:
        image = _Image(
            config=config,
            now=now,
            noted=noted,
            arrived_end=arrived_end,
            counts=counts,
            readers=sorted(readers.items()),
            live=_dump_set(live),
            delayed=_dump_set(delayed),
            lapsed=_dump_set(lapsed),
            overdue=_dump_set(overdue),
            leases=Columns(),
            rests=Columns(),
            lives=Columns(),
            attempts=Columns(),
            rest_runs=rest_runs,
            life_runs=life_runs,
            dying=sorted(dying.items()),
            priorities=[(one, _dump_set(members)) for one, members in sorted(shelf.others.items()) if members],
            lanes=[(key, turn, dump_offsets(offsets)) for key, turn, offsets in shelf.lanes()],
            turn=shelf.turn,
            deduplication=deduplication(),
            moves=moves(),
            undecided=_dump_set(undecided),
            transactions=[(id_, _dump_set(offsets), identified) for id_, offsets, identified in transactions],
            held=[
                (offset, one.producer_id, one.lease.to_bytes(_LEASE_BYTES, "big", signed=True))
                for offset, one in sorted(held.items())
            ],
            unused=sorted(unused.items()),
            notes=[(at_ms, end, _dump_set(noted_live), last_ms) for at_ms, end, noted_live, last_ms in notes],
            terms=terms,
            marks=marks,
            errors=sorted(errors.items()),
        )
        yield from _encode(image, numbers, name, end_offset)

    return encode


def _encode(image: _Image, numbers: Mapping[str, dict[int, int]], name: str, end_offset: Offset) -> Iterator[Piece]:
    """As msgspec encodes it at once, but piece by piece: other threads have their turns in between.

    `numbers` are fields that are written as columns.
    """
    names = image.__struct_fields__
    small = {field: _encode_field(getattr(image, field)) for field in names if field not in numbers}
    start = _ARRAY_16.pack(0xDC, len(names))

    def payload() -> Iterator[bytes]:
        yield start
        for field in names:
            if field in small:
                yield small[field]
            else:
                yield from dump_columns(numbers[field])

    size_bytes = len(start) + sum(map(len, small.values())) + sum(map(columns_size, numbers.values()))
    yield from encode_in_pieces(name, _STATE_VERSION, end_offset, size_bytes, payload())


def _encode_field(value: object) -> bytes:
    if not isinstance(value, list) or len(value) <= _PIECE_COUNT:
        return msgspec.msgpack.encode(value)
    return b"".join([_ARRAY_32.pack(0xDD, len(value)), *(msgspec.msgpack.encode(one) for one in value)])


def restore(data: Buffer, *, name: str, file: str = "queue snapshot") -> QueueFold:
    """The fold as it was when the snapshot was taken. An error says not to use it: replay the log instead."""
    state = decode_snapshot(data, fold=name, version_max=_STATE_VERSION, file=file)
    try:
        image = msgspec.msgpack.decode(state.payload, type=_Image)
    except msgspec.DecodeError as error:
        raise CorruptLogError(file=file, position=0, expected="a queue's state", found=error, what="content") from error
    fold = QueueFold(image.config, end_offset=state.end_offset)
    fold.now, fold.noted, fold.arrived_end, fold.counts = image.now, image.noted, image.arrived_end, image.counts
    fold.readers = dict(image.readers)
    _load_set(fold.live, image.live)
    _load_set(fold.delayed, image.delayed)
    _load_set(fold.lapsed, image.lapsed)
    _load_set(fold.overdue, image.overdue)
    fold.leases.load(load_columns(image.leases))
    fold.rests.load(load_columns(image.rests))
    fold.lives.load(load_columns(image.lives))
    fold.attempts = load_columns(image.attempts)
    fold.unused = dict(image.unused)
    fold.terms.load(image.terms)
    fold.late_dues.load(load_columns(image.late_dues))
    fold.late.update(fold.late_dues.values)
    fold.rest_runs.load(image.rest_runs)
    fold.life_runs.load(image.life_runs)
    fold.dying_reasons, fold.errors = dict(image.dying), dict(image.errors)
    _load_transactions(fold, image)
    fold.lately.load(Note(at_ms, end, _made_set(live), last_ms) for at_ms, end, live, last_ms in image.notes)
    for remembered, ids in ((fold.deduplication, image.deduplication), (fold.moves, image.moves)):
        for id_, offset, until_ms in ids:
            remembered.add(id_, offset, until_ms)
    marks = image.marks
    if not marks and (fold.attempts or fold.leases or fold.held):
        marks = [(image.noted.wall_ms, image.arrived_end)]
    fold.marks.load(marks)
    others = {priority: BitMap64() for priority, _ in image.priorities}
    for priority, members in image.priorities:
        _load_set(others[priority], members)
    fold.shelf.load(
        [LaneImage(key, turn, load_offsets(offsets)) for key, turn, offsets in image.lanes],
        fold.ready_offsets(),
        others,
        fold.tried_offsets(),
    )
    fold.shelf.turn = image.turn
    return fold


def _load_transactions(fold: QueueFold, image: _Image) -> None:
    _load_set(fold.undecided, image.undecided)
    for producer_id, offsets, identified in image.transactions:
        transaction = fold.transactions[producer_id] = OpenTransaction()
        _load_set(transaction.offsets, offsets)
        transaction.identified = {one.offset: one for one in identified}
    fold.held = {
        offset: HeldLease(producer_id, int.from_bytes(lease, "big", signed=True))
        for offset, producer_id, lease in image.held
    }


def _dump_set(offsets: BitMap64) -> bytes:
    following = offsets.shift(1)
    starts = offsets - following
    if len(starts) <= _RUNS_MAX:
        return _AS_RUNS + starts.to_array().tobytes() + (following - offsets).to_array().tobytes()
    # Made anew from its members, since a set's form is otherwise its history: of two forms of one size it keeps the
    # one that it has.
    fresh = BitMap64(offsets.to_array())
    fresh.run_optimize()
    return _AS_SET + fresh.serialize()


def _load_set(offsets: BitMap64, data: bytes) -> None:
    """Add to a set what was written of one."""
    if data[:1] == _AS_SET:
        offsets |= BitMap64.deserialize(data[1:])
        return
    bounds = load_offsets(data[1:])
    half = len(bounds) // 2
    for start, end in zip(bounds[:half], bounds[half:], strict=True):
        offsets.add_range(start, end)


def _made_set(data: bytes) -> BitMap64:
    offsets = BitMap64()
    _load_set(offsets, data)
    return offsets
