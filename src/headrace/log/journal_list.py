"""Which files the journal consists of: the file `journal-files` of the data directory, outside of the journal's folder.

After a crash a journal file that is missing, or has become shorter, may have held messages that are nowhere else. So a
file is written down here with its size once it is durable, before any record goes into it, and struck off before it is
removed. One line for each, with a checksum; the whole list is replaced at once. Blocks.
"""

import logging
from collections.abc import Mapping

from headrace.host.disk import Disk, read_file, write_atomically
from headrace.wire.crc import crc32c

NAME = "journal-files"

log = logging.getLogger(__name__)


class JournalList:
    def __init__(self, disk: Disk, directory: str) -> None:
        self._disk = disk
        self._directory = directory
        self._sizes: dict[str, int] = {}
        self._is_known = False  # whether the file holds exactly these

    def load(self) -> dict[str, int] | None:
        """Sizes by name. None where there is no list, or a damaged one, which says nothing."""
        path = f"{self._directory}/{NAME}"
        if not self._disk.exists(path):
            return None
        data = read_file(self._disk, path)
        try:
            sizes = {name.decode(): int(size) for _, size, name in (line.split(b" ", 2) for line in data.splitlines())}
        except ValueError:
            sizes = {}
        if data != _lines(sizes):
            log.warning("list of journal files is damaged, and made anew", extra={"file": path})
            return None
        self._sizes, self._is_known = sizes, True
        return sizes

    def write(self, sizes: Mapping[str, int]) -> bool:
        """Have exactly these written down. False: that failed, and nothing that relies on it may be done."""
        if self._is_known and sizes == self._sizes:
            return True
        self._sizes, self._is_known = dict(sizes), False
        try:
            write_atomically(self._disk, self._directory, NAME, _lines(sizes))
        except OSError as error:
            log.warning("list of journal files could not be written", extra={"error": str(error)})
            return False
        self._is_known = True
        return True


def _lines(sizes: Mapping[str, int]) -> bytes:
    bodies = [b"%d %s" % (size, name.encode()) for name, size in sorted(sizes.items())]
    return b"".join(b"%08x %s\n" % (crc32c(body), body) for body in bodies)
