"""One file of a partition's log, with its index and what is known about its bytes."""

from bisect import bisect_right

from headrace.log.cleaned import Cleaned
from headrace.log.epochs import EpochTable
from headrace.log.index import SparseIndex
from headrace.model.batch import HEADER_SIZE, LENGTH_PREFIX_SIZE, MAGIC, BatchHeader, Buffer, read_header
from headrace.model.errors import CorruptLogError
from headrace.model.ids import Offset
from headrace.wire.crc import crc32c

LOG_SUFFIX = ".log"
INDEX_SUFFIX = ".index"
TIMEINDEX_SUFFIX = ".timeindex"

# Places that readers reached, remembered for their next read.
_HINT_COUNT_MAX = 64


def segment_name(base_offset: int, generation: int | None = None) -> str:
    """A file's name without its suffix. A cleaned segment has a generation, so that it is never another one's file."""
    return f"{base_offset:020d}" if generation is None else f"{base_offset:020d}.{generation}"


class Segment:
    """Offsets from `base_offset` up to `next_offset`, in `size` bytes of one file.

    Batches follow each other without gaps, except among the first `gap_bytes` of a segment that was cleaned: there each
    begins at or after the end of the one before, and all together stand for the offsets below `gap_next`.
    """

    __slots__ = (
        "_hints",
        "_max_timestamp_ms",
        "_verified",
        "base_offset",
        "cleaned",
        "created_ms",
        "gap_bytes",
        "gap_next",
        "index",
        "is_held",
        "is_placed",
        "is_synced",
        "next_offset",
        "path",
        "reserved_end",
        "size",
        "stem",
        "tail",
    )

    def __init__(
        self,
        directory: str,
        base_offset: Offset,
        *,
        index: SparseIndex | None,
        created_ms: int,
        cleaned: Cleaned | None = None,
    ) -> None:
        self.base_offset = base_offset
        self.next_offset = base_offset
        self.size = 0
        self.stem = f"{directory}/{segment_name(base_offset, cleaned.generation if cleaned else None)}"
        self.path = self.stem + LOG_SUFFIX
        self.index = index  # None until it is needed, for a closed segment
        self.created_ms = created_ms
        self.reserved_end = 0  # bytes of the file up to here have their blocks
        self.is_synced = True
        self.is_held = False  # its file is kept open, because it has unsynced bytes
        self.tail: list[bytes] = []  # batches at its end that are not in the file yet
        # Ranges of bytes whose checksums were seen to be right since the segment was opened: [start, end, start, …]
        self._verified: list[int] = []
        self._hints: dict[Offset, int] = {}
        self._max_timestamp_ms: int | None = None
        self.set_cleaned(cleaned)

    def set_cleaned(self, cleaned: Cleaned | None) -> None:
        self.cleaned = cleaned
        self.gap_bytes = cleaned.size if cleaned else 0
        self.gap_next = Offset(cleaned.next_offset) if cleaned else self.base_offset
        self.is_placed = cleaned is None  # its places were compared with their checksum since it was opened

    @property
    def first_offset(self) -> Offset:
        """Where the batch at the file's beginning begins, or at least not before."""
        return self.base_offset if self.gap_bytes else self.gap_next

    @property
    def batches_end(self) -> Offset:
        """The offset after its last batch. From there to `next_offset` is a gap."""
        is_all_cleaned = self.cleaned is not None and self.size == self.gap_bytes
        return Offset(self.cleaned.batches_end) if self.cleaned and is_all_cleaned else self.next_offset

    @property
    def is_empty(self) -> bool:
        return self.next_offset == self.base_offset

    @property
    def max_timestamp_ms(self) -> int | None:
        """Largest timestamp, or None while the index of a closed segment was never loaded."""
        return self._max_timestamp_ms if self.index is None else self.index.max_timestamp_ms

    def drop_index(self) -> None:
        """Free the memory of an index that is whole on disk."""
        self._max_timestamp_ms = self.max_timestamp_ms
        self.index = None

    def hint(self, offset: Offset) -> int | None:
        """Position of the batch that begins at an offset, if some reader came by."""
        return self._hints.get(offset)

    def remember(self, offset: Offset, position: int) -> None:
        if len(self._hints) >= _HINT_COUNT_MAX:
            del self._hints[next(iter(self._hints))]
        self._hints[offset] = position

    def is_verified(self, start: int, end: int) -> bool:
        at = bisect_right(self._verified, start)
        return at % 2 == 1 and end <= self._verified[at]

    def mark_verified(self, start: int, end: int) -> None:
        """Join a range to those that are known. Both ends are batch boundaries."""
        ranges = self._verified
        if ranges and ranges[-1] == start:
            ranges[-1] = end  # what every append does
            return
        left = bisect_right(ranges, start - 1)
        right = bisect_right(ranges, end)
        replacement = []
        if left % 2 == 0:
            replacement.append(start)
        if right % 2 == 0:
            replacement.append(end)
        ranges[left:right] = replacement

    def truncate_to(self, position: int, next_offset: Offset) -> None:
        """Forget everything at and after a byte. The caller cuts the file."""
        self.size = position
        self.next_offset = next_offset
        self._hints = {offset: at for offset, at in self._hints.items() if at <= position}
        at = bisect_right(self._verified, position)
        self._verified[at:] = [position] if at % 2 else []
        if self.index is not None:
            self.index.truncate_to(position)

    def check_place(self, header: BatchHeader, position: int, expected_offset: int) -> None:
        """Refuse a header that does not belong to this position."""
        check_header(
            header,
            path=self.path,
            position=position,
            size_left=self.size - position,
            expected_offset=expected_offset,
            may_skip=position < self.gap_bytes,
        )

    def offset_after(self, header: BatchHeader, end: int) -> Offset:
        """Where the batch behind one that ends at a byte begins, or at least not before."""
        return self.gap_next if end == self.gap_bytes else header.next_offset


def check_header(
    header: BatchHeader, *, path: str, position: int, size_left: int, expected_offset: int, may_skip: bool = False
) -> None:
    """Refuse a header that cannot be walked over: it is not where, or what, it was when it was written.

    With `may_skip` the batch may begin later than expected: those before it were cleaned away.
    """
    if header.magic != MAGIC:
        raise CorruptLogError(file=path, position=position + 16, expected=MAGIC, found=header.magic, what="magic")
    if not HEADER_SIZE - LENGTH_PREFIX_SIZE <= header.length <= size_left - LENGTH_PREFIX_SIZE:
        raise CorruptLogError(
            file=path,
            position=position + 8,
            expected=f"a length from {HEADER_SIZE - LENGTH_PREFIX_SIZE} to {size_left - LENGTH_PREFIX_SIZE}",
            found=header.length,
            what="batch length",
        )
    if header.base_offset != expected_offset and not (may_skip and header.base_offset > expected_offset):
        raise CorruptLogError(
            file=path, position=position, expected=expected_offset, found=header.base_offset, what="base offset"
        )
    if header.last_offset_delta < 0:
        raise CorruptLogError(
            file=path, position=position + 23, expected="0 or more", found=header.last_offset_delta, what="last delta"
        )


def check_crc(header: BatchHeader, batch: Buffer, *, path: str, position: int) -> None:
    """Compare a whole batch with its checksum."""
    found = crc32c(memoryview(batch)[21 : header.size])
    if found != header.crc:
        raise CorruptLogError(
            file=path, position=position, expected=f"{header.crc:08x}", found=f"{found:08x}", what="CRC-32C"
        )


def check_batches(
    segment: Segment, data: Buffer, *, position: int, expected_offset: Offset, epochs: EpochTable
) -> Offset:
    """Check every batch of a buffer that begins and ends on batch boundaries; return the offset after the last."""
    view = memoryview(data)
    path = segment.path
    at = 0
    offset = expected_offset
    while at < len(view):
        if len(view) - at < HEADER_SIZE:
            raise CorruptLogError(
                file=path, position=position + at, expected="a whole batch", found=f"{len(view) - at} bytes", what="end"
            )
        header = read_header(view, at)
        check_header(
            header,
            path=path,
            position=position + at,
            size_left=len(view) - at,
            expected_offset=offset,
            may_skip=position + at < segment.gap_bytes,
        )
        check_crc(header, view[at : at + header.size], path=path, position=position + at)
        epoch = epochs.epoch_at(Offset(header.base_offset))
        if header.leader_epoch != epoch:
            raise CorruptLogError(
                file=path, position=position + at + 12, expected=epoch, found=header.leader_epoch, what="leader epoch"
            )
        at += header.size
        offset = segment.offset_after(header, position + at)
    return offset
