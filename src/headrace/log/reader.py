"""Finding and reading batches.

Reads are generators: they yield what they need (`ReadAt`, seldom `Blocking`) and are sent the bytes, so the same body
serves a read that the page cache answers in the event loop's callback and one that waits in a thread for the device.
"""

from collections.abc import Callable, Generator
from typing import NamedTuple, TypeVar

from headrace.log.epochs import EpochTable
from headrace.log.index import SparseIndex
from headrace.log.segment import Segment, check_batches
from headrace.model.batch import HEADER_SIZE, BatchHeader, Buffer, read_header, read_prefix
from headrace.model.errors import CorruptLogError
from headrace.model.ids import Offset

# Headers are looked at through windows of this size, so that walking over small batches needs few reads.
_WINDOW_BYTES = 64 * 1024

T = TypeVar("T")


class ReadAt(NamedTuple):
    """Bytes wanted of a file."""

    path: str
    position: int
    size: int


class Slice(NamedTuple):
    """Whole batches, back to back."""

    data: Buffer
    next_offset: Offset


class Located(NamedTuple):
    """A batch and where it begins."""

    segment: Segment
    position: int
    header: BatchHeader


class Blocking(NamedTuple):
    """A call that has to wait for the device whatever the page cache holds."""

    call: Callable[[], object]


Reads = Generator[ReadAt | Blocking, Buffer, T]


def seek(
    segment: Segment, position: int, expected_offset: Offset, found: Callable[[BatchHeader], bool]
) -> Reads[Located | None]:
    """Walk from a batch that begins at `position` to the first that `found` accepts."""
    window: Buffer = b""
    window_position = position
    offset = expected_offset
    while position + HEADER_SIZE <= segment.size:
        at = position - window_position
        if at + HEADER_SIZE > len(window):
            window = yield ReadAt(segment.path, position, min(_WINDOW_BYTES, segment.size - position))
            window_position, at = position, 0
            if len(window) < HEADER_SIZE:
                raise _short(segment, position, HEADER_SIZE, len(window))
        header = read_header(window, at)
        segment.check_place(header, position, offset)
        if found(header):
            return Located(segment, position, header)
        position += header.size
        offset = segment.offset_after(header, position)
    if offset != segment.next_offset:
        raise _lost(segment, offset, segment.next_offset)
    return None


def find_offset(segment: Segment, offset: Offset) -> Reads[Located | None]:
    """The batch that holds an offset, or the next one where cleaning has left a gap."""
    hint = segment.hint(offset)
    if hint is not None:
        return (yield from seek(segment, hint, offset, lambda _: True))
    assert segment.index is not None
    entry = segment.index.floor(offset)
    position, start = (entry.position, entry.offset) if entry else (0, segment.first_offset)
    return (yield from seek(segment, position, start, lambda header: header.next_offset > offset))


def find_time(segment: Segment, timestamp_ms: int, from_offset: Offset) -> Reads[Located | None]:
    """The first batch with a message at or after both a time and an offset."""
    assert segment.index is not None
    by_time = segment.index.before_time(timestamp_ms)
    by_offset = segment.index.floor(from_offset)
    entry = max((e for e in (by_time, by_offset) if e is not None), key=lambda e: e.position, default=None)
    position, start = (entry.position, entry.offset) if entry else (0, segment.first_offset)
    return (
        yield from seek(
            segment,
            position,
            start,
            lambda header: header.max_timestamp_ms >= timestamp_ms and header.next_offset > from_offset,
        )
    )


def read_batches(
    segment: Segment, offset: Offset, *, bytes_max: int, upto: Offset, whole_first: bool, epochs: EpochTable
) -> Reads[Slice | None]:
    """Whole batches of one segment from the one that holds an offset, or the next, none at or above `upto`.

    At most `bytes_max`, except that with `whole_first` the first batch comes whole however large it is (KIP-74:
    a reader with a small buffer must be able to go on). None if the segment holds nothing at or after the offset.
    """
    index = segment.index  # others may have the segment drop it while this read waits for the device
    assert index is not None
    hint = segment.hint(offset)
    if hint is not None:
        position, first_offset = hint, offset
        if position >= segment.size:
            return None
    else:
        located = yield from find_offset(segment, offset)
        if located is None:
            return None
        position, first_offset = located.position, Offset(located.header.base_offset)
    size = min(max(bytes_max, HEADER_SIZE), segment.size - position)
    data = yield ReadAt(segment.path, position, size)
    if len(data) < size:
        raise _short(segment, position, size, len(data))
    base_offset, first_size = read_prefix(data, 0)
    if not HEADER_SIZE <= first_size <= segment.size - position or base_offset != first_offset:
        segment.check_place(read_header(data, 0), position, first_offset)
    if base_offset >= upto or (first_size > bytes_max and not whole_first):
        return Slice(b"", offset)
    if first_size > len(data):
        data = yield ReadAt(segment.path, position, first_size)
        if len(data) < first_size:
            raise _short(segment, position, first_size, len(data))
    if segment.size == position + len(data) and upto >= segment.next_offset:
        end, next_offset = len(data), segment.next_offset
    else:
        end, next_offset = _last_boundary(segment, index, position, data, upto)
    whole = memoryview(data)[:end]
    if not segment.is_verified(position, position + end):
        found = check_batches(segment, whole, position=position, expected_offset=first_offset, epochs=epochs)
        # What comes next was looked up in the index, and may lie behind a gap.
        if found != next_offset and not (position + end < segment.gap_bytes and found < next_offset):
            # Batches are missing at the end of a closed segment, or a whole segment after it.
            raise _lost(segment, found, next_offset)
        segment.mark_verified(position, position + end)
    segment.remember(next_offset, position + end)
    return Slice(whole, next_offset)


def _last_boundary(
    segment: Segment, index: SparseIndex, position: int, data: Buffer, upto: Offset
) -> tuple[int, Offset]:
    """End of the last whole batch below `upto` in a buffer that begins with a batch, and the offset after it."""
    at = 0
    next_offset = segment.base_offset
    # The index leads close to the end, so that a long read of small batches is not walked from its beginning.
    near = index.floor_position(position + len(data) - 1)
    below = index.floor(Offset(upto - 1))
    if near and below:
        entry = min(near, below, key=lambda entry: entry.position)
        if entry.position > position:
            at, next_offset = entry.position - position, entry.offset
    while at + HEADER_SIZE <= len(data):
        header = read_header(data, at)
        if header.base_offset >= upto or at + header.size > len(data):
            break
        segment.check_place(header, position + at, header.base_offset)
        at += header.size
        next_offset = segment.offset_after(header, position + at)
    return at, next_offset


def _lost(segment: Segment, found: int, expected: int) -> CorruptLogError:
    return CorruptLogError(
        file=segment.path,
        position=segment.size,
        expected=f"batches up to offset {expected}",
        found=f"none from {found} on",
        what="end of the segment",
    )


def _short(segment: Segment, position: int, expected: int, found: int) -> CorruptLogError:
    return CorruptLogError(
        file=segment.path, position=position, expected=f"{expected} bytes", found=f"{found} bytes", what="content"
    )
