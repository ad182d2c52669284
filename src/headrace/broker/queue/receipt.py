"""Receipts: the signed proof of one lease.

    version   1 byte
    partition 2 bytes
    offset    8 bytes
    attempt   2 bytes
    epoch     4 bytes  the leader epoch in which the lease was taken
    signature 13 bytes keyed BLAKE2b over the above and the queue's id

30 bytes are 40 characters of base64 without padding. A receipt says where it belongs, so any gateway can route it, and
cannot be forged, changed or used with another queue. Whether its lease is still held is the fold's to say.
"""

from base64 import urlsafe_b64decode, urlsafe_b64encode
from binascii import Error as Base64Error
from hashlib import blake2b
from hmac import compare_digest
from struct import Struct
from typing import NamedTuple
from uuid import UUID

from headrace.model.errors import InvalidReceiptError

_VERSION = 1
_FIELDS = Struct(">BHqHi")
_SIGNATURE_SIZE = 13
_SIZE = _FIELDS.size + _SIGNATURE_SIZE
_TEXT_LENGTH = _SIZE * 4 // 3


class Receipt(NamedTuple):
    partition: int
    offset: int
    attempt: int
    epoch: int


class Signer:
    """Writes and reads the receipts of one queue."""

    def __init__(self, key: bytes, queue_id: UUID) -> None:
        # The state after the queue's id is copied for each receipt, which is cheaper than to begin anew.
        self._hash = blake2b(queue_id.bytes, key=key, digest_size=_SIGNATURE_SIZE)

    def sign(self, partition: int, offset: int, attempt: int, epoch: int) -> str:
        fields = _FIELDS.pack(_VERSION, partition, offset, attempt, epoch)
        signature = self._hash.copy()
        signature.update(fields)
        return urlsafe_b64encode(fields + signature.digest()).decode()

    def read(self, text: str) -> Receipt:
        """InvalidReceiptError for anything that was not signed for this queue."""
        try:
            data = urlsafe_b64decode(text) if len(text) == _TEXT_LENGTH else b""
        except (Base64Error, ValueError):
            data = b""
        if len(data) == _SIZE:
            fields = data[: _FIELDS.size]
            signature = self._hash.copy()
            signature.update(fields)
            if compare_digest(signature.digest(), data[_FIELDS.size :]):
                _, partition, offset, attempt, epoch = _FIELDS.unpack(fields)
                return Receipt(partition, offset, attempt, epoch)
        raise InvalidReceiptError(
            "this receipt was not given out for this queue; pass back the whole receipt of the last receive"
        )
