"""The compression codecs of record batches, by their numbers in a batch's attributes.

Compressing is for what headrace builds itself: batches of clients are stored as they came. Decompressing is bounded,
because forty bytes from a stranger can mean forty gigabytes: the output never takes more than the caller allows, in
bytes and in proportion to the input.
"""

import struct
from collections.abc import Iterator
from enum import IntEnum

import cramjam

from headrace.model.batch import Buffer
from headrace.model.errors import BatchTooLargeError, CorruptBatchError, UnsupportedCodecError

OUTPUT_BYTES_MAX = 64 << 20
RATIO_MAX = 4096

# Zeros compress 26,000 times with zstd, and a client may well send some megabytes of them.
_RATIO_FREE_BYTES = 8 << 20

_OUTPUT_BYTES_FIRST = 64 << 10
_OUTPUT_GROWTH = 4

# Snappy in the framing of the xerial library, which Java, librdkafka and kafka-python write and expect.
_XERIAL_MAGIC = b"\x82SNAPPY\x00"
_XERIAL_HEADER = _XERIAL_MAGIC + struct.pack(">ii", 1, 1)
_XERIAL_BLOCK_BYTES = 32 << 10
_BLOCK_SIZE = struct.Struct(">i")

# The fast one, as other clients have it: that of the library takes twenty times as long for a few percent.
_LZ4_LEVEL = 0


class Codec(IntEnum):
    NONE = 0
    GZIP = 1
    SNAPPY = 2
    LZ4 = 3
    ZSTD = 4


def compress(codec: int, data: bytes, *, level: int | None = None) -> bytes:
    """With a level of the codec's own, where it has some; None: the usual one."""
    match codec:
        case Codec.NONE:
            return data
        case Codec.GZIP:
            return bytes(cramjam.gzip.compress(data, level=level))
        case Codec.SNAPPY:
            return b"".join((_XERIAL_HEADER, *_xerial_blocks(data)))
        case Codec.LZ4:
            # The Java client reads frames of independent blocks only.
            compressor = cramjam.lz4.Compressor(
                level=_LZ4_LEVEL if level is None else level, content_checksum=False, block_linked=False
            )
            compressor.compress(data)
            return bytes(compressor.finish())
        case Codec.ZSTD:
            return bytes(cramjam.zstd.compress(data, level=level))
    raise _unsupported(codec)


def _xerial_blocks(data: bytes) -> Iterator[bytes]:
    view = memoryview(data)
    for start in range(0, len(data), _XERIAL_BLOCK_BYTES):
        block = bytes(cramjam.snappy.compress_raw(view[start : start + _XERIAL_BLOCK_BYTES]))
        yield _BLOCK_SIZE.pack(len(block))
        yield block


def output_limit(size: int, *, output_bytes_max: int = OUTPUT_BYTES_MAX, ratio_max: int = RATIO_MAX) -> int:
    """How much so many compressed bytes may become. Who compresses more strongly writes what is not read again."""
    return min(output_bytes_max, max(size * ratio_max, _RATIO_FREE_BYTES))


def decompress(
    codec: int, data: Buffer, *, output_bytes_max: int = OUTPUT_BYTES_MAX, ratio_max: int = RATIO_MAX
) -> bytes:
    """The data in full, or BatchTooLargeError if it would exceed a bound, or CorruptBatchError."""
    limit = output_limit(len(data), output_bytes_max=output_bytes_max, ratio_max=ratio_max)
    match codec:
        case Codec.NONE:
            if len(data) > output_bytes_max:
                raise _too_large(len(data), output_bytes_max)
            return bytes(data)
        case Codec.GZIP:
            return _decompress_within(cramjam.gzip, data, limit)
        case Codec.SNAPPY:
            return _decompress_snappy(data, limit)
        case Codec.LZ4:
            return _decompress_within(cramjam.lz4, data, limit)
        case Codec.ZSTD:
            return _decompress_within(cramjam.zstd, data, limit)
    raise _unsupported(codec)


def _decompress_within(library: object, data: Buffer, limit: int) -> bytes:
    """Decompress into a buffer that grows up to the limit: none of the codecs says how much will come out."""
    size = min(limit, max(_OUTPUT_BYTES_FIRST, len(data) * _OUTPUT_GROWTH))
    while True:
        output = bytearray(size)
        try:
            written: int = library.decompress_into(data, output)  # type: ignore[attr-defined]
        except cramjam.DecompressionError as error:
            if "write whole buffer" not in str(error):
                raise CorruptBatchError(f"compressed records cannot be read: {error}") from None
            if size >= limit:
                raise _too_large(len(data), limit) from None
            size = min(limit, size * _OUTPUT_GROWTH)
        else:
            return bytes(memoryview(output)[:written])


def _decompress_snappy(data: Buffer, limit: int) -> bytes:
    """Blocks in the xerial framing, or one raw block, which some clients send."""
    view = memoryview(data)
    if view[: len(_XERIAL_MAGIC)] != _XERIAL_MAGIC:
        return _snappy_block(view, limit)
    blocks = []
    at = len(_XERIAL_HEADER)
    while at < len(view):
        if len(view) - at < _BLOCK_SIZE.size:
            raise CorruptBatchError(f"snappy block header at byte {at} is cut off")
        (size,) = _BLOCK_SIZE.unpack_from(view, at)
        at += _BLOCK_SIZE.size
        if not 0 <= size <= len(view) - at:
            raise CorruptBatchError(f"snappy block of {size} bytes at byte {at}, where {len(view) - at} remain")
        block = _snappy_block(view[at : at + size], limit)
        limit -= len(block)
        blocks.append(block)
        at += size
    return b"".join(blocks)


def _snappy_block(block: memoryview, limit: int) -> bytes:
    try:
        size: int = cramjam.snappy.decompress_raw_len(block)
        if size > limit:
            raise _too_large(len(block), limit)
        return bytes(cramjam.snappy.decompress_raw(block))
    except cramjam.DecompressionError as error:
        raise CorruptBatchError(f"compressed records cannot be read: {error}") from None


def _too_large(size: int, limit: int) -> BatchTooLargeError:
    return BatchTooLargeError(f"{size} bytes of records decompress to more than {limit} bytes; send smaller batches")


def _unsupported(codec: int) -> UnsupportedCodecError:
    return UnsupportedCodecError(f"compression codec {codec} does not exist; use none, gzip, snappy, lz4 or zstd")
