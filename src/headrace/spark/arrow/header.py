"""Names and values of record headers: the first of all records together, then the second of all that have one, ...

Records have few headers, so that is a handful of steps. A record with very many of them (nobody forbids it) is read by
itself, header by header.
"""

import numpy as np

from headrace.model.errors import CorruptBatchError
from headrace.spark.arrow.record import NULL_SIZE, Field
from headrace.spark.arrow.varint import Bytes, Ints, read_varints

_TOGETHER_MAX = 32
_WORDS = 4  # of a header: where its name begins and how long it is, and the same of its value


def read_headers(data: Bytes, counts: Ints, starts: Ints, ends: Ints) -> tuple[Field, Field]:
    """Where the names and values of all headers are, in the order of records. Raises CorruptBatchError."""
    first = np.cumsum(counts) - counts  # the place of each record's first header among all
    found = np.empty((_WORDS, int(counts.sum())), dtype=np.int64)
    at = starts.copy()
    rows = np.flatnonzero(counts)
    for index in range(_TOGETHER_MAX):
        if not rows.size:
            break
        found[:, first[rows] + index], at[rows] = _read_together(data, at[rows], ends[rows])
        rows = rows[counts[rows] > index + 1]
    for row in rows.tolist():
        places = slice(first[row] + _TOGETHER_MAX, first[row] + counts[row])
        found[:, places], at[row] = _read_alone(data, int(at[row]), int(ends[row]), places.stop - places.start)
    if (at != ends).any():
        raise CorruptBatchError("a record that does not end where it says")
    return Field(found[0], found[1]), Field(found[2], found[3])


def _read_together(data: Bytes, at: Ints, ends: Ints) -> tuple[Ints, Ints]:
    name_sizes, names = read_varints(data, at)
    after_names = names + name_sizes
    _check((name_sizes >= 0) & (after_names < ends) & (after_names >= names))
    value_sizes, values = read_varints(data, after_names)
    after = values + np.maximum(value_sizes, 0)
    _check((value_sizes >= NULL_SIZE) & (after <= ends) & (after >= values))
    return np.stack((names, name_sizes, values, value_sizes)), after


def _check(is_possible: np.ndarray[tuple[int], np.dtype[np.bool_]]) -> None:
    if not is_possible.all():
        raise CorruptBatchError("a header that is longer than its record, or has no name")


def _read_alone(data: Bytes, start: int, end: int, count: int) -> tuple[Ints, int]:
    record = data[start:end].tobytes()
    found = np.empty((_WORDS, count), dtype=np.int64)
    at = 0
    for index in range(count):
        name_size, name = _varint(record, at)
        value_size, value = _varint(record, name + name_size) if name_size >= 0 else (0, 0)
        at = value + max(value_size, 0)
        _check(np.array([name_size >= 0 and value_size >= NULL_SIZE and at <= len(record)]))
        found[:, index] = (start + name, name_size, start + value, value_size)
    return found, start + at


def _varint(record: bytes, at: int) -> tuple[int, int]:
    """A length, and what is behind it."""
    number = shift = 0
    while shift < 35:
        byte = record[at]
        at += 1
        number |= (byte & 0x7F) << shift
        if byte < 0x80:
            return (number >> 1) ^ -(number & 1), at
        shift += 7
    raise CorruptBatchError("a length of more than 35 bits")
