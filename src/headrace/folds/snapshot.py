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
from typing import NamedTuple

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
    payload: bytes


def encode_snapshot(state: FoldState) -> bytes:
    name = state.fold.encode("ascii")
    header = _HEADER.pack(_MAGIC, 0, _FRAME_VERSION, len(name), state.version, state.end_offset, len(state.payload))
    frame = bytearray(header + name + state.payload)
    struct.pack_into(">I", frame, 4, crc32c(memoryview(frame)[_CHECKED_FROM:]))
    return bytes(frame)


def decode_snapshot(data: bytes, *, fold: str, version_max: int, file: str) -> FoldState:
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
    name = data[_HEADER.size : _HEADER.size + name_length].decode("ascii", "replace")
    if name != fold:
        raise _corrupt(file, _HEADER.size, "fold name", fold, name)
    return FoldState(fold, version, Offset(end_offset), data[_HEADER.size + name_length :])


def _corrupt(file: str, position: int, what: str, expected: object, found: object) -> CorruptLogError:
    return CorruptLogError(file=file, position=position, expected=expected, found=found, what=what)
