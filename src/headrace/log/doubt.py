"""A mark beside the files of a partition whose sync failed (failure row 15).

After a failed sync the page cache shows bytes that the device may lack, and the kernel will never write them again: a
recovery in a new process would read them, sync in vain, and believe them durable. So whoever sees a sync fail leaves
this mark, and a recovery that finds it writes what it read once more before it syncs. The mark itself is not synced: it
has to live exactly as long as the page cache that it speaks of. Blocks.
"""

import logging

from headrace.host.disk import Disk, File, write_fully

_NAME = "doubtful"
_CHUNK_BYTES = 1024 * 1024

log = logging.getLogger(__name__)


def leave_mark(disk: Disk, directory: str) -> None:
    try:
        disk.open(f"{directory}/{_NAME}", create=True).close()
    except OSError as error:
        log.critical("no mark of a failed sync could be left", extra={"directory": directory, "error": str(error)})


def has_mark(disk: Disk, directory: str) -> bool:
    return disk.exists(f"{directory}/{_NAME}")


def take_mark(disk: Disk, directory: str) -> None:
    disk.remove(f"{directory}/{_NAME}")


def write_again(file: File, position: int, end: int) -> None:
    """Make a range of a file dirty again, as it is, so that the next sync brings it to the device."""
    while position < end:
        data = file.pread(position, min(_CHUNK_BYTES, end - position))
        position += write_fully(file, [data], position)
