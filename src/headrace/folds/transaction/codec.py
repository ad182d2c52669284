"""The entries that the coordinator writes to its internal topic, and their bytes (MessagePack).

An entry is the whole of one transactional id, so replay is the last word about each. A kind that is not known here was
written by a newer headrace and is passed over.
"""

import msgspec

from headrace.folds.transaction.transaction import Transaction
from headrace.model.errors import CorruptBatchError

STORED_KIND = 220
FORGOTTEN_KIND = 221


class Stored(msgspec.Struct, frozen=True):
    """What is known of a transactional id from here on."""

    transaction: Transaction


class Forgotten(msgspec.Struct, frozen=True):
    """Nothing is known of it any more."""

    id: str


Op = Stored | Forgotten

ENCODER = msgspec.msgpack.Encoder(uuid_format="bytes")
_TRANSACTION = msgspec.msgpack.Decoder(Transaction)


def encode_op(op: Op) -> tuple[int, bytes]:
    """The control type and the value of an entry."""
    if isinstance(op, Stored):
        return STORED_KIND, ENCODER.encode(op.transaction)
    return FORGOTTEN_KIND, op.id.encode()


def decode_op(kind: int, value: bytes) -> Op | None:
    try:
        if kind == STORED_KIND:
            return Stored(_TRANSACTION.decode(value))
        if kind == FORGOTTEN_KIND:
            return Forgotten(value.decode())
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise CorruptBatchError(f"a transaction's control entry of type {kind} cannot be read: {error}") from error
    return None
