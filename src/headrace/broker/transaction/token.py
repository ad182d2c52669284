"""How callers over HTTP name their transaction: signed, so that nobody can end somebody else's by guessing.

    version 1 byte | slot 4 bytes | producer id 8 bytes | epoch 2 bytes | signature 15 bytes, keyed BLAKE2b

30 bytes are 40 characters of base64, safe in a path.
"""

from base64 import urlsafe_b64decode, urlsafe_b64encode
from binascii import Error as Base64Error
from hashlib import blake2b
from hmac import compare_digest
from struct import Struct
from typing import NamedTuple

from headrace.folds.transaction.fold import Producer
from headrace.model.errors import UnknownTransactionError

# Transactional ids of transactions over HTTP. Kafka clients do not get them.
RESERVED_PREFIX = "__headrace-http-"

_VERSION = 1
_FIELDS = Struct(">BIqh")
_SIGNATURE_SIZE = 15
_SIZE = _FIELDS.size + _SIGNATURE_SIZE


class Token(NamedTuple):
    slot: int
    producer_id: int
    epoch: int

    @property
    def producer(self) -> Producer:
        return Producer(slot_id(self.slot), self.producer_id, self.epoch)


def slot_id(slot: int) -> str:
    return f"{RESERVED_PREFIX}{slot}"


class TokenSigner:
    def __init__(self, key: bytes) -> None:
        self._hash = blake2b(key=key, digest_size=_SIGNATURE_SIZE, person=b"transaction")

    def sign(self, token: Token) -> str:
        fields = _FIELDS.pack(_VERSION, *token)
        return urlsafe_b64encode(fields + self._signature(fields)).decode()

    def read(self, text: str) -> Token:
        """UnknownTransactionError for anything that was not signed here."""
        try:
            data = urlsafe_b64decode(text)
        except (Base64Error, ValueError):
            data = b""
        fields = data[: _FIELDS.size]
        if len(data) != _SIZE or not compare_digest(self._signature(fields), data[_FIELDS.size :]):
            raise UnknownTransactionError("no transaction has this id; pass back the whole id that begin answered")
        return Token(*_FIELDS.unpack(fields)[1:])

    def _signature(self, fields: bytes) -> bytes:
        signature = self._hash.copy()
        signature.update(fields)
        return signature.digest()
