"""Storing a batch's records under another codec. The records, their offsets and their producer stay as they are."""

from struct import Struct

from headrace.model.batch import (
    ATTRIBUTE_CODEC,
    CRC_POSITION,
    CRC_START,
    HEADER_SIZE,
    LENGTH_PREFIX_SIZE,
    BatchHeader,
    Buffer,
)
from headrace.wire.crc import crc32c
from headrace.wire.kafka.compression import Codec, compress, decompress

_LENGTH = Struct(">i")
_LENGTH_POSITION = 8
_ATTRIBUTES = Struct(">h")
_ATTRIBUTES_POSITION = 21
_CRC = Struct(">I")

# Kafka's level 9 of lz4 means the fast compressor; every other level means the thorough one.
_LZ4_FAST_LEVEL = 9


def recompress(header: BatchHeader, batch: Buffer, codec: Codec, level: int) -> bytearray:
    """The batch with its records compressed by a codec, at a level as Kafka's topic settings count them.

    The copy is writable, since the log writes its offset into it. A batch that cannot be decompressed is an error.
    """
    stored = memoryview(batch)[HEADER_SIZE : header.size]
    records = decompress(header.codec, stored) if header.codec else bytes(stored)
    payload = compress(codec, records, level=_own_level(codec, level))
    made = bytearray(memoryview(batch)[:HEADER_SIZE])
    _LENGTH.pack_into(made, _LENGTH_POSITION, HEADER_SIZE - LENGTH_PREFIX_SIZE + len(payload))
    _ATTRIBUTES.pack_into(made, _ATTRIBUTES_POSITION, header.attributes & ~ATTRIBUTE_CODEC | codec)
    made += payload
    _CRC.pack_into(made, CRC_POSITION, crc32c(memoryview(made)[CRC_START:]))
    return made


def _own_level(codec: Codec, level: int) -> int | None:
    """The codec's own number for a level; None for its default."""
    if (codec is Codec.LZ4 and level == _LZ4_FAST_LEVEL) or (codec is Codec.GZIP and level < 0):
        return None
    return level
