"""What has to be synced for a promise to hold: decided on the event loop, carried out in a thread."""

from typing import NamedTuple

from headrace.host.disk import Disk, File, parent_directory
from headrace.log import doubt
from headrace.log.segment import Segment
from headrace.model.ids import Offset


class FlushPlan(NamedTuple):
    """Files to sync so that everything below `upto` is durable."""

    upto: Offset
    sizes: list[tuple[Segment, int]]
    files: list[File]
    active: Segment
    directory: str | None  # to be synced too, where the active segment's name is not yet durable

    def run(self, disk: Disk) -> None:
        """Blocks. Oldest first, so that what is durable is always a prefix."""
        try:
            for file in self.files:
                file.fdatasync()
            if self.directory is not None:
                disk.sync_directory(self.directory)
        except OSError:
            doubt.leave_mark(disk, parent_directory(self.active.path))
            raise
