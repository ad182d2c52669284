"""Writing to the end of a segment's file: into the page cache, all of a write or nothing of it."""

from collections.abc import Sequence
from typing import NamedTuple

from headrace.host.disk import File, write_fully
from headrace.log import disk_error
from headrace.log.files import Files
from headrace.log.segment import Segment
from headrace.log.space import Space
from headrace.model.batch import Buffer
from headrace.model.errors import PartitionOfflineError

# A partition that is written to in pieces of the first size has blocks reserved for it, so many bytes at a time.
_RESERVE_FROM_BYTES = 256 * 1024
_RESERVE_BYTES = 32 * 1024 * 1024


def write_buffers(files: Files, segment: Segment, buffers: Sequence[Buffer], *, is_tail: bool) -> None:
    """Write behind the segment's end. PartitionOfflineError: the file is in doubt, and nothing may follow.

    Where it fails the file is cut back, except for the segment's tail: a thread may have written the same bytes to the
    same place (`TailWrite`) and taken them for stored. A part of them that stays is written over with the same bytes.
    """
    file = _held(files, segment)
    try:
        reserve_bytes = _reserve(files, segment, segment.size, sum(map(len, buffers)))
        if reserve_bytes:
            file.reserve(segment.size, reserve_bytes)
        write_fully(file, buffers, segment.size)
    except OSError as error:
        if is_tail:
            raise disk_error.refusal(error, segment.path, "written") from error
        try:
            file.truncate(segment.size)
        except OSError as second:
            raise PartitionOfflineError(
                f"{segment.path} failed to be written ({error}) and to be cut back ({second}); "
                "check the disk and restart the node"
            ) from error
        raise disk_error.refusal(error, segment.path, "written") from error


class TailWrite(NamedTuple):
    """What was deferred, on its way to the file from a thread.

    It stays in the segment's tail until the write is done: whoever reads meanwhile writes the same bytes to the same
    place, and it does not matter which of them was first.
    """

    segment: Segment
    file: File
    buffers: Sequence[bytes]
    position: int
    reserve_bytes: int
    space: Space

    def run(self) -> None:
        """Blocks."""
        if self.reserve_bytes:
            self.file.reserve(self.position, self.reserve_bytes)
        # It was accepted, so it must be written. A part that is written twice is the same bytes at the same place.
        self.space.ballast.insist(lambda: write_fully(self.file, self.buffers, self.position))

    def done(self) -> None:
        """It is in the file. Where others have written the tail meanwhile, there is nothing left to drop."""
        tail = self.segment.tail
        if tail and tail[0] is self.buffers[0]:
            self.space.defer(-sum(map(len, self.buffers)))
            del tail[: len(self.buffers)]


def take_tail(files: Files, segment: Segment) -> TailWrite | None:
    """What of a segment is in memory alone, to be written by a thread."""
    if not segment.tail:
        return None
    file = _held(files, segment)
    buffers = tuple(segment.tail)
    size = sum(map(len, buffers))
    position = segment.size - size
    return TailWrite(segment, file, buffers, position, _reserve(files, segment, position, size), files.space)


def _held(files: Files, segment: Segment) -> File:
    """The segment's file, which is held open while it has unsynced bytes: see files.py."""
    try:
        if not segment.is_held:
            files.hold(segment.path)
            segment.is_held, segment.is_synced = True, False
        return files.get(segment.path)
    except OSError as error:
        raise disk_error.refusal(error, segment.path, "opened") from error


def _reserve(files: Files, segment: Segment, position: int, size: int) -> int:
    """How many bytes are to be reserved from a position on, where so much is written."""
    if size < _RESERVE_FROM_BYTES or position + size <= segment.reserved_end:
        return 0
    if files.space.left_bytes < 2 * _RESERVE_BYTES:
        return 0  # others need it
    files.space.charge(max(_RESERVE_BYTES - size, 0))
    segment.reserved_end = position + max(_RESERVE_BYTES, size)
    return segment.reserved_end - position


def give_back(files: Files, segment: Segment) -> None:
    """Free the blocks that were reserved behind the segment's end."""
    if segment.reserved_end > segment.size:
        segment.reserved_end = 0
        try:
            files.get(segment.path).truncate(segment.size)
        except OSError as error:
            raise disk_error.refusal(error, segment.path, "cut to its size") from error
