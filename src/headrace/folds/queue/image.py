"""A queue's state as bytes: the same state gives the same bytes, whatever way led to it.

Sets of offsets are written in a form that follows from their members, since the form that they have in memory
tells their history. What follows from the rest is left out: which messages are ready, which of them are visible.

Whoever takes a snapshot lets time pass first, and has appended every decision. A snapshot saves time and nothing
else: one that does not read back is thrown away, and the log is replayed.
"""

from array import array
from collections.abc import Iterable
from uuid import UUID

import msgspec
from pyroaring import BitMap64

from headrace.folds.queue.deadlines import Deadlines
from headrace.folds.queue.fold import QueueFold
from headrace.folds.queue.instant import Instant
from headrace.folds.queue.places import Counts
from headrace.folds.queue.shelf import LaneImage
from headrace.folds.queue.terms import Term
from headrace.folds.queue.transaction import HeldLease, Identified, OpenTransaction
from headrace.folds.snapshot import FoldState, decode_snapshot, encode_snapshot
from headrace.model.errors import CorruptLogError
from headrace.model.queue import QueueConfig

_STATE_VERSION = 4  # 1 had no transactions, 2 no attempts that do not count and no long delays, 3 no terms
_PACKED_BYTES = 24  # as many as the largest packed integer needs
_RUNS_MAX = 65_536  # a set of no more runs is written as their starts and ends
_AS_RUNS = b"r"
_AS_SET = b"s"

_Packed = tuple[bytes, bytes]  # offsets, eight bytes each; a packed integer for each
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
    leases: _Packed
    rests: _Packed
    lives: _Packed
    attempts: _Packed
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
    late_dues: _Packed = (b"", b"")
    terms: list[Term] = []


def fold_name(subscription_id: UUID) -> str:
    """What a subscription's snapshots are called. A deleted queue's are not taken for those of its successor."""
    return f"queue-{subscription_id.hex[:8]}"


def snapshot(fold: QueueFold, name: str) -> bytes:
    image = _Image(
        config=fold.config,
        now=fold.now,
        noted=fold.noted,
        arrived_end=fold.arrived_end,
        counts=fold.counts,
        readers=sorted(fold.readers.items()),
        live=_dump_set(fold.live),
        delayed=_dump_set(fold.delayed),
        lapsed=_dump_set(fold.lapsed),
        overdue=_dump_set(fold.overdue),
        leases=_dump_packed(fold.leases.values),
        rests=_dump_packed(fold.rests.values),
        lives=_dump_packed(fold.lives.values),
        attempts=_dump_packed(fold.attempts),
        rest_runs=fold.rest_runs.dump(),
        life_runs=fold.life_runs.dump(),
        dying=sorted(fold.dying_reasons.items()),
        priorities=[
            (priority, _dump_set(members)) for priority, members in sorted(fold.shelf.others.items()) if members
        ],
        lanes=[(key, turn, _dump_offsets(offsets)) for key, turn, offsets in fold.shelf.lanes()],
        turn=fold.shelf.turn,
        deduplication=list(fold.deduplication.dump()),
        moves=list(fold.moves.dump()),
        undecided=_dump_set(fold.undecided),
        transactions=[
            (producer_id, _dump_set(one.offsets), list(one.identified.values()))
            for producer_id, one in sorted(fold.transactions.items())
        ],
        held=[
            (offset, held.producer_id, held.lease.to_bytes(_PACKED_BYTES, "big", signed=True))
            for offset, held in sorted(fold.held.items())
        ],
        unused=sorted(fold.unused.items()),
        late_dues=_dump_packed(fold.late_dues.values),
        terms=fold.terms.dump(),
    )
    payload = msgspec.msgpack.encode(image)
    return encode_snapshot(FoldState(name, _STATE_VERSION, fold.end_offset, payload))


def restore(data: bytes, *, name: str, file: str = "queue snapshot") -> QueueFold:
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
    _load(fold.leases, image.leases)
    _load(fold.rests, image.rests)
    _load(fold.lives, image.lives)
    fold.attempts = _load_packed(image.attempts)
    fold.unused = dict(image.unused)
    fold.terms.load(image.terms)
    _load(fold.late_dues, image.late_dues)
    fold.late.update(fold.late_dues.values)
    fold.rest_runs.load(image.rest_runs)
    fold.life_runs.load(image.life_runs)
    fold.dying_reasons = dict(image.dying)
    _load_transactions(fold, image)
    for remembered, ids in ((fold.deduplication, image.deduplication), (fold.moves, image.moves)):
        for id_, offset, until_ms in ids:
            remembered.add(id_, offset, until_ms)
    others = {priority: BitMap64() for priority, _ in image.priorities}
    for priority, members in image.priorities:
        _load_set(others[priority], members)
    fold.shelf.load(
        [LaneImage(key, turn, _load_offsets(offsets)) for key, turn, offsets in image.lanes],
        fold.ready_offsets(),
        others,
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
    bounds = _load_offsets(data[1:])
    half = len(bounds) // 2
    for start, end in zip(bounds[:half], bounds[half:], strict=True):
        offsets.add_range(start, end)


def _dump_offsets(offsets: Iterable[int]) -> bytes:
    return array("q", offsets).tobytes()


def _load_offsets(data: bytes) -> list[int]:
    offsets = array("q")
    offsets.frombytes(data)
    return offsets.tolist()


def _dump_packed(values: dict[int, int]) -> _Packed:
    offsets = sorted(values)
    return _dump_offsets(offsets), b"".join(
        [values[offset].to_bytes(_PACKED_BYTES, "big", signed=True) for offset in offsets]
    )


def _load_packed(dumped: _Packed) -> dict[int, int]:
    offsets, numbers = dumped
    return {
        offset: int.from_bytes(numbers[index * _PACKED_BYTES : (index + 1) * _PACKED_BYTES], "big", signed=True)
        for index, offset in enumerate(_load_offsets(offsets))
    }


def _load(deadlines: Deadlines, dumped: _Packed) -> None:
    deadlines.load(_load_packed(dumped))
