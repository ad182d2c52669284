"""Open files, bounded: the least used is closed when there are too many (failure row 25).

A file with unsynced bytes is held open, because a descriptor opened later need not be told of a write error that
happened earlier; so is one that a thread is reading or syncing.
"""

from collections import OrderedDict

from headrace.host.disk import Disk, File
from headrace.log.space import Space


class Files:
    def __init__(self, disk: Disk, *, open_max: int, space: Space) -> None:
        self.space = space  # what may be written to all of them
        self._disk = disk
        self._open_max = open_max
        self._open: OrderedDict[str, File] = OrderedDict()
        self._holds: dict[str, int] = {}

    def __len__(self) -> int:
        return len(self._open)

    @property
    def has_room(self) -> bool:
        """Whether one more file may be held. Whoever would hold one waits until this is so."""
        return len(self._holds) < self._open_max

    def get(self, path: str) -> File:
        """The open file of this path, opened anew if it was closed meanwhile. Use it before the next get."""
        file = self._open.get(path)
        if file is not None:
            self._open.move_to_end(path)
            return file
        self._make_room()
        file = self._disk.open(path)
        self._open[path] = file
        return file

    def create(self, path: str) -> File:
        assert path not in self._holds, f"{path} is in use"
        self.close(path)
        self._make_room()
        file = self._disk.open(path, create=True)
        self._open[path] = file
        return file

    def hold(self, path: str) -> File:
        """Like get, and the file stays open until it was released as often as it was held."""
        file = self.get(path)
        self._holds[path] = self._holds.get(path, 0) + 1
        return file

    def release(self, path: str) -> None:
        count = self._holds[path] - 1
        if count:
            self._holds[path] = count
        else:
            del self._holds[path]

    def close(self, path: str) -> None:
        """Close one file, if it is open and nobody holds it."""
        if path not in self._holds:
            file = self._open.pop(path, None)
            if file is not None:
                file.close()

    def close_under(self, directory: str) -> None:
        """Close every file of a directory that nobody holds."""
        for path in [path for path in self._open if path.startswith(f"{directory}/")]:
            self.close(path)

    def close_all(self) -> None:
        for file in self._open.values():
            file.close()
        self._open.clear()
        self._holds.clear()

    def _make_room(self) -> None:
        if len(self._open) < self._open_max:
            return
        for path in list(self._open):
            if path not in self._holds:
                self._open.pop(path).close()
                if len(self._open) < self._open_max:
                    return
        # All of them are held. Reads go over the limit by one file each, for which descriptors are kept in reserve.
