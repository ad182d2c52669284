"""The bytes of a queue's entries: the value of a control record, whose key names the kind.

    subscription   16 bytes   several subscriptions may share a log
    lease clock    int64      the moment of the decision
    wall clock     int64
    the rest by kind: numbers as int64, text in UTF-8, and at the end the offsets, to the end of the value:
    form 0: one int64 for each; form 1: the first and the count of a run without gaps, int64 each

A kind that is not known here was written by a newer headrace and is passed over.
"""

import struct
from uuid import UUID

import msgspec

from headrace.folds.queue.instant import Instant
from headrace.folds.queue.op import (
    Acked,
    Configured,
    DeadLettered,
    Dropped,
    Expired,
    ExpiryCause,
    Extended,
    Leased,
    Moved,
    Offsets,
    Op,
    Purged,
    ReaderMoved,
    ReaderRemoved,
    Rejected,
    Released,
    Ticked,
    TxnAcked,
    TxnEnded,
)
from headrace.model.errors import CorruptBatchError
from headrace.model.queue import QueueConfig

KINDS: dict[type[Op], int] = {
    Leased: 100,
    Extended: 101,
    Acked: 102,
    Released: 103,
    Rejected: 104,
    DeadLettered: 105,
    Moved: 106,
    Expired: 107,
    Dropped: 108,
    Purged: 109,
    Configured: 110,
    ReaderMoved: 111,
    ReaderRemoved: 112,
    Ticked: 113,
    TxnAcked: 114,
    TxnEnded: 115,
}
_TYPES = {kind: type_ for type_, kind in KINDS.items()}

_HEAD = struct.Struct(">16sqq")
_NUMBER = struct.Struct(">q")
_RUN = struct.Struct(">Bqq")
_ARRAY = 0
_ONE_RUN = 1
_NO_DELAY = -1


def encode_op(subscription_id: UUID, op: Op) -> tuple[int, bytes]:
    """The control type and the value of an entry."""
    return KINDS[type(op)], _HEAD.pack(subscription_id.bytes, *op.at) + _body(op)


def decode_op(kind: int, value: bytes) -> tuple[UUID, Op] | None:
    """Whose entry it is, and which. None for a kind that this version does not know."""
    if kind not in _TYPES:
        return None
    try:
        subscription, lease_ms, wall_ms = _HEAD.unpack_from(value)
        return UUID(bytes=subscription), _decoded(_TYPES[kind], value[_HEAD.size :], Instant(lease_ms, wall_ms))
    except (struct.error, IndexError, ValueError, msgspec.DecodeError) as error:
        raise CorruptBatchError(f"a queue's control entry of type {kind} cannot be read: {error}") from error


def _body(op: Op) -> bytes:
    match op:
        case Acked() | Moved() | Dropped():
            return _encode_offsets(op.offsets)
        case Leased() | Extended():
            return _NUMBER.pack(op.length_ms) + _encode_offsets(op.offsets)
        case Released():
            return _NUMBER.pack(_NO_DELAY if op.delay_ms is None else op.delay_ms) + _encode_offsets(op.offsets)
        case Rejected():
            return _NUMBER.pack(op.offset) + op.reason.encode()
        case DeadLettered():
            reason = op.reason.encode()
            return _NUMBER.pack(len(reason)) + reason + _encode_offsets(op.offsets)
        case Expired():
            return _NUMBER.pack(op.cause.value) + _NUMBER.pack(op.upto) + _encode_offsets(op.offsets)
        case Purged():
            return _NUMBER.pack(op.upto)
        case Configured():
            return msgspec.json.encode(op.config)
        case ReaderMoved():
            return _NUMBER.pack(op.offset) + op.name.encode()
        case ReaderRemoved():
            return op.name.encode()
        case TxnAcked():
            return _NUMBER.pack(op.producer_id) + _encode_offsets(op.offsets)
        case TxnEnded():
            return _NUMBER.pack(op.producer_id) + _NUMBER.pack(op.is_commit)
        case Ticked():
            return b""


def _decoded(type_: type[Op], body: bytes, at: Instant) -> Op:
    if type_ is Configured:
        return Configured(msgspec.json.decode(body, type=QueueConfig), at)
    if type_ is Ticked:
        return Ticked(at)
    if type_ is ReaderRemoved:
        return ReaderRemoved(body.decode(), at)
    if type_ is Acked or type_ is Moved or type_ is Dropped:
        return type_(_decode_offsets(body), at)
    (number,) = _NUMBER.unpack_from(body)
    rest = body[_NUMBER.size :]
    if type_ is Leased or type_ is Extended:
        return type_(_decode_offsets(rest), number, at)
    if type_ is Released:
        return Released(_decode_offsets(rest), None if number == _NO_DELAY else number, at)
    if type_ is Rejected:
        return Rejected(number, rest.decode(), at)
    if type_ is DeadLettered:
        return DeadLettered(_decode_offsets(rest[number:]), rest[:number].decode(), at)
    if type_ is Expired:
        (upto,) = _NUMBER.unpack_from(rest)
        return Expired(_decode_offsets(rest[_NUMBER.size :]), upto, ExpiryCause(number), at)
    if type_ is Purged:
        return Purged(number, at)
    if type_ is TxnAcked:
        return TxnAcked(number, _decode_offsets(rest), at)
    if type_ is TxnEnded:
        return TxnEnded(number, bool(_NUMBER.unpack(rest)[0]), at)
    assert type_ is ReaderMoved
    return ReaderMoved(rest.decode(), number, at)


def _encode_offsets(offsets: Offsets) -> bytes:
    count = len(offsets)
    if count > 1:
        first = offsets[0]
        if offsets[-1] - first == count - 1 and offsets == tuple(range(first, first + count)):
            return _RUN.pack(_ONE_RUN, first, count)
    return struct.pack(f">B{count}q", _ARRAY, *offsets)


def _decode_offsets(data: bytes) -> Offsets:
    if data[0] == _ONE_RUN:
        _, first, count = _RUN.unpack(data)
        return tuple(range(first, first + count))
    if data[0] != _ARRAY:
        raise ValueError(f"offsets of form {data[0]}")
    return struct.unpack(f">{(len(data) - 1) // _NUMBER.size}q", data[1:])
