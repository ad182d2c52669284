"""How much may still be written before the disk's reserve is reached (failure row 21).

The file system is asked once in a while, and in between every write is charged, so that a burst does not run into the
reserve. Where the charges say that it is reached, the file system is asked again: they count some bytes twice.
"""

import logging

from headrace.host.ballast import Ballast
from headrace.host.disk import Disk
from headrace.model.errors import DiskFullError

_logger = logging.getLogger(__name__)

# A send below this size that does not fit closes the door to all of them. A larger one is refused alone.
_SMALL_BYTES = 1024 * 1024


class Space:
    def __init__(self, disk: Disk, directory: str, *, reserve_bytes: int, ballast: Ballast) -> None:
        self.ballast = ballast
        self.is_full = False
        self.left_bytes = 0
        self._disk = disk
        self._directory = directory
        self._reserve_bytes = reserve_bytes
        self._deferred_bytes = 0  # accepted, and not yet in the file where they will be
        self._wanted_bytes = 0  # what must fit before sends are accepted again

    def check(self) -> None:
        """Ask the file system."""
        try:
            free_bytes = self._disk.free_bytes(self._directory)
        except OSError as error:
            _logger.warning("free disk space is not known", extra={"directory": self._directory, "error": str(error)})
            return
        self.left_bytes = free_bytes - self._reserve_bytes - self._deferred_bytes
        self._set_full(self.left_bytes < self._wanted_bytes)

    @property
    def can_refill(self) -> bool:
        """Whether the ballast can have back what it gave, without touching the reserve."""
        return 0 < self.ballast.missing_bytes <= self.left_bytes

    def admit(self, size: int) -> None:
        """Charge what a send is about to write, or refuse it because it would use the reserve."""
        if size > self.left_bytes:
            self.check()
            if size > self.left_bytes:
                if self.left_bytes < _SMALL_BYTES:
                    self._wanted_bytes = max(self._wanted_bytes, min(size, _SMALL_BYTES))
                    self._set_full(True)
                raise self.refusal()
        self.left_bytes -= size

    def charge(self, size: int) -> None:
        """Charge what is written in any case."""
        self.left_bytes -= size

    def defer(self, size: int) -> None:
        """Note bytes that are to be written to their file later; a negative size, that they were."""
        self._deferred_bytes += size

    def refusal(self) -> DiskFullError:
        return DiskFullError("the disk's reserve is reached; free space or add a disk, then retry")

    def _set_full(self, is_full: bool) -> None:
        if is_full == self.is_full:
            return
        self.is_full = is_full
        if is_full:
            _logger.error("disk reserve reached; sends are refused", extra={"directory": self._directory})
        else:
            self._wanted_bytes = 0
            _logger.warning("disk has space again; sends are accepted", extra={"directory": self._directory})
