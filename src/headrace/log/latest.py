"""The two walks of a pass of compaction: which message is each key's last, and then what stays. Both block.

Transactions, as Kafka's cleaner treats them. What an aborted one wrote goes, and makes nothing else go. A marker stays
while the walk comes by anything that its transaction wrote, even if that goes now: a reader must not be left with
messages whose end it cannot see. Then it is treated like a tombstone.
"""

from bisect import bisect_right
from collections.abc import Iterable, Sequence

from headrace.host.disk import Disk
from headrace.log.batch_walk import BatchWalk
from headrace.log.compacted import Pass
from headrace.log.keep import keep_records
from headrace.log.offset_map import OffsetMap
from headrace.log.segment import Segment
from headrace.log.transactions import Aborted
from headrace.model.batch import BatchHeader
from headrace.model.errors import HeadraceError
from headrace.model.ids import Offset
from headrace.wire.kafka.records import Record, decode_batch

_SLICE_BYTES = 512 * 1024
# Looking at a message takes as long as reading about so many bytes.
_RECORD_COST_BYTES = 64


class AbortedRanges:
    """Which batches belong to transactions that were aborted."""

    def __init__(self, aborted: Iterable[Aborted]) -> None:
        self._by_producer: dict[int, list[tuple[int, int]]] = {}
        for producer_id, first, last in sorted(aborted):
            self._by_producer.setdefault(producer_id, []).append((first, last))

    def holds(self, header: BatchHeader) -> bool:
        if not header.is_transactional or header.is_control:
            return False
        ranges = self._by_producer.get(header.producer_id, [])
        at = bisect_right(ranges, header.base_offset, key=lambda one: one[0])
        return at > 0 and header.base_offset <= ranges[at - 1][1]


def _records(batch: bytes) -> Sequence[Record] | None:
    """The messages of a batch. One that cannot be read is what was sent, and says nothing about any key."""
    try:
        return decode_batch(batch)
    except HeadraceError:
        return None


class MapBuild:
    """Fills a map with the last offset of each key in the dirty part of a log, a slice at a time."""

    def __init__(
        self, disk: Disk, segments: Sequence[Segment], offsets: OffsetMap, aborted: AbortedRanges, *, start: Offset
    ) -> None:
        self.offsets = offsets
        self.upto = start  # the map holds everything below
        self._walk = BatchWalk(disk, segments)
        self._aborted = aborted
        self._end = segments[-1].next_offset if segments else start

    def step(self) -> bool:
        """Do one slice. True: all is in the map, or no more fits in."""
        budget = _SLICE_BYTES
        while budget > 0:
            header = self._walk.advance()
            if header is None:
                self.upto = self._end
                return True
            if header.next_offset <= self.upto:
                continue
            if len(self.offsets) and not self.offsets.has_room(header.record_count):
                return True
            budget -= self._add(header)
            self.upto = header.next_offset
        return False

    def close(self) -> None:
        self._walk.close()

    def _add(self, header: BatchHeader) -> int:
        if header.is_control or not header.record_count or self._aborted.holds(header):
            return _RECORD_COST_BYTES
        for record in _records(self._walk.batch()) or ():
            if record.key is not None:
                self.offsets.put(record.key, record.offset)
        return header.size + header.record_count * _RECORD_COST_BYTES


class Latest:
    """Keeps the last message of each key. It sees the whole log below the end of its map, in order."""

    def __init__(
        self, offsets: OffsetMap, aborted: AbortedRanges, *, upto: Offset, expired: Offset, passes: Sequence[Pass]
    ) -> None:
        self.kept_count = 0
        # What has to go some day, by the pass that it was first compacted in; the last is this one.
        self.removable_counts = [0] * (len(passes) + 1)
        self._offsets = offsets
        self._aborted = aborted
        self._upto = upto
        self._expired = expired  # tombstones below it go
        self._uptos = [one.upto for one in passes]
        self.dropped_markers: list[int] = []  # by offset
        self._open_producers: set[int] = set()  # those of which something was seen since their last marker

    def is_dead(self, header: BatchHeader) -> bool:
        if header.base_offset >= self._upto:
            return False
        if header.is_control:
            return False
        if header.is_transactional:
            self._open_producers.add(header.producer_id)
        return not header.record_count or self._aborted.holds(header)

    def keep(self, header: BatchHeader, batch: bytes) -> bytes | None:
        if header.base_offset >= self._upto:
            self.kept_count += header.record_count
            return batch
        if header.is_control:
            if self._keeps_marker(header):
                return batch
            self.dropped_markers.append(header.base_offset)
            return None
        records = _records(batch)
        if records is None:
            self.kept_count += header.record_count
            return batch
        live = [record.offset for record in records if self._keeps(record)]
        self.kept_count += len(live)
        if not live:
            return None
        return batch if len(live) == header.record_count else keep_records(header, batch, frozenset(live))

    def _keeps(self, record: Record) -> bool:
        if record.key is None or self._offsets.get(record.key) > record.offset:
            return False
        return record.value is not None or self._stays(record.offset)

    def _keeps_marker(self, header: BatchHeader) -> bool:
        if not header.is_transactional:
            return True
        if header.producer_id in self._open_producers:
            self._open_producers.discard(header.producer_id)
            return True
        return self._stays(header.base_offset)

    def _stays(self, offset: int) -> bool:
        """Whether something that has to go some day stays for now."""
        if offset < self._expired:
            return False
        self.removable_counts[bisect_right(self._uptos, offset)] += 1
        return True
