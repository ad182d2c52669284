"""Where folds keep their snapshots: written in pieces, read one at a time."""

from collections.abc import Iterator

import pytest

from headrace.log import snapshots
from headrace.log.snapshots import FrozenSnapshot, Snapshot
from headrace.testing.disk import SimulatedDisk

DIRECTORY = "folds"


@pytest.fixture
def disk() -> SimulatedDisk:
    made = SimulatedDisk()
    made.make_directory(DIRECTORY)
    return made


def test_pieces_are_put_where_they_belong(disk: SimulatedDisk) -> None:
    pieces = [(4, b"state"), (9, b" and more"), (0, b"HEAD")]
    snapshots.save(disk, DIRECTORY, FrozenSnapshot("fold", 7, lambda: pieces))
    assert list(snapshots.load(disk, DIRECTORY, "fold", upto=7)) == [("fold", 7, b"HEADstate and more")]


def test_a_snapshot_that_cannot_be_made_whole_leaves_the_one_before(disk: SimulatedDisk) -> None:
    def pieces() -> Iterator[tuple[int, bytes]]:
        yield 4, b"other"
        raise OSError("no space")

    snapshots.save(disk, DIRECTORY, Snapshot("fold", 7, b"HEADstate"))
    with pytest.raises(OSError, match="no space"):
        snapshots.save(disk, DIRECTORY, FrozenSnapshot("fold", 7, pieces))
    assert [bytes(one.data) for one in snapshots.load(disk, DIRECTORY, "fold", upto=7)] == [b"HEADstate"]


def test_an_older_snapshot_is_read_only_where_the_newest_does_not_do(disk: SimulatedDisk) -> None:
    for offset in (5, 9, 12):
        snapshots.save(disk, DIRECTORY, Snapshot("fold", offset, b"%d" % offset))
    found = snapshots.load(disk, DIRECTORY, "fold", upto=10)
    assert next(found).offset == 9
    disk.remove(f"{DIRECTORY}/fold-{5:020d}.snapshot")
    with pytest.raises(FileNotFoundError):
        next(found)
