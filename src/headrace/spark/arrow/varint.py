"""Zigzag varints of many records at once, read and written with numpy."""

from typing import Any

import numpy as np
import numpy.typing as npt

from headrace.model.errors import CorruptBatchError

Bytes = npt.NDArray[np.uint8]
Ints = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]
Rows = slice | npt.NDArray[np.intp]  # numpy takes all of them much faster than a list of all

_MORE = 0x80
_BITS = 0x7F
_SIZE_MAX = 10  # of 64 bits
_SIZES_FROM = np.array([1 << (7 * size) for size in range(1, _SIZE_MAX)], dtype=np.uint64)


def read_varints(data: Bytes, at: Ints) -> tuple[Ints, Ints]:
    """The numbers at some positions, and the positions behind them. IndexError where one goes on after the data."""
    first = data[at]
    after = at + 1
    if not first.size or first.max() < _MORE:  # nearly always
        number = first.astype(np.uint64)
    else:
        number = (first & _BITS).astype(np.uint64)
        longer = first >= _MORE
        rows: Rows = slice(None) if longer.all() else np.flatnonzero(longer)
        _read_longer(data, number, after, rows)
    return (number >> np.uint64(1)).view(np.int64) ^ -(number & np.uint64(1)).view(np.int64), after


def _read_longer(data: Bytes, number: npt.NDArray[np.uint64], after: Ints, rows: Rows) -> None:
    """Add the second and further bytes of those that have some, in place."""
    for index in range(1, _SIZE_MAX):
        byte = data[after[rows]]
        if index == _SIZE_MAX - 1 and byte.max() > 1:
            break
        number[rows] |= (byte & _BITS).astype(np.uint64) << np.uint64(7 * index)
        after[rows] += 1
        if byte.max() < _MORE:
            return
        rows = np.flatnonzero(byte >= _MORE) if isinstance(rows, slice) else rows[byte >= _MORE]
    raise CorruptBatchError("a varint of more than 64 bits")


def write_varints(numbers: npt.NDArray[Any]) -> tuple[Bytes, Mask]:
    """One row of bytes for each number, and which of them are its varint: as many columns as the longest takes."""
    signed = numbers.astype(np.int64)
    zigzag = ((signed << 1) ^ (signed >> 63)).view(np.uint64)
    width = 1 + int(np.searchsorted(_SIZES_FROM, zigzag.max(), side="right")) if zigzag.size else 1
    out = np.empty((zigzag.size, width), dtype=np.uint8)
    used = np.empty(out.shape, dtype=np.bool_)
    used[:, 0] = True
    for index in range(width):
        byte = ((zigzag >> np.uint64(7 * index)) & np.uint64(_BITS)).astype(np.uint8)
        if index + 1 < width:
            more = zigzag >= _SIZES_FROM[index]
            used[:, index + 1] = more
            byte |= more.astype(np.uint8) << np.uint8(7)
        out[:, index] = byte
    return out, used


def varint_sizes(numbers: npt.NDArray[Any]) -> Ints:
    """How many bytes each number takes."""
    signed = numbers.astype(np.int64)
    zigzag = ((signed << 1) ^ (signed >> 63)).view(np.uint64)
    return 1 + np.searchsorted(_SIZES_FROM, zigzag, side="right").astype(np.int64)
