"""What has to be written and synced for a promise to hold: decided on the event loop, carried out in a thread."""

import logging
from typing import NamedTuple

from headrace.host.ballast import is_no_room
from headrace.host.disk import Disk, File, parent_directory, write_atomically
from headrace.log import checkpoint as checkpoint_file
from headrace.log import disk_error, doubt
from headrace.log.checkpoint import Checkpoint
from headrace.log.segment import Segment
from headrace.log.segment_writer import TailWrite
from headrace.model.ids import Offset

log = logging.getLogger(__name__)


class FlushPutOffError(OSError):
    """There was no space for what was deferred, or no descriptor to sync the directory with.

    No sync has failed, so nothing is in doubt: flush again later.
    """


class FlushPlan(NamedTuple):
    """Files to sync so that everything below `upto` is durable."""

    upto: Offset
    sizes: list[tuple[Segment, int]]
    files: list[File]
    active: Segment
    tail: TailWrite | None  # written before anything is synced
    directory: str | None  # to be synced too, where the active segment's name is not yet durable
    checkpoint: Checkpoint | None  # the last one with the new segment's name, written behind that

    def run(self, disk: Disk) -> None:
        """Blocks. Oldest first, so that what is durable is always a prefix."""
        try:
            if self.tail is not None:
                self._write(self.tail)
            for file in self.files:
                file.fdatasync()
            if self.directory is not None:
                self._sync(self.directory, disk)
                self._list(disk, self.directory)
        except FlushPutOffError:
            raise
        except OSError:
            doubt.leave_mark(disk, parent_directory(self.active.path))
            raise

    def _list(self, disk: Disk, directory: str) -> None:
        """Have the checkpoint name every segment, so that a start would miss one that is lost.

        Without it nothing of the data is in doubt. The next checkpoint has the names too.
        """
        if self.checkpoint is None:
            return
        try:
            write_atomically(disk, directory, checkpoint_file.NAME, checkpoint_file.encode(self.checkpoint))
        except OSError as error:
            log.warning("list of segments could not be written", extra={"directory": directory, "error": str(error)})

    def _write(self, tail: TailWrite) -> None:
        try:
            tail.run()
        except OSError as error:
            if is_no_room(error):
                raise FlushPutOffError(*error.args) from error
            raise

    def _sync(self, directory: str, disk: Disk) -> None:
        try:
            disk.sync_directory(directory)
        except OSError as error:
            if disk_error.is_no_descriptor(error):
                raise FlushPutOffError(*error.args) from error
            raise
