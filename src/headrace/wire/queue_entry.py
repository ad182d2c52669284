"""The layout of a queue's control entries: what every one of them says, and which messages it speaks of.

The key of a control record names the kind. Its value:

    subscription   16 bytes   several subscriptions may share a log
    lease clock    int64      the moment of the decision
    wall clock     int64
    the rest by kind: numbers as int64, text in UTF-8, and at the end the offsets, to the end of the value:
    form 0: one int64 for each; form 1: the first and the count of a run without gaps, int64 each

Who decides for a queue reads more of an entry (`headrace.folds.queue.codec`). This is for readers of the log that want
to know what became of messages, and when.
"""

import struct
from enum import IntEnum
from typing import NamedTuple
from uuid import UUID

from headrace.model.errors import CorruptBatchError

Offsets = tuple[int, ...]


class EntryKind(IntEnum):
    LEASED = 100
    EXTENDED = 101
    ACKED = 102
    RELEASED = 103
    REJECTED = 104
    DEAD_LETTERED = 105
    MOVED = 106
    EXPIRED = 107
    DROPPED = 108
    PURGED = 109
    CONFIGURED = 110
    READER_MOVED = 111
    READER_REMOVED = 112
    TICKED = 113
    TXN_ACKED = 114
    TXN_ENDED = 115
    RETURNED = 116
    REPEATED = 117
    FAILED = 118


HEAD = struct.Struct(">16sqq")
NUMBER = struct.Struct(">q")
_RUN = struct.Struct(">Bqq")
_ARRAY = 0
_ONE_RUN = 1

_KINDS = frozenset(EntryKind)
# How many bytes stand between the head and the offsets.
_OFFSETS_AFTER = {
    EntryKind.ACKED: 0,
    EntryKind.RETURNED: 0,
    EntryKind.MOVED: 0,
    EntryKind.DROPPED: 0,
    EntryKind.REPEATED: 0,
    EntryKind.LEASED: NUMBER.size,
    EntryKind.EXTENDED: NUMBER.size,
    EntryKind.RELEASED: NUMBER.size,
    EntryKind.TXN_ACKED: NUMBER.size,
    EntryKind.EXPIRED: 2 * NUMBER.size,
}


class QueueEntry(NamedTuple):
    """What happened, when by the wall, and to which messages; to none where an entry speaks of no single ones."""

    kind: EntryKind
    subscription: UUID
    wall_ms: int
    offsets: Offsets


def read_entry(kind: int, value: bytes) -> QueueEntry | None:
    """None for a kind that is no queue's, or that this version does not know."""
    if kind not in _KINDS:
        return None
    try:
        subscription, _, wall_ms = HEAD.unpack_from(value)
        return QueueEntry(EntryKind(kind), UUID(bytes=subscription), wall_ms, _offsets(EntryKind(kind), value))
    except (struct.error, IndexError, ValueError) as error:
        raise CorruptBatchError(f"a queue's control entry of type {kind} cannot be read: {error}") from error


def _offsets(kind: EntryKind, value: bytes) -> Offsets:
    if kind is EntryKind.REJECTED or kind is EntryKind.FAILED:
        return (NUMBER.unpack_from(value, HEAD.size)[0],)
    if kind is EntryKind.DEAD_LETTERED:
        (reason_size,) = NUMBER.unpack_from(value, HEAD.size)
        return decode_offsets(value[HEAD.size + NUMBER.size + reason_size :])
    after = _OFFSETS_AFTER.get(kind)
    return () if after is None else decode_offsets(value[HEAD.size + after :])


def encode_offsets(offsets: Offsets) -> bytes:
    count = len(offsets)
    if count > 1:
        first = offsets[0]
        if offsets[-1] - first == count - 1 and offsets == tuple(range(first, first + count)):
            return _RUN.pack(_ONE_RUN, first, count)
    return struct.pack(f">B{count}q", _ARRAY, *offsets)


def decode_offsets(data: bytes) -> Offsets:
    if data[0] == _ONE_RUN:
        _, first, count = _RUN.unpack(data)
        return tuple(range(first, first + count))
    if data[0] != _ARRAY:
        raise ValueError(f"offsets of form {data[0]}")
    return struct.unpack(f">{(len(data) - 1) // NUMBER.size}q", data[1:])
