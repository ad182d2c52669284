"""Space that a node holds back for itself, for the time when the disk is full.

It is a file that holds blocks and no data. What must be written at a full disk (acknowledgements, deletions, what a
start writes) goes on after a piece of the file was cut off; the file grows again when there is space. A piece at a
time, because another program that fills the disk takes whatever is free.
"""

import errno
import logging
import threading
from collections.abc import Callable
from typing import TypeVar

from headrace.host.disk import Disk

T = TypeVar("T")

NAME = "ballast"
_PIECE_BYTES = 1024 * 1024
_NO_ROOM = frozenset({errno.ENOSPC, errno.EDQUOT})

_logger = logging.getLogger(__name__)


def is_no_room(error: OSError) -> bool:
    """Whether a call failed for lack of space alone: it can be repeated once there is some."""
    return error.errno in _NO_ROOM


class Ballast:
    """Any thread may call it. Every call blocks."""

    def __init__(self, disk: Disk, directory: str, *, size_bytes: int) -> None:
        self._disk = disk
        self._path = f"{directory}/{NAME}"
        self._size_bytes = size_bytes
        self._held_bytes = 0
        self._lock = threading.Lock()

    @property
    def missing_bytes(self) -> int:
        return self._size_bytes - self._held_bytes

    def open(self) -> None:
        """Find what an earlier run held back, and give back what is more than this run wants."""
        with self._lock:
            if self._disk.exists(self._path):
                self._held_bytes = self._resize(lambda held_bytes: min(held_bytes, self._size_bytes))

    def refill(self) -> None:
        """Hold back all that is wanted again. Where there is no room for that, nothing changes."""
        with self._lock:
            if self.missing_bytes > 0:
                self._held_bytes = self._resize(lambda _: self._size_bytes)

    def make_room(self) -> bool:
        """Give up a piece. False: none is left."""
        with self._lock:
            if not self._held_bytes:
                return False
            self._held_bytes = self._resize(lambda held_bytes: max(held_bytes - _PIECE_BYTES, 0))
        _logger.warning(
            "the disk is full; space that was held back is used",
            extra={"file": self._path, "left_bytes": self._held_bytes},
        )
        return True

    def insist(self, call: Callable[[], T]) -> T:
        """Make a call that may be repeated, and give up piece after piece as long as it finds no space."""
        while True:
            try:
                return call()
            except OSError as error:
                if not is_no_room(error) or not self.make_room():
                    raise

    def _resize(self, choose: Callable[[int], int]) -> int:
        file = self._disk.open(self._path, create=True)
        try:
            held_bytes = file.size()
            size_bytes = choose(held_bytes)
            if size_bytes > held_bytes:
                try:
                    file.allocate(size_bytes)
                except OSError:
                    file.truncate(held_bytes)
                    raise
            else:
                file.truncate(size_bytes)
            return size_bytes
        finally:
            file.close()
