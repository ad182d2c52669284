"""The segments of one log in order, and what can be found in them by offset and by time."""

from bisect import bisect_right
from collections.abc import Callable, Sequence

from headrace.log.index import SparseIndex
from headrace.log.keep import newest_ms
from headrace.log.reader import Blocking, Located, ReadAt, Reads, find_offset, find_time, seek
from headrace.log.segment import Segment, check_crc
from headrace.model.batch import NO_TIMESTAMP
from headrace.model.ids import Offset

# Closed segments whose index stays in memory, for each partition.
_INDEX_COUNT_MAX = 4


class SegmentList:
    def __init__(self, segments: list[Segment], load_index: Callable[[Segment], SparseIndex]) -> None:
        self.segments = segments
        self._bases = [segment.base_offset for segment in segments]
        self._load_index = load_index  # blocks

    # What it holds.

    def add(self, segment: Segment) -> None:
        self.segments.append(segment)
        self._bases.append(segment.base_offset)

    def drop(self, start: int, end: int | None) -> list[Segment]:
        """Take some of them out."""
        dropped = self.segments[start:end]
        del self.segments[start:end], self._bases[start:end]
        return dropped

    def replace(self, old: Sequence[Segment], new: Segment) -> None:
        """Put one in the place of neighbours whose offsets it stands for."""
        at = self.segments.index(old[0])
        assert self.segments[at : at + len(old)] == list(old), "what is to be replaced is no longer there"
        self.segments[at : at + len(old)] = [new]
        self._bases[at : at + len(old)] = [new.base_offset]

    def floor(self, offset: Offset) -> int:
        """Place of the segment that stands for an offset."""
        return max(bisect_right(self._bases, offset) - 1, 0)

    # Indexes.

    def need_index(self, segment: Segment) -> Reads[SparseIndex]:
        while segment.index is None:
            spare = [s for s in self.segments[:-1] if s.index is not None and s.index.is_sealed]
            for old in spare[: max(len(spare) - _INDEX_COUNT_MAX + 1, 0)]:
                old.drop_index()
            yield Blocking(lambda: self.load_index(segment))
        return segment.index

    def load_index(self, segment: Segment) -> None:
        """Blocks."""
        if segment.index is None:
            segment.index = self._load_index(segment)

    # Lookups.

    def bytes_from(self, offset: Offset) -> int:
        """About how many bytes lie between an offset and the end."""
        at = self.floor(offset)
        segment = self.segments[at]
        later = sum(later.size for later in self.segments[at + 1 :])
        if offset >= segment.batches_end:
            return later  # a reader in the gap at the end of a cleaned segment has nothing to read there
        hint = segment.hint(offset)
        if hint is None:
            entry = segment.index.floor(offset) if segment.index else None
            hint = entry.position if entry else 0
        return segment.size - hint + later

    def find_time(self, timestamp_ms: int, *, upto: Offset, from_offset: Offset) -> Reads[Located | None]:
        """The first batch below `upto` that says it holds a message at or after a time, and ends after an offset."""
        for segment in self.segments[self.floor(from_offset) :]:
            if segment.is_empty:
                continue
            index = yield from self.need_index(segment)
            if index.max_timestamp_ms >= timestamp_ms:
                located = yield from find_time(segment, timestamp_ms, from_offset)
                if located is not None:
                    return located if located.header.base_offset < upto else None
        return None

    def max_timestamp_ms(self, start: Offset, upto: Offset) -> Reads[int]:
        """Largest timestamp from an offset on and below another."""
        largest = NO_TIMESTAMP
        for segment in self.segments[self.floor(start) :]:
            if segment.base_offset >= upto:
                break
            found = yield from self._max_timestamp_in(segment, start, upto)
            largest = max(largest, found)
        return largest

    def _max_timestamp_in(self, segment: Segment, start: Offset, upto: Offset) -> Reads[int]:
        """The index of a segment also knows what was deleted from its beginning, and what is not committed at its end,
        so headers are walked there."""
        index = yield from self.need_index(segment)
        largest, first = NO_TIMESTAMP, start
        if start <= segment.base_offset:
            if segment.next_offset <= upto:
                return index.max_timestamp_ms
            entry = index.floor(Offset(upto - 1))
            first = segment.base_offset
            if entry is not None:
                largest, first = entry.earlier_max_timestamp_ms, entry.offset
        located = None
        if first < segment.next_offset:
            located = yield from find_offset(segment, first)
        while located is not None and located.header.base_offset < upto:
            position, header = located.position, located.header
            if header.base_offset < start:
                data = yield ReadAt(segment.path, position, header.size)
                check_crc(header, data, path=segment.path, position=position)
                largest = max(largest, newest_ms(header, data, from_offset=start))
            else:
                largest = max(largest, header.max_timestamp_ms)
            end = position + header.size
            located = yield from seek(segment, end, segment.offset_after(header, end), lambda _: True)
        return largest
