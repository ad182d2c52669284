"""A disk in memory that loses power, fails, fills up and writes short, all from one seed.

Theory of operation. A file has two images, what the page cache shows and what the device holds (`image.py`). A
directory has two tables of names likewise. A change of names (create, rename, remove, make a directory) is one atomic
*change*; it shows at once, and is durable when a directory that it touches is synced. Syncing a file does not make its
name durable. `crash` keeps any subset of the changes that are not durable, except that a change is lost when an earlier
one of the same name was lost, and any subset of each file's unsynced sectors. Handles from before the crash answer
EBADF.

The model is as harsh as POSIX allows and harsher than ext4 is: code that survives here relies on no file system's
kindness.
"""

import copy
import errno
import os
from collections import Counter
from collections.abc import Callable, Sequence
from typing import NamedTuple

from headrace.host.disk import write_fully
from headrace.model.batch import Buffer
from headrace.testing.fault import Fault, Operation
from headrace.testing.image import FileImage
from headrace.testing.rand import Chooser

_IOV_MAX = 1024
_UNLIMITED_FREE_BYTES = 1 << 40


class Directory:
    """Names as they show and as the device has them."""

    __slots__ = ("cached", "durable")

    def __init__(self) -> None:
        self.cached: dict[str, Node] = {}
        self.durable: dict[str, Node] = {}


Node = Directory | FileImage


class Edit(NamedTuple):
    """One name that a change gives to a node, or takes away."""

    directory: Directory
    name: str
    node: Node | None


Change = tuple[Edit, ...]


class SimulatedFile:
    """A `headrace.host.disk.File`."""

    __slots__ = ("_disk", "_generation", "_image", "_open", "_path")

    def __init__(self, disk: "SimulatedDisk", path: str, image: FileImage) -> None:
        self._disk = disk
        self._path = path
        self._image = image
        self._generation = disk.generation
        self._open = True

    @property
    def path(self) -> str:
        return self._path

    def size(self) -> int:
        self._enter("size")
        return len(self._image.cached)

    def pwritev(self, buffers: Sequence[Buffer], position: int) -> int:
        self._enter("pwritev")
        if position < 0 or len(buffers) > _IOV_MAX:
            raise _error(errno.EINVAL, self._path)
        data = b"".join(buffers)
        taken = len(data)
        if self._disk.short_writes is not None and taken > 1:
            taken = self._disk.short_writes(taken)
        taken = self._disk.reserve(self._image, position, taken, self._path)
        self._image.write(data[:taken], position)
        return taken

    def pread(self, position: int, size: int) -> bytes:
        self._enter("pread")
        return bytes(self._image.cached[position : position + size])

    def pread_cached(self, position: int, size: int) -> bytes | bytearray | None:
        self._enter("pread_cached")
        if self._image.cold or self._disk.all_cold:
            return None
        return self._image.cached[position : position + size]

    def fdatasync(self) -> None:
        try:
            self._enter("fdatasync")
        except OSError as error:
            if error.errno != errno.EBADF:
                self._image.fail_sync()
            raise
        self._image.sync()

    def write_through(self, data: Buffer, position: int) -> None:
        """As harsh as both in turn: a crash or a failure may come between them."""
        write_fully(self, [data], position)
        self.fdatasync()

    def truncate(self, size: int) -> None:
        self._enter("truncate")
        if size < 0:
            raise _error(errno.EINVAL, self._path)
        grown = size - len(self._image.cached)
        if grown > 0 and self._disk.reserve(self._image, len(self._image.cached), grown, self._path) < grown:
            raise _error(errno.ENOSPC, self._path)
        self._image.truncate(size)

    def reserve(self, position: int, size: int) -> None:
        """Reserved blocks are not modelled: no byte is promised by them."""

    def allocate(self, size: int) -> None:
        self.truncate(max(size, self.size()))

    def close(self) -> None:
        self._enter("close")
        self._open = False

    def _enter(self, operation: Operation) -> None:
        if not self._open or self._generation != self._disk.generation:
            raise _error(errno.EBADF, self._path)
        self._disk.enter(operation, self._path)


class SimulatedDisk:
    """A `headrace.host.disk.Disk`. Every path hangs from one root, which is there from the start."""

    def __init__(self, *, capacity_bytes: int | None = None) -> None:
        self.capacity_bytes = capacity_bytes
        # Given how many bytes a write offers, says how many are taken.
        self.short_writes: Callable[[int], int] | None = None
        # Called before every operation, for instance to let a simulated clock pass.
        self.on_call: Callable[[Operation, str], None] | None = None
        self.all_cold = False
        self.calls: Counter[Operation] = Counter()
        self.generation = 0
        self._root = Directory()
        self._changes: list[Change] = []
        self._faults: list[Fault] = []

    # The Disk protocol.

    def open(self, path: str, *, create: bool = False) -> SimulatedFile:
        self.enter("open", path)
        directory, name = self._parent(path)
        node = directory.cached.get(name)
        if node is None and create:
            node = FileImage()
            self._change(Edit(directory, name, node))
        if node is None:
            raise _error(errno.ENOENT, path)
        if isinstance(node, Directory):
            raise _error(errno.EISDIR, path)
        return SimulatedFile(self, path, node)

    def exists(self, path: str) -> bool:
        self.enter("exists", path)
        return self._find(path) is not None

    def list_directory(self, path: str) -> list[str]:
        self.enter("list_directory", path)
        return sorted(self._directory(path).cached)

    def make_directory(self, path: str) -> None:
        self.enter("make_directory", path)
        directory = self._root
        for name in _parts(path):
            node = directory.cached.get(name)
            if node is None:
                node = Directory()
                self._change(Edit(directory, name, node))
            if not isinstance(node, Directory):
                raise _error(errno.EEXIST, path)
            directory = node

    def rename(self, old: str, new: str) -> None:
        self.enter("rename", old)
        from_directory, old_name = self._parent(old)
        to_directory, new_name = self._parent(new)
        node = from_directory.cached.get(old_name)
        replaced = to_directory.cached.get(new_name)
        if node is None:
            raise _error(errno.ENOENT, old)
        if node is replaced:
            return
        if isinstance(node, Directory) and isinstance(replaced, FileImage):
            raise _error(errno.ENOTDIR, new)
        if isinstance(replaced, Directory):
            if isinstance(node, FileImage):
                raise _error(errno.EISDIR, new)
            if replaced.cached:
                raise _error(errno.ENOTEMPTY, new)
        self._change(Edit(from_directory, old_name, None), Edit(to_directory, new_name, node))

    def remove(self, path: str) -> None:
        self.enter("remove", path)
        directory, name = self._parent(path)
        node = directory.cached.get(name)
        if node is None:
            raise _error(errno.ENOENT, path)
        if isinstance(node, Directory):
            raise _error(errno.EISDIR, path)
        self._change(Edit(directory, name, None))

    def remove_tree(self, path: str) -> None:
        self.enter("remove_tree", path)
        self._directory(path)
        self._remove_tree(*self._parent(path))

    def sync_directory(self, path: str) -> None:
        self.enter("sync_directory", path)
        self._make_durable(self._directory(path))

    def free_bytes(self, path: str) -> int:
        self.enter("free_bytes", path)
        if self._find(path) is None:
            raise _error(errno.ENOENT, path)
        return self._free_bytes()

    # What a test does to it.

    def fail(
        self, operation: Operation, *, nth: int = 1, times: int = 1, error: int = errno.EIO, path_part: str = ""
    ) -> None:
        """Make the Nth matching call from now on fail, and the next ones up to `times`. -1 times: for ever."""
        self._faults.append(Fault(operation, skip=nth - 1, times=times, error=error, path_part=path_part))

    def heal(self) -> None:
        """Forget the planted failures that have not struck, the short writes and the cold."""
        self._faults.clear()
        self.short_writes = None
        self.all_cold = False

    def make_cold(self, path: str, *, cold: bool = True) -> None:
        """Let `pread_cached` find nothing of a file in the cache."""
        self._image(path).cold = cold

    def flip_bit(self, path: str, bit_index: int) -> None:
        """Damage one bit of a file, in the cache and on the device. Bit 0 is the lowest of the first byte."""
        self._image(path).flip_bit(bit_index)

    def overwrite(self, path: str, data: bytes) -> None:
        """Replace a file's bytes, durably, as damage or an operator would: no call is counted, no fault strikes."""
        image = self._image(path)
        image.truncate(0)
        image.write(data, 0)
        image.sync()

    def write_back(self, rand: Chooser) -> None:
        """Let the kernel write some dirty sectors by itself, which it may do at any time."""
        for image in _images(self._root):
            image.write_back(rand)

    def crash(self, rand: Chooser) -> None:
        """Lose power and come back. What was synced is there; of the rest, what the chooser kept."""
        self.generation += 1
        lost: set[tuple[int, str]] = set()
        for change in self._changes:
            names = {(id(edit.directory), edit.name) for edit in change}
            if names & lost or rand.random() < 0.5:
                lost |= names
            else:
                _apply_durably(change)
        self._changes.clear()
        self._reload(self._root)
        for image in _images(self._root):
            image.crash(rand)

    def copy(self) -> "SimulatedDisk":
        """A second disk in the same state, synced and unsynced. Faults, counters and open handles stay behind."""
        twin = SimulatedDisk(capacity_bytes=self.capacity_bytes)
        twin._root, twin._changes = copy.deepcopy((self._root, self._changes))
        return twin

    def files(self) -> dict[str, bytes]:
        """Every file as the cache shows it, by path from the root."""
        found: dict[str, bytes] = {}

        def walk(directory: Directory, prefix: str) -> None:
            for name, node in sorted(directory.cached.items()):
                if isinstance(node, Directory):
                    walk(node, f"{prefix}/{name}")
                else:
                    found[f"{prefix}/{name}"] = bytes(node.cached)

        walk(self._root, "")
        return found

    # For the file handles.

    def enter(self, operation: Operation, path: str) -> None:
        """Count a call, let it take its time, and fail it where that was planted."""
        self.calls[operation] += 1
        if self.on_call is not None:
            self.on_call(operation, path)
        for fault in self._faults:
            if fault.strikes(operation, path):
                raise _error(fault.error, path)

    def reserve(self, image: FileImage, position: int, size: int, path: str) -> int:
        """How much of a write fits on the disk."""
        if self.capacity_bytes is None or size == 0:
            return size
        fits = len(image.cached) + self._free_bytes() - position
        if fits <= 0:
            raise _error(errno.ENOSPC, path)
        return min(size, fits)

    # Names.

    def _find(self, path: str) -> Node | None:
        node: Node = self._root
        for name in _parts(path):
            child = node.cached.get(name) if isinstance(node, Directory) else None
            if child is None:
                return None
            node = child
        return node

    def _directory(self, path: str) -> Directory:
        node = self._find(path)
        if node is None:
            raise _error(errno.ENOENT, path)
        if not isinstance(node, Directory):
            raise _error(errno.ENOTDIR, path)
        return node

    def _image(self, path: str) -> FileImage:
        node = self._find(path)
        if not isinstance(node, FileImage):
            raise _error(errno.ENOENT, path)
        return node

    def _parent(self, path: str) -> tuple[Directory, str]:
        parts = _parts(path)
        if not parts:
            raise _error(errno.EBUSY, path)
        return self._directory("/".join(parts[:-1])), parts[-1]

    def _change(self, *edits: Edit) -> None:
        for directory, name, node in edits:
            if node is None:
                del directory.cached[name]
            else:
                directory.cached[name] = node
        self._changes.append(edits)

    def _remove_tree(self, directory: Directory, name: str) -> None:
        node = directory.cached[name]
        if isinstance(node, Directory):
            for child in sorted(node.cached):
                self._remove_tree(node, child)
        self._change(Edit(directory, name, None))

    def _make_durable(self, directory: Directory) -> None:
        """Apply every change that touches the directory, and before each the earlier changes of the same names."""
        wanted: set[tuple[int, str]] = set()
        chosen: list[Change] = []
        left: list[Change] = []
        for change in reversed(self._changes):
            names = {(id(edit.directory), edit.name) for edit in change}
            if names & wanted or any(edit.directory is directory for edit in change):
                wanted |= names
                chosen.append(change)
            else:
                left.append(change)
        for change in reversed(chosen):
            _apply_durably(change)
        self._changes = left[::-1]

    def _reload(self, directory: Directory) -> None:
        directory.cached = dict(directory.durable)
        for node in directory.cached.values():
            if isinstance(node, Directory):
                self._reload(node)

    def _free_bytes(self) -> int:
        if self.capacity_bytes is None:
            return _UNLIMITED_FREE_BYTES
        used = sum(len(image.cached) for image in _images(self._root))
        return max(self.capacity_bytes - used, 0)


def _apply_durably(change: Change) -> None:
    for directory, name, node in change:
        if node is None:
            directory.durable.pop(name, None)
        else:
            directory.durable[name] = node


def _images(directory: Directory) -> list[FileImage]:
    """Every file below a directory, in the order of the paths, so that choices do not depend on history."""
    found: list[FileImage] = []
    for _, node in sorted(directory.cached.items()):
        if isinstance(node, Directory):
            found.extend(_images(node))
        else:
            found.append(node)
    return found


def _parts(path: str) -> list[str]:
    return [part for part in path.split("/") if part not in ("", ".")]


def _error(number: int, path: str) -> OSError:
    return OSError(number, os.strerror(number), path)
