"""A queue's entries as control records, whose keys name the kind. `headrace.wire.queue_entry` has the layout.

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
    Failed,
    Leased,
    Moved,
    Op,
    Purged,
    ReaderMoved,
    ReaderRemoved,
    Rejected,
    Released,
    Repeated,
    Returned,
    Ticked,
    TxnAcked,
    TxnEnded,
)
from headrace.model.errors import CorruptBatchError
from headrace.model.queue import QueueConfig
from headrace.wire.queue_entry import HEAD, NUMBER, EntryKind, decode_offsets, encode_offsets

KINDS: dict[type[Op], int] = {
    Leased: EntryKind.LEASED,
    Extended: EntryKind.EXTENDED,
    Acked: EntryKind.ACKED,
    Released: EntryKind.RELEASED,
    Failed: EntryKind.FAILED,
    Returned: EntryKind.RETURNED,
    Rejected: EntryKind.REJECTED,
    DeadLettered: EntryKind.DEAD_LETTERED,
    Moved: EntryKind.MOVED,
    Expired: EntryKind.EXPIRED,
    Dropped: EntryKind.DROPPED,
    Repeated: EntryKind.REPEATED,
    Purged: EntryKind.PURGED,
    Configured: EntryKind.CONFIGURED,
    ReaderMoved: EntryKind.READER_MOVED,
    ReaderRemoved: EntryKind.READER_REMOVED,
    Ticked: EntryKind.TICKED,
    TxnAcked: EntryKind.TXN_ACKED,
    TxnEnded: EntryKind.TXN_ENDED,
}
_TYPES = {kind: type_ for type_, kind in KINDS.items()}

_NO_DELAY = -1


def encode_op(subscription_id: UUID, op: Op) -> tuple[int, bytes]:
    """The control type and the value of an entry."""
    return KINDS[type(op)], HEAD.pack(subscription_id.bytes, *op.at) + _body(op)


def decode_op(kind: int, value: bytes) -> tuple[UUID, Op] | None:
    """Whose entry it is, and which. None for a kind that this version does not know."""
    if kind not in _TYPES:
        return None
    try:
        subscription, lease_ms, wall_ms = HEAD.unpack_from(value)
        return UUID(bytes=subscription), _decoded(_TYPES[kind], value[HEAD.size :], Instant(lease_ms, wall_ms))
    except (struct.error, IndexError, ValueError, msgspec.DecodeError) as error:
        raise CorruptBatchError(f"a queue's control entry of type {kind} cannot be read: {error}") from error


def _body(op: Op) -> bytes:
    match op:
        case Acked() | Returned() | Moved() | Dropped() | Repeated():
            return encode_offsets(op.offsets)
        case Leased() | Extended():
            return NUMBER.pack(op.length_ms) + encode_offsets(op.offsets)
        case Released():
            return NUMBER.pack(_NO_DELAY if op.delay_ms is None else op.delay_ms) + encode_offsets(op.offsets)
        case Failed():
            delay_ms = _NO_DELAY if op.delay_ms is None else op.delay_ms
            return NUMBER.pack(op.offset) + NUMBER.pack(delay_ms) + op.error.encode()
        case Rejected():
            return NUMBER.pack(op.offset) + op.reason.encode()
        case DeadLettered():
            reason = op.reason.encode()
            return NUMBER.pack(len(reason)) + reason + encode_offsets(op.offsets)
        case Expired():
            return NUMBER.pack(op.cause.value) + NUMBER.pack(op.upto) + encode_offsets(op.offsets)
        case Purged():
            return NUMBER.pack(op.upto)
        case Configured():
            return msgspec.json.encode(op.config)
        case ReaderMoved():
            return NUMBER.pack(op.offset) + op.name.encode()
        case ReaderRemoved():
            return op.name.encode()
        case TxnAcked():
            return NUMBER.pack(op.producer_id) + encode_offsets(op.offsets)
        case TxnEnded():
            return NUMBER.pack(op.producer_id) + NUMBER.pack(op.is_commit)
        case Ticked():
            return b""


def _decoded(type_: type[Op], body: bytes, at: Instant) -> Op:
    if type_ is Configured:
        return Configured(msgspec.json.decode(body, type=QueueConfig), at)
    if type_ is Ticked:
        return Ticked(at)
    if type_ is ReaderRemoved:
        return ReaderRemoved(body.decode(), at)
    if type_ is Acked or type_ is Returned or type_ is Moved or type_ is Dropped or type_ is Repeated:
        return type_(decode_offsets(body), at)
    (number,) = NUMBER.unpack_from(body)
    rest = body[NUMBER.size :]
    if type_ is Leased or type_ is Extended:
        return type_(decode_offsets(rest), number, at)
    if type_ is Released:
        return Released(decode_offsets(rest), None if number == _NO_DELAY else number, at)
    if type_ is Failed:
        (delay_ms,) = NUMBER.unpack_from(rest)
        return Failed(number, None if delay_ms == _NO_DELAY else delay_ms, rest[NUMBER.size :].decode(), at)
    if type_ is Rejected:
        return Rejected(number, rest.decode(), at)
    if type_ is DeadLettered:
        return DeadLettered(decode_offsets(rest[number:]), rest[:number].decode(), at)
    if type_ is Expired:
        (upto,) = NUMBER.unpack_from(rest)
        return Expired(decode_offsets(rest[NUMBER.size :]), upto, ExpiryCause(number), at)
    if type_ is Purged:
        return Purged(number, at)
    if type_ is TxnAcked:
        return TxnAcked(number, decode_offsets(rest), at)
    if type_ is TxnEnded:
        return TxnEnded(number, bool(NUMBER.unpack(rest)[0]), at)
    assert type_ is ReaderMoved
    return ReaderMoved(rest.decode(), number, at)
