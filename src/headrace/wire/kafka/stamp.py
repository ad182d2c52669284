"""Making a batch that was built without a producer one of a producer's transaction."""

from struct import Struct

from headrace.model.batch import ATTRIBUTE_TRANSACTIONAL, CRC_POSITION, CRC_START
from headrace.wire.crc import crc32c

_ATTRIBUTES = Struct(">h")
_ATTRIBUTES_POSITION = 21
_PRODUCER = Struct(">qhi")
_PRODUCER_POSITION = 43
_CRC = Struct(">I")


def stamp_transactional(batch: bytearray, *, producer_id: int, epoch: int, sequence: int) -> None:
    """All of these are under the CRC, which is made anew."""
    (attributes,) = _ATTRIBUTES.unpack_from(batch, _ATTRIBUTES_POSITION)
    _ATTRIBUTES.pack_into(batch, _ATTRIBUTES_POSITION, attributes | ATTRIBUTE_TRANSACTIONAL)
    _PRODUCER.pack_into(batch, _PRODUCER_POSITION, producer_id, epoch, sequence)
    _CRC.pack_into(batch, CRC_POSITION, crc32c(memoryview(batch)[CRC_START:]))
