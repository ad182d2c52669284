"""Deletion in two steps: a rename that is atomic and can be undone by hand, and the removal later, off the loop."""

from headrace.host.disk import Disk
from headrace.log.segment import INDEX_SUFFIX, LOG_SUFFIX, TIMEINDEX_SUFFIX


class Trash:
    """A folder beside the partitions. What lies in it at start-up is removed at start-up. Blocks."""

    def __init__(self, disk: Disk, directory: str) -> None:
        self._disk = disk
        self._directory = directory
        disk.make_directory(directory)

    def take_segment(self, stem: str) -> None:
        """Move a segment's files away. The log first: an index without a log is nothing, a log without one is whole."""
        directory, _, name = stem.rpartition("/")
        partition = directory.rpartition("/")[2]
        for suffix in (LOG_SUFFIX, INDEX_SUFFIX, TIMEINDEX_SUFFIX):
            if self._disk.exists(stem + suffix):
                self._disk.rename(stem + suffix, f"{self._directory}/{partition}-{name}{suffix}")
        self._disk.sync_directory(directory)

    def take_directory(self, path: str) -> None:
        """Move a whole partition away."""
        parent, _, name = path.rpartition("/")
        self._disk.rename(path, f"{self._directory}/{name}")
        self._disk.sync_directory(parent)

    def empty(self) -> None:
        for name in self._disk.list_directory(self._directory):
            path = f"{self._directory}/{name}"
            if "." in name:
                self._disk.remove(path)
            else:
                self._disk.remove_tree(path)
