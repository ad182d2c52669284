"""The only way to a file. Calls block: callers that must not block go through `Threads`.

What is written is in the page cache; `fdatasync` makes it durable; a new name is durable once its directory was synced.
Every call may raise OSError. A failed `fdatasync` leaves the file's unsynced bytes in an unknown state for ever
(the kernel drops the dirty mark), so nobody may call it again and believe the answer.
"""

import ctypes
import errno
import mmap
import os
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Protocol

from headrace.model.batch import Buffer


class File(Protocol):
    @property
    def path(self) -> str: ...

    def size(self) -> int: ...

    def pwritev(self, buffers: Sequence[Buffer], position: int) -> int:
        """Write at a position and return how many bytes were taken, which may be fewer than given."""

    def pread(self, position: int, size: int) -> bytes:
        """Read at a position; fewer bytes only at the end of the file."""

    def pread_cached(self, position: int, size: int) -> bytes | bytearray | None:
        """Like pread, and None at once where any of the bytes would have to come from the device."""

    def fdatasync(self) -> None: ...

    def write_through(self, data: Buffer, position: int) -> None:
        """Write all of it and make it durable: `pwritev` and `fdatasync` with one call of the kernel where it has one.

        It says nothing of what was written before. A failure is that of a failed `fdatasync`.
        """

    def truncate(self, size: int) -> None:
        """Set the size. What was reserved behind it is given back."""

    def reserve(self, position: int, size: int) -> None:
        """Have blocks ready for bytes to come, without changing the file's size. A hint: where it cannot be, it is not.

        Writing into reserved blocks costs the kernel a third less than making room with every write.
        """

    def allocate(self, size: int) -> None:
        """Grow the file to a size, with blocks for every byte of it. OSError where the disk has not as many."""

    def close(self) -> None: ...


class Disk(Protocol):
    def open(self, path: str, *, create: bool = False) -> File:
        """Open for reading and writing. With `create`, make an empty file where there is none."""

    def exists(self, path: str) -> bool: ...

    def list_directory(self, path: str) -> list[str]:
        """Names in a directory, sorted."""

    def make_directory(self, path: str) -> None:
        """Make a directory and its parents; no error if it is there. Its name is durable once the parent was synced."""

    def rename(self, old: str, new: str) -> None:
        """Atomic; replaces a file of the new name."""

    def remove(self, path: str) -> None: ...

    def remove_tree(self, path: str) -> None: ...

    def sync_directory(self, path: str) -> None: ...

    def free_bytes(self, path: str) -> int:
        """Bytes that may still be written to the file system that holds the path."""


_FALLOC_FL_KEEP_SIZE = 1
_fallocate = getattr(ctypes.CDLL(None), "fallocate", None)
if _fallocate is not None:
    _fallocate.argtypes = [ctypes.c_int, ctypes.c_int, ctypes.c_longlong, ctypes.c_longlong]


class SystemFile:
    __slots__ = ("_fd", "_path")

    def __init__(self, path: str, fd: int) -> None:
        self._path = path
        self._fd = fd

    @property
    def path(self) -> str:
        return self._path

    def size(self) -> int:
        return os.fstat(self._fd).st_size

    def pwritev(self, buffers: Sequence[Buffer], position: int) -> int:
        return os.pwritev(self._fd, buffers, position)

    def pread(self, position: int, size: int) -> bytes:
        data = os.pread(self._fd, size, position)
        if len(data) == size or not data:
            return data
        parts = [data]
        got = len(data)
        while got < size:
            data = os.pread(self._fd, size - got, position + got)
            if not data:
                break
            parts.append(data)
            got += len(data)
        return b"".join(parts)

    def pread_cached(self, position: int, size: int) -> bytes | bytearray | None:
        buffer = bytearray(size)
        try:
            got = os.preadv(self._fd, [buffer], position, os.RWF_NOWAIT)
        except BlockingIOError:
            return None
        except OSError as error:
            # A file system without RWF_NOWAIT (some network and overlay ones): every read is a cold one.
            if error.errno in (errno.EOPNOTSUPP, errno.EINVAL):
                return None
            raise
        if got == size:
            return buffer
        # Short: the end of the file, or only the first pages were cached.
        if position + got >= self.size():
            del buffer[got:]
            return buffer
        return None

    def fdatasync(self) -> None:
        os.fdatasync(self._fd)

    def write_through(self, data: Buffer, position: int) -> None:
        try:
            written = os.pwritev(self._fd, [data], position, os.RWF_DSYNC)
        except OSError as error:
            if error.errno != errno.EOPNOTSUPP:  # a file system that knows no such flag
                raise
            written = 0
        if written < len(data):
            write_fully(self, [memoryview(data)[written:]], position + written)
            os.fdatasync(self._fd)

    def truncate(self, size: int) -> None:
        os.ftruncate(self._fd, size)

    def reserve(self, position: int, size: int) -> None:
        if _fallocate is not None:
            _fallocate(self._fd, _FALLOC_FL_KEEP_SIZE, position, size)

    def allocate(self, size: int) -> None:
        os.posix_fallocate(self._fd, 0, size)

    def close(self) -> None:
        os.close(self._fd)


class SystemDisk:
    """The machine's file system."""

    def open(self, path: str, *, create: bool = False) -> File:
        flags = os.O_RDWR | os.O_CLOEXEC | (os.O_CREAT if create else 0)
        return SystemFile(path, os.open(path, flags, 0o600))

    def exists(self, path: str) -> bool:
        return os.path.exists(path)

    def list_directory(self, path: str) -> list[str]:
        return sorted(os.listdir(path))

    def make_directory(self, path: str) -> None:
        os.makedirs(path, mode=0o700, exist_ok=True)

    def rename(self, old: str, new: str) -> None:
        os.replace(old, new)

    def remove(self, path: str) -> None:
        os.unlink(path)

    def remove_tree(self, path: str) -> None:
        shutil.rmtree(path)

    def sync_directory(self, path: str) -> None:
        fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)

    def free_bytes(self, path: str) -> int:
        status = os.statvfs(path)
        return status.f_bavail * status.f_frsize


def parent_directory(path: str) -> str:
    """The directory that holds a path's name."""
    head, slash, _ = path.rstrip("/").rpartition("/")
    return head or (slash or ".")


def write_fully(file: File, buffers: Sequence[Buffer], position: int) -> int:
    """Write all of the buffers, however short the single writes are, and return the bytes written."""
    total = sum(len(buffer) for buffer in buffers)
    written = file.pwritev(buffers, position) if len(buffers) <= _IOV_MAX else 0
    if written == total:
        return total
    rest = [memoryview(buffer) for buffer in buffers]
    skip = written
    while written < total:
        while rest and skip >= len(rest[0]):
            skip -= len(rest[0])
            del rest[0]
        if skip:
            rest[0] = rest[0][skip:]
        skip = file.pwritev(rest[:_IOV_MAX], position + written)
        if skip <= 0:
            raise OSError(errno.EIO, "the disk took no bytes", file.path)
        written += skip
    return total


def write_atomically(disk: Disk, directory: str, name: str, data: bytes) -> None:
    """Replace a small file: file, rename, directory, synced in that order, so a crash leaves the old or the new."""
    with replacing(disk, directory, name) as file:
        write_fully(file, [data], 0)


@contextmanager
def replacing(disk: Disk, directory: str, name: str) -> Iterator[File]:
    """The same for a larger one, which the caller writes. It takes the old one's place where nothing went wrong."""
    path = f"{directory}/{name}"
    temporary = f"{path}.tmp"
    file = disk.open(temporary, create=True)
    try:
        file.truncate(0)
        yield file
        file.fdatasync()
    finally:
        file.close()
    disk.rename(temporary, path)
    disk.sync_directory(directory)


def read_file(disk: Disk, path: str) -> bytes:
    file = disk.open(path)
    try:
        return file.pread(0, file.size())
    finally:
        file.close()


def read_large_file(disk: Disk, path: str) -> memoryview:
    """Read a file into memory of its own, which the system has back as soon as nobody looks at it any more.

    What the C library has allocated in a thread for a moment, it mostly keeps.
    """
    file = disk.open(path)
    try:
        size = file.size()
        memory = mmap.mmap(-1, max(size, 1))
        for position in range(0, size, _PIECE_BYTES):
            data = file.pread(position, min(_PIECE_BYTES, size - position))
            memory[position : position + len(data)] = data
        return memoryview(memory)[:size]
    finally:
        file.close()


_PIECE_BYTES = 256 * 1024
_IOV_MAX = 1024
