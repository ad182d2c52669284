"""Which partitions this node has made: the file `made` of the data directory.

A partition whose files are not there was either never made, because a crash or a full disk came between its metadata
and its files, or its files are lost: a volume is not mounted, somebody moved a folder. The first is completed. The
second must not be, or the topic would be empty and its offsets would be given a second time. So a partition is written
down here after its files are durable and before anybody may write to it.

One line for each, with a checksum, and new ones at the end. A line that is torn or damaged says nothing, which is what
was known before it was written. What no longer exists is left out when the node starts.

The file itself is the first thing that is made in a new data directory. Where there is none beside other files, it was
lost: what is there is written down again, and what is not there is taken for lost too.
"""

from collections.abc import Iterable

from headrace.host.disk import Disk, read_file, write_atomically, write_fully
from headrace.model.ids import PartitionId
from headrace.wire.crc import crc32c

NAME = "made"


class Made:
    def __init__(self, disk: Disk, directory: str) -> None:
        self._disk = disk
        self._directory = directory
        self._names: set[str] = set()
        self._size: int | None = None  # bytes of the file; None where it has to be written as a whole
        self.is_lost = False  # there is no such file, and there was one: any partition may have been made

    def __contains__(self, id: PartitionId) -> bool:
        return self.is_lost or id.directory in self._names

    def __len__(self) -> int:
        return len(self._names)

    def load(self, *, is_new: bool) -> None:
        """Read the file, or make it where the data directory is new. Blocks."""
        path = f"{self._directory}/{NAME}"
        if not self._disk.exists(path):
            self.is_lost = not is_new
            if is_new:
                self._replace(set())
            return
        data = read_file(self._disk, path)
        names = []
        for line in data.splitlines():
            crc, _, name = line.partition(b" ")
            if crc == b"%08x" % crc32c(name):
                names.append(name.decode())
        self._names.update(names)
        if data == _lines(names):
            self._size = len(data)

    def add(self, ids: Iterable[PartitionId]) -> None:
        """Write partitions down. Blocks; one call at a time."""
        new = {id.directory for id in ids} - self._names
        if self._size is None:
            self._replace(self._names | new)
        elif new:
            self._append(new, self._size)

    def _append(self, names: set[str], size: int) -> None:
        data = _lines(sorted(names))
        self._size = None  # what a failure leaves in the file is not known
        file = self._disk.open(f"{self._directory}/{NAME}")
        try:
            write_fully(file, [data], size)
            file.fdatasync()
        finally:
            file.close()
        self._names |= names
        self._size = size + len(data)

    def keep(self, ids: Iterable[PartitionId]) -> None:
        """Have exactly these written down. Blocks."""
        names = {id.directory for id in ids}
        self.is_lost = False
        if names != self._names or self._size is None:
            self._replace(names)

    def _replace(self, names: set[str]) -> None:
        data = _lines(sorted(names))
        self._names, self._size = names, None
        write_atomically(self._disk, self._directory, NAME, data)
        self._size = len(data)


def _lines(names: Iterable[str]) -> bytes:
    return b"".join(b"%08x %s\n" % (crc32c(name.encode()), name.encode()) for name in names)
