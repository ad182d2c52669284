"""Making a batch that was built without a producer one of a producer's, or of a producer's transaction."""

from struct import Struct

from headrace.model.batch import ATTRIBUTE_TRANSACTIONAL, CRC_POSITION, CRC_START
from headrace.model.ids import NO_PRODUCER_ID
from headrace.wire.crc import crc32c

_ATTRIBUTES = Struct(">h")
_ATTRIBUTES_POSITION = 21
_PRODUCER = Struct(">qhi")
_PRODUCER_POSITION = 43
_CRC = Struct(">I")


def stamp(
    batch: bytearray,
    *,
    producer_id: int = NO_PRODUCER_ID,
    epoch: int = -1,
    base_sequence: int = -1,
    is_transactional: bool = False,
) -> None:
    """Write whose batch it is. All of this is under the CRC, which is made anew."""
    (attributes,) = _ATTRIBUTES.unpack_from(batch, _ATTRIBUTES_POSITION)
    attributes = attributes | ATTRIBUTE_TRANSACTIONAL if is_transactional else attributes & ~ATTRIBUTE_TRANSACTIONAL
    _ATTRIBUTES.pack_into(batch, _ATTRIBUTES_POSITION, attributes)
    _PRODUCER.pack_into(batch, _PRODUCER_POSITION, producer_id, epoch, base_sequence)
    _CRC.pack_into(batch, CRC_POSITION, crc32c(memoryview(batch)[CRC_START:]))


def stamp_transactional(batch: bytearray, *, producer_id: int, epoch: int, sequence: int) -> None:
    stamp(batch, producer_id=producer_id, epoch=epoch, base_sequence=sequence, is_transactional=True)
