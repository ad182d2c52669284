"""What has to be written and synced for a promise to hold: decided on the event loop, carried out in a thread."""

from typing import NamedTuple

from headrace.host.disk import Disk, File, parent_directory
from headrace.log import doubt
from headrace.log.segment import Segment
from headrace.log.segment_writer import TailWrite
from headrace.model.ids import Offset


class FlushPlan(NamedTuple):
    """Files to sync so that everything below `upto` is durable."""

    upto: Offset
    sizes: list[tuple[Segment, int]]
    files: list[File]
    active: Segment
    tail: TailWrite | None  # written before anything is synced
    directory: str | None  # to be synced too, where the active segment's name is not yet durable

    def run(self, disk: Disk) -> None:
        """Blocks. Oldest first, so that what is durable is always a prefix."""
        try:
            if self.tail is not None:
                self.tail.run()
            for file in self.files:
                file.fdatasync()
            if self.directory is not None:
                disk.sync_directory(self.directory)
        except OSError:
            doubt.leave_mark(disk, parent_directory(self.active.path))
            raise
