"""Walking over the batches of a segment file, by their headers. Blocks."""

from collections.abc import Iterator
from typing import NamedTuple

import msgspec

from headrace.host.disk import File
from headrace.log.cleaned import Cleaned, add_place
from headrace.log.partition_log import PartitionLog
from headrace.log.segment import Segment
from headrace.model.batch import HEADER_SIZE, BatchHeader, Buffer, read_header
from headrace.model.errors import CorruptLogError
from headrace.model.ids import Offset

_CHUNK_BYTES = 64 * 1024


class Places:
    """Compares the places of a cleaned segment's batches with their checksum, over a walk from its beginning."""

    def __init__(self, segment: Segment, position: int) -> None:
        self._segment = segment
        self._is_whole = position == 0 and segment.cleaned is not None
        self._crc = 0
        if self._is_whole and segment.gap_bytes == 0:
            segment.is_placed = True

    def pass_by(self, chunk: Buffer, at: int, end: int) -> None:
        """Note a batch whose bytes begin at a place of a chunk, and which ends at a byte of the file."""
        segment = self._segment
        if not self._is_whole or end > segment.gap_bytes:
            return
        self._crc = add_place(self._crc, chunk, at)
        if end < segment.gap_bytes:
            return
        assert segment.cleaned is not None
        if self._crc != segment.cleaned.places_crc:
            raise CorruptLogError(
                file=segment.path,
                position=0,
                expected=f"{segment.cleaned.places_crc:08x}",
                found=f"{self._crc:08x}",
                what="checksum over the offsets, lengths and epochs of batches",
            )
        segment.is_placed = True


def headers(file: File, segment: Segment, position: int, end: int, offset: Offset) -> Iterator[tuple[BatchHeader, int]]:
    """Every header from a position to another, with its position. `offset` is that of the first, or not after it."""
    chunk = b""
    chunk_position = position
    places = Places(segment, position)
    while position < end:
        at = position - chunk_position
        if at + HEADER_SIZE > len(chunk):
            chunk = file.pread(position, min(_CHUNK_BYTES, end - position))
            chunk_position, at = position, 0
        header = whole_header(chunk, at, segment, position, offset)
        places.pass_by(chunk, at, position + header.size)
        yield header, position
        position += header.size
        offset = segment.offset_after(header, position)


def whole_header(chunk: bytes, at: int, segment: Segment, position: int, offset: Offset) -> BatchHeader:
    if len(chunk) - at < HEADER_SIZE:
        raise CorruptLogError(
            file=segment.path,
            position=position,
            expected="a whole header",
            found=f"{len(chunk) - at} bytes",
            what="end",
        )
    header = read_header(chunk, at)
    segment.check_place(header, position, offset)
    return header


class Cut(NamedTuple):
    """Where a log is cut: everything from a byte of a segment on goes, and the log ends at an offset."""

    segment: Segment
    position: int
    offset: Offset
    cleaned: Cleaned | None  # what is then to be said of the segment


def scan_to(log: PartitionLog, offset: Offset) -> Cut:
    """How to cut a log so that nothing at or above an offset stays: there, or before the batch that holds it."""
    segment = next(s for s in reversed(log.segments) if s.base_offset <= offset or s is log.segments[0])
    crc, batches_end, position = 0, segment.base_offset, 0
    file = log.disk.open(segment.path)
    try:
        for header, at in headers(file, segment, 0, segment.size, segment.first_offset):
            if header.next_offset > offset:
                offset = min(offset, Offset(header.base_offset))
                break
            position, batches_end = at + header.size, header.next_offset
            if position <= segment.gap_bytes:
                crc = add_place(crc, file.pread(at, HEADER_SIZE), 0)
        else:
            offset = min(offset, segment.next_offset)
    finally:
        file.close()
    offset = max(offset, segment.base_offset)
    cleaned = segment.cleaned
    if cleaned is not None and (position < cleaned.size or offset < cleaned.next_offset):
        cleaned = msgspec.structs.replace(
            cleaned, next_offset=offset, size=position, batches_end=batches_end, places_crc=crc
        )
    return Cut(segment, position, offset, cleaned)
