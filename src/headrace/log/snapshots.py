"""The published snapshots of folds: `folds/<name>-<offset>.snapshot`. The bytes are the folds' own. Blocks.

Theory of operation. From the first cleaning on, a fold follows from a snapshot and the log behind it, so a snapshot is
data like the log, and is treated so:

    freeze     a fold's state at the log's end is taken down in memory, at a checkpoint
    publish    it is written once the committed offset has reached that end: what may still be replaced by another
               leader's entries never gets into a file
    keep two   then the third-newest is removed. Nothing is cleaned above the older one (`Progress.older`), so either of
               the two and the log behind it make the same state

Two may be of one offset, where nothing was appended in between and something had to be cleaned all the same. The second
one is then called a copy: `<name>-<offset>.1.snapshot`.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple

from headrace.host.disk import Disk, read_large_file, replacing, write_fully
from headrace.model.batch import Buffer

_NAME = re.compile(r"(?P<name>[a-z][a-z0-9_-]*)-(?P<offset>\d{20})(\.(?P<copy>\d))?\.snapshot")


class Snapshot(NamedTuple):
    """A fold's state after every entry below an offset."""

    name: str
    offset: int
    data: Buffer


class FrozenSnapshot(NamedTuple):
    """The same, taken down in little time: its bytes are made when they are saved, in the thread that does.

    They come in pieces, each with its position, so that they are never in memory as a whole.
    """

    name: str
    offset: int
    encode: Callable[[], Iterable[tuple[int, bytes]]]


TakenSnapshot = Snapshot | FrozenSnapshot


class SnapshotFile(NamedTuple):
    """A published snapshot of some fold. A later copy of the same offset is the newer one."""

    offset: int
    copy: int = 0


class Publication(NamedTuple):
    """A snapshot that is to be written, and which files of its fold are kept then, newest first."""

    snapshot: TakenSnapshot
    file: SnapshotFile | None  # None: two of this offset are there
    kept: list[SnapshotFile]


def older_of(kept: Iterable[Sequence[SnapshotFile]]) -> int:
    """Below this offset no fold needs an entry, from whichever of its two snapshots it is restored."""
    return min((files[1].offset if len(files) > 1 else 0 for files in kept), default=0)


def plan_publication(snapshot: TakenSnapshot, kept: Sequence[SnapshotFile]) -> Publication:
    """How a snapshot is published beside those that are there, newest first."""
    offset = snapshot.offset
    same = [file for file in kept if file.offset == offset]
    if len(same) > 1:
        return Publication(snapshot, None, same)
    file = SnapshotFile(offset, 1 - same[0].copy if same else 0)
    return Publication(snapshot, file, [file, *kept[:1]])


def save(disk: Disk, directory: str, snapshot: TakenSnapshot, *, copy: int = 0) -> None:
    pieces: Iterable[tuple[int, Buffer]] = [(0, snapshot.data)] if isinstance(snapshot, Snapshot) else snapshot.encode()
    with replacing(disk, directory, _file_name(snapshot.name, SnapshotFile(snapshot.offset, copy))) as file:
        for position, data in pieces:
            write_fully(file, [data], position)


def newest(disk: Disk, directory: str, *, upto: int) -> dict[str, list[SnapshotFile]]:
    """The newest two files of each fold, newest first. Whether they are sound is not known."""
    found: dict[str, list[SnapshotFile]] = {}
    for name, file in sorted(_listed(disk, directory), reverse=True):
        kept = found.setdefault(name, [])
        if file.offset <= upto and len(kept) < 2:
            kept.append(file)
    return found


class Loaded(NamedTuple):
    """A snapshot that was read, and the files that are kept if it is sound: its own, and the next older one."""

    snapshot: Snapshot
    kept: list[SnapshotFile]


def load(disk: Disk, directory: str, name: str, *, upto: int) -> Iterator[Loaded]:
    """All snapshots of one fold that the log covers, newest first, each read when it is asked for."""
    files = sorted((file for found, file in _listed(disk, directory) if found == name), reverse=True)
    files = [file for file in files if file.offset <= upto]
    for at, file in enumerate(files):
        data = read_large_file(disk, f"{directory}/{_file_name(name, file)}")
        yield Loaded(Snapshot(name, file.offset, data), files[at : at + 2])


def remove_others(disk: Disk, directory: str, publication: Publication) -> None:
    """Remove a fold's snapshots but those that are kept. No sync: an old one that comes back is merely old."""
    for found, file in _listed(disk, directory):
        if found == publication.snapshot.name and file not in publication.kept:
            disk.remove(f"{directory}/{_file_name(found, file)}")


def remove_above(disk: Disk, directory: str, upto: int) -> None:
    """Remove every snapshot that speaks of entries which a truncation took away."""
    for name, file in _listed(disk, directory):
        if file.offset > upto:
            disk.remove(f"{directory}/{_file_name(name, file)}")
    disk.sync_directory(directory)


def _file_name(name: str, file: SnapshotFile) -> str:
    return f"{name}-{file.offset:020d}{f'.{file.copy}' if file.copy else ''}.snapshot"


def _listed(disk: Disk, directory: str) -> list[tuple[str, SnapshotFile]]:
    if not disk.exists(directory):
        return []
    matches = (_NAME.fullmatch(entry) for entry in disk.list_directory(directory))
    return [(match["name"], SnapshotFile(int(match["offset"]), int(match["copy"] or 0))) for match in matches if match]
