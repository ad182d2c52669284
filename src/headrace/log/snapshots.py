"""Where folds keep their snapshots: `folds/<name>-<offset>.snapshot`. The bytes are the folds' own. Blocks."""

import re
from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

from headrace.host.disk import Disk, read_large_file, replacing, write_fully
from headrace.model.batch import Buffer

_NAME = re.compile(r"(?P<name>[a-z][a-z0-9_-]*)-(?P<offset>\d{20})\.snapshot")


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


def save(disk: Disk, directory: str, snapshot: TakenSnapshot) -> None:
    pieces: Iterable[tuple[int, Buffer]] = [(0, snapshot.data)] if isinstance(snapshot, Snapshot) else snapshot.encode()
    with replacing(disk, directory, _file_name(snapshot.name, snapshot.offset)) as file:
        for position, data in pieces:
            write_fully(file, [data], position)


def load(disk: Disk, directory: str, name: str, *, upto: int) -> Iterator[Snapshot]:
    """All snapshots of one fold that the log covers, newest first, each read when it is asked for."""
    for found, offset in sorted(_listed(disk, directory), reverse=True):
        if found == name and offset <= upto:
            yield Snapshot(name, offset, read_large_file(disk, f"{directory}/{_file_name(name, offset)}"))


def remove_others(disk: Disk, directory: str, name: str, *, keep: int) -> None:
    """Remove a fold's snapshots but one. No sync: an old one that comes back is merely old."""
    for found, offset in _listed(disk, directory):
        if found == name and offset != keep:
            disk.remove(f"{directory}/{_file_name(name, offset)}")


def remove_above(disk: Disk, directory: str, upto: int) -> None:
    """Remove every snapshot that speaks of entries which a truncation took away."""
    for name, offset in _listed(disk, directory):
        if offset > upto:
            disk.remove(f"{directory}/{_file_name(name, offset)}")
    disk.sync_directory(directory)


def _file_name(name: str, offset: int) -> str:
    return f"{name}-{offset:020d}.snapshot"


def _listed(disk: Disk, directory: str) -> list[tuple[str, int]]:
    if not disk.exists(directory):
        return []
    matches = (_NAME.fullmatch(entry) for entry in disk.list_directory(directory))
    return [(match["name"], int(match["offset"])) for match in matches if match]
