"""Groups' entries as control records: the type says which, the value is MessagePack.

A type that is not known here was written by a newer headrace and is passed over.
"""

import msgspec

from headrace.folds.group.op import (
    GroupConfigured,
    GroupDeleted,
    GroupOp,
    GroupStored,
    OffsetsCommitted,
    OffsetsDeleted,
    TxnEnded,
    TxnOffsetsPending,
)
from headrace.model.errors import CorruptBatchError

KINDS: dict[type[GroupOp], int] = {
    GroupStored: 200,
    OffsetsCommitted: 201,
    OffsetsDeleted: 202,
    GroupDeleted: 203,
    TxnOffsetsPending: 204,
    TxnEnded: 205,
    GroupConfigured: 206,
}

_ENCODER = msgspec.msgpack.Encoder(uuid_format="bytes")
_DECODERS: dict[int, msgspec.msgpack.Decoder[GroupOp]] = {
    kind: msgspec.msgpack.Decoder(type_) for type_, kind in KINDS.items()
}


def encode_op(op: GroupOp) -> tuple[int, bytes]:
    """The control type and the value of an entry."""
    return KINDS[type(op)], _ENCODER.encode(op)


def decode_op(kind: int, value: bytes) -> GroupOp | None:
    decoder = _DECODERS.get(kind)
    if decoder is None:
        return None
    try:
        return decoder.decode(value)
    except msgspec.DecodeError as error:
        raise CorruptBatchError(f"a group's control entry of type {kind} cannot be read: {error}") from error
