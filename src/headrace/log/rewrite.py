"""Writing the live messages of neighbouring closed segments into one new file, a slice at a time. Blocks.

Nobody else writes any of these files: the old ones are closed, the new one has a name of its own. It is synced piece by
piece, and its name with it, before `step` says that all is done. What is read is checked before it is written again:
damage must never get a new checksum.
"""

from bisect import bisect_left
from collections.abc import Sequence

from headrace.host.disk import Disk, File, write_fully
from headrace.log.cleaned import Cleaned, add_place
from headrace.log.index import SparseIndex
from headrace.log.keep import empty_batch, keep_records
from headrace.log.segment import Segment, check_crc
from headrace.log.walk import Places, whole_header
from headrace.model.batch import HEADER_SIZE, BatchHeader, read_header
from headrace.model.errors import CorruptBatchError
from headrace.model.ids import Offset
from headrace.wire.kafka.records import control_kind, decode_batch

# Read in one slice, and written between two syncs. Small, because others wait for the interpreter and for the disk.
_SLICE_BYTES = 512 * 1024
_CHUNK_BYTES = 256 * 1024
_SYNC_BYTES = 2 * 1024 * 1024

# Control entries from this kind on are headrace's own: their meaning is in the folds, whose snapshots cover them.
_OWN_CONTROL_KIND = 100


class Rewrite:
    def __init__(
        self,
        disk: Disk,
        directory: str,
        old: Sequence[Segment],
        live: Sequence[int],
        *,
        generation: int,
        interval_bytes: int,
        keeps_last: bool,
    ) -> None:
        self.old = old
        self._disk = disk
        self._directory = directory
        self._live = live
        self._generation = generation
        self._index = SparseIndex(interval_bytes)
        # Where no batch follows, the last one stands for the log's end, so that readers get there.
        self._keeps_last = keeps_last
        self._crc = 0
        self._size = self._synced_size = 0
        self._batches_end = old[0].base_offset
        self._live_at = 0
        self._pieces: list[bytes] = []
        self._left = list(old)
        self._file: File | None = None
        self._source: File | None = None
        self._path = self.result().path
        self._open_next()

    def result(self) -> Segment:
        """The new segment."""
        first, last = self.old[0], self.old[-1]
        segment = Segment(
            self._directory,
            first.base_offset,
            index=self._index,
            created_ms=first.created_ms,
            cleaned=Cleaned(
                base_offset=first.base_offset,
                next_offset=last.next_offset,
                generation=self._generation,
                size=self._size,
                batches_end=self._batches_end,
                live_count=len(self._live),
                places_crc=self._crc,
            ),
        )
        segment.size, segment.next_offset, segment.is_placed = self._size, last.next_offset, True
        return segment

    def step(self) -> bool:
        """Do one slice. True: everything is written and durable, though nothing speaks of it yet."""
        if self._file is None:
            self._file = self._disk.open(self._path, create=True)
            self._file.truncate(0)
        budget = _SLICE_BYTES
        while self._left and budget > 0:
            budget -= self._pass_batch()
        write_fully(self._file, self._pieces, self._size - sum(map(len, self._pieces)))
        self._pieces.clear()
        if self._left and self._size - self._synced_size < _SYNC_BYTES:
            return False
        self._file.fdatasync()
        self._synced_size = self._size
        if self._left:
            return False
        self.close()
        self._disk.sync_directory(self._directory)
        return True

    def close(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None
        if self._left and self._source is not None:
            self._source.close()
            self._source = None

    def remove(self) -> None:
        """Take the new file away, for it is not wanted after all."""
        self.close()
        if self._disk.exists(self._path):
            self._disk.remove(self._path)

    # Reading.

    def _open_next(self) -> None:
        segment = self._left[0]
        self._source = None
        self._position = self._chunk_position = 0
        self._offset = segment.first_offset
        self._places = Places(segment, 0)
        self._chunk = b""

    def _pass_batch(self) -> int:
        """Copy, thin out or pass over the next batch; return about how many bytes of reading that was."""
        segment = self._left[0]
        if self._position >= segment.size:
            if self._source is not None:
                self._source.close()
            del self._left[0]
            if self._left:
                self._open_next()
            return 1
        header = whole_header(self._at_least(HEADER_SIZE), self._at, segment, self._position, self._offset)
        end = self._position + header.size
        self._places.pass_by(self._chunk, self._at, end)
        is_last = self._keeps_last and len(self._left) == 1 and end == segment.size
        kept = self._keep(header, segment, is_last)
        if kept is not None:
            self._add(kept)
        self._position = end
        self._offset = segment.offset_after(header, end)
        return HEADER_SIZE * 8 if kept is None else header.size

    @property
    def _at(self) -> int:
        return self._position - self._chunk_position

    def _at_least(self, size: int) -> bytes:
        """Have so many bytes from the position on in the chunk, if the file has them."""
        if self._at + size > len(self._chunk):
            if self._source is None:
                self._source = self._disk.open(self._left[0].path)
            size = min(max(size, _CHUNK_BYTES), self._left[0].size - self._position)
            self._chunk = self._source.pread(self._position, size)
            self._chunk_position = self._position
        return self._chunk

    def _keep(self, header: BatchHeader, segment: Segment, is_last: bool) -> bytes | None:
        """What stays of a batch."""
        first = bisect_left(self._live, header.base_offset, self._live_at)
        self._live_at = bisect_left(self._live, header.next_offset, first)
        live = self._live[first : self._live_at]
        if not live and not header.is_control and not is_last:
            return None
        chunk = self._at_least(header.size)
        batch = chunk[self._at : self._at + header.size]
        check_crc(header, batch, path=segment.path, position=self._position)
        if header.is_control:
            return batch if is_last or not _is_own_control(batch) else None
        if not live:
            return empty_batch(header, batch)
        return batch if len(live) == header.record_count else keep_records(header, batch, frozenset(live))

    # Writing.

    def _add(self, batch: bytes) -> None:
        header = read_header(batch)
        self._index.add(Offset(header.base_offset), self._size, header.max_timestamp_ms)
        self._crc = add_place(self._crc, batch, 0)
        self._batches_end = header.next_offset
        self._size += len(batch)
        self._pieces.append(batch)


def _is_own_control(batch: bytes) -> bool:
    try:
        return all(control_kind(record) >= _OWN_CONTROL_KIND for record in decode_batch(batch))
    except CorruptBatchError:
        return False
