"""Every batch of neighbouring closed segments, one after the other, for who rewrites or compacts them. Blocks.

Headers are looked at in chunks; the bytes of a batch are read and checked only if they are asked for.
"""

from collections.abc import Sequence

from headrace.host.disk import Disk, File
from headrace.log.segment import Segment, check_crc
from headrace.log.walk import Places, whole_header
from headrace.model.batch import HEADER_SIZE, BatchHeader

_CHUNK_BYTES = 256 * 1024


class BatchWalk:
    def __init__(self, disk: Disk, segments: Sequence[Segment]) -> None:
        self.is_last = False  # the batch at hand is the last of all
        self._disk = disk
        self._left = list(segments)
        self._file: File | None = None
        self._header: BatchHeader | None = None
        if self._left:
            self._open_next()

    def advance(self) -> BatchHeader | None:
        """Go to the next batch. None: there is none."""
        if self._header is not None:
            self._position += self._header.size
            self._offset = self._left[0].offset_after(self._header, self._position)
            self._header = None
        while self._left and self._position >= self._left[0].size:
            self.close()
            del self._left[0]
            if self._left:
                self._open_next()
        if not self._left:
            return None
        segment = self._left[0]
        header = whole_header(self._at_least(HEADER_SIZE), self._at, segment, self._position, self._offset)
        end = self._position + header.size
        self._places.pass_by(self._chunk, self._at, end)
        self.is_last = len(self._left) == 1 and end == segment.size
        self._header = header
        return header

    def batch(self) -> bytes:
        """The bytes of the batch at hand. What is wrong with them is damage, and must never get a new checksum."""
        assert self._header is not None
        chunk = self._at_least(self._header.size)
        batch = chunk[self._at : self._at + self._header.size]
        check_crc(self._header, batch, path=self._left[0].path, position=self._position)
        return batch

    def close(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None

    def _open_next(self) -> None:
        segment = self._left[0]
        self._position = self._chunk_position = 0
        self._offset = segment.first_offset
        self._places = Places(segment, 0)
        self._chunk = b""

    @property
    def _at(self) -> int:
        return self._position - self._chunk_position

    def _at_least(self, size: int) -> bytes:
        """Have so many bytes from the position on in the chunk, if the file has them."""
        if self._at + size > len(self._chunk):
            if self._file is None:
                self._file = self._disk.open(self._left[0].path)
            size = min(max(size, _CHUNK_BYTES), self._left[0].size - self._position)
            self._chunk = self._file.pread(self._position, size)
            self._chunk_position = self._position
        return self._chunk
