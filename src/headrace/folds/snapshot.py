"""The frame around a fold's saved state: what it is, up to which offset it goes, and a checksum over all of it.

    position  field
           0  magic            4 bytes   "HRFS"
           4  CRC-32C          uint32    over everything from position 8
           8  frame version    uint8
           9  name length      uint8
          10  state version    uint16    the fold's own
          12  end offset       int64     the state covers every offset below it
          20  payload length   uint32
          24  name, then payload

A snapshot saves time and nothing else: one that does not read back perfectly is thrown away and the log is replayed.
"""

import struct
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from headrace.model.batch import Buffer
from headrace.model.errors import CorruptLogError, UnsupportedError
from headrace.model.ids import Offset
from headrace.wire.crc import crc32c

_MAGIC = b"HRFS"
_FRAME_VERSION = 1
_CHECKED_FROM = 8
_HEADER = struct.Struct(">4sIBBHqI")


class FoldState(NamedTuple):
    """A fold's state up to an offset, in the fold's own encoding."""

    fold: str
    version: int
    end_offset: Offset
    payload: Buffer


class Piece(NamedTuple):
    """A part of a snapshot's bytes, and where it belongs."""

    position: int
    data: bytes


def encode_snapshot(state: FoldState) -> bytes:
    name = state.fold.encode("ascii")
    header = _HEADER.pack(_MAGIC, 0, _FRAME_VERSION, len(name), state.version, state.end_offset, len(state.payload))
    frame = bytearray(header + name + state.payload)
    struct.pack_into(">I", frame, 4, crc32c(memoryview(frame)[_CHECKED_FROM:]))
    return bytes(frame)


def encode_in_pieces(
    fold: str, version: int, end_offset: Offset, size_bytes: int, payload: Iterable[bytes]
) -> Iterator[Piece]:
    """The same bytes, of a payload that is never whole. The header comes last, since it has the checksum."""
    name = fold.encode("ascii")
    fields = _FRAME_VERSION, len(name), version, end_offset, size_bytes
    crc = crc32c(name, crc32c(_HEADER.pack(_MAGIC, 0, *fields)[_CHECKED_FROM:]))
    yield Piece(_HEADER.size, name)
    position = start = _HEADER.size + len(name)
    for data in payload:
        yield Piece(position, data)
        crc = crc32c(data, crc)
        position += len(data)
    assert position == start + size_bytes, f"a payload of {position - start} bytes was announced as {size_bytes}"
    yield Piece(0, _HEADER.pack(_MAGIC, crc, *fields))


def joined(pieces: Iterable[Piece]) -> bytes:
    """What a file holds in which they were written."""
    whole = bytearray()
    for position, data in pieces:
        whole.extend(bytes(max(position + len(data) - len(whole), 0)))
        whole[position : position + len(data)] = data
    return bytes(whole)


def decode_snapshot(data: Buffer, *, fold: str, version_max: int, file: str) -> FoldState:
    """Read a snapshot back. CorruptLogError and UnsupportedError both mean: do not use it, replay the log."""
    if len(data) < _HEADER.size:
        raise _corrupt(file, len(data), "snapshot size", f"{_HEADER.size} bytes or more", len(data))
    magic, crc, frame_version, name_length, version, end_offset, payload_length = _HEADER.unpack_from(data)
    if magic != _MAGIC:
        raise _corrupt(file, 0, "snapshot magic", _MAGIC, magic)
    found = crc32c(memoryview(data)[_CHECKED_FROM:])
    if found != crc:
        raise _corrupt(file, 4, "snapshot CRC-32C", f"{crc:#010x}", f"{found:#010x}")
    if frame_version > _FRAME_VERSION or version > version_max:
        raise UnsupportedError(f"{file} was written by a newer headrace (version {frame_version}.{version})")
    size = _HEADER.size + name_length + payload_length
    if len(data) != size:
        raise _corrupt(file, len(data), "snapshot size", size, len(data))
    name = bytes(data[_HEADER.size : _HEADER.size + name_length]).decode("ascii", "replace")
    if name != fold:
        raise _corrupt(file, _HEADER.size, "fold name", fold, name)
    # A view, since a state of many messages is too much to have twice.
    return FoldState(fold, version, Offset(end_offset), memoryview(data)[_HEADER.size + name_length :])


def _corrupt(file: str, position: int, what: str, expected: object, found: object) -> CorruptLogError:
    return CorruptLogError(file=file, position=position, expected=expected, found=found, what=what)
