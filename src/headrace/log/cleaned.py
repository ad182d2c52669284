"""Which segments were rewritten with only their live messages: the file `cleaned` of a partition.

A log without gaps proves itself: each batch begins where the one before it ended, so a batch that is missing, or whose
offset has rotten (offset, length and epoch of a batch are not under its checksum), is noticed. A cleaned segment has
gaps, and this file says what may be in it instead: how many bytes, which offsets they stand for, and a checksum over
the first sixteen bytes of every batch. It also is what decides between the old segments and the new one, because it is
replaced atomically: a cleaned segment exists from the moment that it is listed here.

The list is written twice, one copy after the other, so that no single damaged byte takes away what it says.
"""

import msgspec

from headrace.host.disk import Disk, read_file
from headrace.model.batch import Buffer
from headrace.model.errors import CorruptLogError
from headrace.wire.crc import crc32c

NAME = "cleaned"

# Base offset, length and leader epoch of a batch: what its own checksum does not cover.
PLACE_SIZE = 16

_HEAD_SIZE = 18  # checksum and length in hexadecimal digits, each with what ends it


class Cleaned(msgspec.Struct, frozen=True, kw_only=True):
    """One cleaned segment. It stands for every offset from `base_offset` up to `next_offset`."""

    base_offset: int
    next_offset: int
    generation: int  # part of its file's name, and never given to another file of the partition
    size: int  # bytes; what may follow them in the file was appended after a truncation, and has no gaps
    batches_end: int  # offset after its last batch: from here on it is a gap
    live_count: int  # messages that were live when it was written
    places_crc: int


def add_place(crc: int, batch: Buffer, at: int) -> int:
    """Go on with the checksum over places by one batch."""
    return crc32c(memoryview(batch)[at : at + PLACE_SIZE], crc)


def encode(entries: list[Cleaned]) -> bytes:
    body = msgspec.json.encode(entries)
    return (b"%08x %08x\n" % (crc32c(body), len(body)) + body + b"\n") * 2


def read_cleaned(disk: Disk, directory: str) -> list[Cleaned] | None:
    """The list, or None where nothing was ever cleaned. Blocks."""
    path = f"{directory}/{NAME}"
    if not disk.exists(path):
        return None
    data = read_file(disk, path)
    # The second copy is found from the end, for the first may have lost its length.
    for half in (data[: len(data) // 2], data[len(data) // 2 :]):
        body = half[_HEAD_SIZE:-1]
        if half[:_HEAD_SIZE] == b"%08x %08x\n" % (crc32c(body), len(body)):
            return msgspec.json.decode(body, type=list[Cleaned])
    raise CorruptLogError(
        file=path, position=0, expected="a list whose checksum is right", found="none in either copy", what="content"
    )
