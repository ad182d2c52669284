"""Writing to the end of a segment's file: into the page cache, all of a write or nothing of it."""

from collections.abc import Sequence

from headrace.host.disk import write_fully
from headrace.log.files import Files
from headrace.log.segment import Segment
from headrace.model.batch import Buffer
from headrace.model.errors import DiskFullError, OverloadedError, PartitionOfflineError

# A partition that is written to in pieces of the first size has blocks reserved for it, so many bytes at a time.
_RESERVE_FROM_BYTES = 256 * 1024
_RESERVE_BYTES = 32 * 1024 * 1024


def write_buffers(files: Files, segment: Segment, buffers: Sequence[Buffer]) -> None:
    """Write behind the segment's end. PartitionOfflineError: the file is in doubt, and nothing may follow."""
    try:
        if not segment.is_held:
            # Held open while it has unsynced bytes: see files.py.
            files.hold(segment.path)
            segment.is_held, segment.is_synced = True, False
        file = files.get(segment.path)
    except OSError as error:
        raise OverloadedError(f"{segment.path} could not be opened: {error.strerror}; retry later") from error
    try:
        size = sum(map(len, buffers))
        if size >= _RESERVE_FROM_BYTES and segment.size + size > segment.reserved_end:
            segment.reserved_end = segment.size + max(_RESERVE_BYTES, size)
            file.reserve(segment.size, segment.reserved_end - segment.size)
        write_fully(file, buffers, segment.size)
    except OSError as error:
        try:
            file.truncate(segment.size)
        except OSError as second:
            raise PartitionOfflineError(
                f"{segment.path} failed to be written ({error}) and to be cut back ({second}); "
                "check the disk and restart the node"
            ) from error
        raise DiskFullError(
            f"{segment.path} could not be written: {error.strerror}; nothing of this send was stored. "
            "Free disk space or add a disk, then retry"
        ) from error


def give_back(files: Files, segment: Segment) -> None:
    """Free the blocks that were reserved behind the segment's end."""
    if segment.reserved_end > segment.size:
        segment.reserved_end = 0
        try:
            files.get(segment.path).truncate(segment.size)
        except OSError as error:
            raise DiskFullError(f"{segment.path} could not be closed: {error.strerror}; retry") from error
