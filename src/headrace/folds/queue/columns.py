"""Numbers by offset as bytes: a column of offsets, eight bytes each, and one of the numbers, in order of offset.

There may be a million, and what is made of them is made in pieces. All of it at once would be a hundred megabytes for
a moment, and much of that for good: the C library keeps what a thread has freed, or what something else lies behind.
"""

import struct
from array import array
from collections.abc import Iterable, Iterator
from itertools import islice
from typing import NamedTuple

from pyroaring import BitMap64

_OFFSET_BYTES = 8
_NUMBER_BYTES = 24  # as many as the largest packed integer needs
_PIECE_COUNT = 4096
_BEGIN = b"\x92"  # how MessagePack begins an array of two
_BYTES_8, _BYTES_16, _BYTES_32 = struct.Struct(">BB"), struct.Struct(">BH"), struct.Struct(">BI")  # and bytes


class Columns(NamedTuple):
    """As they are read back: views of the bytes that they stand in."""

    offsets: memoryview = memoryview(b"")
    numbers: memoryview = memoryview(b"")


def dump_offsets(offsets: Iterable[int]) -> bytes:
    return array("q", offsets).tobytes()


def load_offsets(data: bytes | memoryview) -> list[int]:
    offsets = array("q")
    offsets.frombytes(data)
    return offsets.tolist()


def columns_size(values: dict[int, int]) -> int:
    """How many bytes `dump_columns` makes."""
    return len(_BEGIN) + sum(
        len(_bytes_header(len(values) * size)) + len(values) * size for size in (_OFFSET_BYTES, _NUMBER_BYTES)
    )


def dump_columns(values: dict[int, int]) -> Iterator[bytes]:
    """Both columns as MessagePack has them."""
    offsets = BitMap64()
    places = iter(values)
    while piece := list(islice(places, _PIECE_COUNT)):
        offsets.update(piece)
    yield _BEGIN + _bytes_header(len(values) * _OFFSET_BYTES)
    for piece in _pieces(offsets):
        yield dump_offsets(piece)
    yield _bytes_header(len(values) * _NUMBER_BYTES)
    for piece in _pieces(offsets):
        yield b"".join([values[offset].to_bytes(_NUMBER_BYTES, "big", signed=True) for offset in piece])


def load_columns(columns: Columns) -> dict[int, int]:
    """Neighbours with one number get one object, as they had when they were leased together."""
    values: dict[int, int] = {}
    last, value = b"", 0
    for start in range(0, len(columns.offsets) // _OFFSET_BYTES, _PIECE_COUNT):
        end = start + _PIECE_COUNT
        numbers = bytes(columns.numbers[start * _NUMBER_BYTES : end * _NUMBER_BYTES])
        for index, offset in enumerate(load_offsets(columns.offsets[start * _OFFSET_BYTES : end * _OFFSET_BYTES])):
            number = numbers[index * _NUMBER_BYTES : (index + 1) * _NUMBER_BYTES]
            if number != last:
                last, value = number, int.from_bytes(number, "big", signed=True)
            values[offset] = value
    return values


def _pieces(offsets: BitMap64) -> Iterator[list[int]]:
    left = iter(offsets)
    while piece := list(islice(left, _PIECE_COUNT)):
        yield piece


def _bytes_header(size: int) -> bytes:
    if size < 1 << 8:
        return _BYTES_8.pack(0xC4, size)
    return _BYTES_16.pack(0xC5, size) if size < 1 << 16 else _BYTES_32.pack(0xC6, size)
