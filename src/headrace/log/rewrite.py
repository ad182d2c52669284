"""Writing what stays of neighbouring closed segments into one new file, a slice at a time. Blocks.

Nobody else writes any of these files: the old ones are closed, the new one has a name of its own. It is synced piece by
piece, and its name with it, before `step` says that all is done. What is read is checked before it is written again:
damage must never get a new checksum.
"""

from collections.abc import Sequence

from headrace.host.disk import Disk, File, write_fully
from headrace.log.batch_walk import BatchWalk
from headrace.log.cleaned import Cleaned, add_place
from headrace.log.index import SparseIndex
from headrace.log.judge import Judge
from headrace.log.keep import empty_batch
from headrace.log.segment import Segment
from headrace.model.batch import HEADER_SIZE, BatchHeader, read_header
from headrace.model.ids import Offset

# Read in one slice, and written between two syncs. Small, because others wait for the interpreter and for the disk.
_SLICE_BYTES = 512 * 1024
_SYNC_BYTES = 2 * 1024 * 1024
# Looking at a message takes as long as reading about so many bytes.
_RECORD_COST_BYTES = 64


class Rewrite:
    def __init__(
        self,
        disk: Disk,
        directory: str,
        old: Sequence[Segment],
        judge: Judge,
        *,
        generation: int,
        interval_bytes: int,
        keeps_last: bool,
    ) -> None:
        self.old = old
        self._disk = disk
        self._directory = directory
        self._judge = judge
        self._kept_before = judge.kept_count
        self._generation = generation
        self._index = SparseIndex(interval_bytes)
        # Where no batch follows, the last one stands for the log's end, so that readers get there.
        self._keeps_last = keeps_last
        self._crc = 0
        self._size = self._synced_size = 0
        self._batches_end = old[0].base_offset
        self._pieces: list[bytes] = []
        self._walk = BatchWalk(disk, old)
        self._file: File | None = None
        self._path = self.result().path

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
                live_count=self._judge.kept_count - self._kept_before,
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
        header = None
        while budget > 0 and (header := self._walk.advance()) is not None:
            budget -= self._pass_batch(header)
        is_done = header is None
        write_fully(self._file, self._pieces, self._size - sum(map(len, self._pieces)))
        self._pieces.clear()
        if not is_done and self._size - self._synced_size < _SYNC_BYTES:
            return False
        self._file.fdatasync()
        self._synced_size = self._size
        if not is_done:
            return False
        self.close()
        self._disk.sync_directory(self._directory)
        return True

    def close(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None
        self._walk.close()

    def remove(self) -> None:
        """Take the new file away, for it is not wanted after all."""
        self.close()
        if self._disk.exists(self._path):
            self._disk.remove(self._path)

    def _pass_batch(self, header: BatchHeader) -> int:
        """Copy, thin out or pass over the batch at hand; return about how many bytes of reading that was."""
        is_last = self._keeps_last and self._walk.is_last
        is_dead = self._judge.is_dead(header)
        if is_dead and not is_last:
            return HEADER_SIZE * 8
        batch = self._walk.batch()
        kept = None if is_dead else self._judge.keep(header, batch)
        if kept is None and is_last:
            kept = batch if header.is_control else empty_batch(header, batch)
        if kept is not None:
            self._add(kept)
        return header.size + header.record_count * _RECORD_COST_BYTES

    def _add(self, batch: bytes) -> None:
        header = read_header(batch)
        self._index.add(Offset(header.base_offset), self._size, header.max_timestamp_ms)
        self._crc = add_place(self._crc, batch, 0)
        self._batches_end = header.next_offset
        self._size += len(batch)
        self._pieces.append(batch)
