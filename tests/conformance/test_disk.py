"""What every Disk does, whether it is the machine's or the simulator's."""

import errno
from collections.abc import Callable
from pathlib import Path

import pytest

from headrace.host.disk import Disk, File, SystemDisk, read_file, write_atomically, write_fully
from headrace.testing.disk import SimulatedDisk


class Place:
    """A disk and a directory on it that the test may use."""

    def __init__(self, disk: Disk, root: str) -> None:
        self.disk = disk
        self.root = root

    def path(self, name: str) -> str:
        return f"{self.root}/{name}"

    def create(self, name: str, data: bytes = b"") -> File:
        file = self.disk.open(self.path(name), create=True)
        write_fully(file, [data], 0)
        return file


@pytest.fixture(params=["system", "simulated"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    if request.param == "system":
        return Place(SystemDisk(), str(tmp_path))
    disk = SimulatedDisk()
    disk.make_directory("/data")
    return Place(disk, "/data")


def error_of(call: Callable[[], object]) -> int | None:
    with pytest.raises(OSError) as caught:
        call()
    return caught.value.errno


def test_what_is_written_is_read_back_at_its_position(place: Place) -> None:
    file = place.create("a", b"hello world")
    assert file.pwritev([b"W", b"OR"], 6) == 3
    assert file.pread(0, 100) == b"hello WORld"
    assert file.pread(6, 2) == b"WO"
    assert file.size() == 11
    assert file.path == place.path("a")
    file.close()


def test_a_file_is_grown_to_a_size_and_never_made_smaller_by_that(place: Place) -> None:
    file = place.create("a", b"data")
    file.allocate(5000)
    assert file.size() == 5000
    assert file.pread(0, 6) == b"data\0\0"
    file.allocate(100)
    assert file.size() == 5000
    file.close()


def test_a_read_is_short_only_at_the_end_of_the_file(place: Place) -> None:
    file = place.create("a", b"0123456789")
    assert file.pread(8, 5) == b"89"
    assert file.pread(10, 5) == b""
    assert file.pread(99, 5) == b""
    file.close()


def test_a_cached_read_gives_the_same_bytes_or_none(place: Place) -> None:
    file = place.create("a", b"0123456789")
    for position, size in ((0, 10), (3, 4), (8, 5), (10, 5)):
        assert file.pread_cached(position, size) in (None, file.pread(position, size))
    file.close()


def test_bytes_and_memoryviews_are_written_alike(place: Place) -> None:
    file = place.create("a")
    assert file.pwritev([b"ab", bytearray(b"cd"), memoryview(b"xefx")[1:3]], 0) == 6
    assert file.pread(0, 9) == b"abcdef"
    file.close()


def test_a_write_beyond_the_end_leaves_zeros_between(place: Place) -> None:
    file = place.create("a", b"ab")
    file.pwritev([b"z"], 5)
    assert file.pread(0, 9) == b"ab\0\0\0z"
    file.close()


def test_more_buffers_than_one_call_takes_are_refused_and_written_fully_in_several(place: Place) -> None:
    file = place.create("a")
    buffers = [b"%d," % n for n in range(3000)]
    assert error_of(lambda: file.pwritev(buffers, 0)) == errno.EINVAL
    expected = b"".join(buffers)
    assert write_fully(file, buffers, 0) == len(expected)
    assert file.pread(0, len(expected) + 1) == expected
    file.close()


def test_truncation_cuts_and_extends_with_zeros(place: Place) -> None:
    file = place.create("a", b"0123456789")
    file.truncate(4)
    assert file.size() == 4
    file.truncate(6)
    assert file.pread(0, 9) == b"0123\0\0"
    assert error_of(lambda: file.truncate(-1)) == errno.EINVAL
    file.close()


def test_a_second_handle_sees_the_same_file(place: Place) -> None:
    file = place.create("a", b"one")
    again = place.disk.open(place.path("a"))
    file.pwritev([b"two"], 0)
    assert again.pread(0, 3) == b"two"
    file.fdatasync()
    file.close()
    again.close()


def test_a_write_through_overwrites_and_extends(place: Place) -> None:
    file = place.create("a", b"0123456789")
    file.write_through(b"xyz", 8)
    file.write_through(memoryview(b"AB"), 0)
    assert file.pread(0, 99) == b"AB234567xyz"
    file.close()


def test_a_closed_handle_is_of_no_use(place: Place) -> None:
    file = place.create("a", b"one")
    file.close()
    assert error_of(lambda: file.pread(0, 1)) == errno.EBADF
    assert error_of(lambda: file.pwritev([b"x"], 0)) == errno.EBADF
    assert error_of(file.fdatasync) == errno.EBADF
    assert error_of(lambda: file.write_through(b"x", 0)) == errno.EBADF


def test_opening_needs_a_file_unless_it_may_create_one(place: Place) -> None:
    place.disk.make_directory(place.path("d"))
    assert error_of(lambda: place.disk.open(place.path("nothing"))) == errno.ENOENT
    assert error_of(lambda: place.disk.open(place.path("no/parent"), create=True)) == errno.ENOENT
    assert error_of(lambda: place.disk.open(place.path("d"))) == errno.EISDIR
    place.create("a", b"kept").close()
    place.disk.open(place.path("a"), create=True).close()
    assert read_file(place.disk, place.path("a")) == b"kept"


def test_directories_are_made_with_their_parents_and_listed_sorted(place: Place) -> None:
    place.disk.make_directory(place.path("x/y/z"))
    place.disk.make_directory(place.path("x/y/z"))
    place.create("x/b").close()
    place.create("x/a").close()
    assert place.disk.list_directory(place.path("x")) == ["a", "b", "y"]
    assert place.disk.list_directory(place.path("x/y/z")) == []
    assert place.disk.exists(place.path("x/y"))
    assert not place.disk.exists(place.path("x/q"))
    assert error_of(lambda: place.disk.make_directory(place.path("x/a"))) == errno.EEXIST
    assert error_of(lambda: place.disk.list_directory(place.path("x/a"))) == errno.ENOTDIR
    assert error_of(lambda: place.disk.list_directory(place.path("q"))) == errno.ENOENT


def test_a_rename_replaces_the_file_of_the_new_name(place: Place) -> None:
    place.create("old", b"new bytes").close()
    place.create("new", b"old bytes").close()
    place.disk.rename(place.path("old"), place.path("new"))
    assert place.disk.list_directory(place.root) == ["new"]
    assert read_file(place.disk, place.path("new")) == b"new bytes"
    assert error_of(lambda: place.disk.rename(place.path("old"), place.path("new"))) == errno.ENOENT


def test_a_directory_is_renamed_with_all_that_is_in_it(place: Place) -> None:
    place.disk.make_directory(place.path("d"))
    place.disk.make_directory(place.path("trash"))
    place.create("d/a", b"1").close()
    place.create("f").close()
    place.disk.rename(place.path("d"), place.path("trash/d"))
    assert read_file(place.disk, place.path("trash/d/a")) == b"1"
    assert error_of(lambda: place.disk.rename(place.path("f"), place.path("trash"))) == errno.EISDIR
    assert error_of(lambda: place.disk.rename(place.path("trash"), place.path("f"))) == errno.ENOTDIR
    place.disk.make_directory(place.path("other"))
    assert error_of(lambda: place.disk.rename(place.path("other"), place.path("trash"))) == errno.ENOTEMPTY


def test_an_open_file_outlives_its_name(place: Place) -> None:
    file = place.create("a", b"still here")
    place.disk.remove(place.path("a"))
    assert not place.disk.exists(place.path("a"))
    assert file.pread(0, 5) == b"still"
    file.close()


def test_removal_is_of_files_and_tree_removal_of_directories(place: Place) -> None:
    place.disk.make_directory(place.path("d/e"))
    place.create("d/e/a").close()
    assert error_of(lambda: place.disk.remove(place.path("d"))) == errno.EISDIR
    assert error_of(lambda: place.disk.remove(place.path("nothing"))) == errno.ENOENT
    place.disk.remove_tree(place.path("d"))
    assert place.disk.list_directory(place.root) == []
    assert error_of(lambda: place.disk.remove_tree(place.path("d"))) == errno.ENOENT


def test_only_a_directory_that_is_there_can_be_synced(place: Place) -> None:
    place.create("a").close()
    place.disk.sync_directory(place.root)
    assert error_of(lambda: place.disk.sync_directory(place.path("nothing"))) == errno.ENOENT
    assert error_of(lambda: place.disk.sync_directory(place.path("a"))) == errno.ENOTDIR


def test_free_space_is_told(place: Place) -> None:
    assert place.disk.free_bytes(place.root) > 0


def test_an_atomic_write_replaces_what_was_there_and_leaves_nothing_else(place: Place) -> None:
    write_atomically(place.disk, place.root, "state", b"a longer first version")
    write_atomically(place.disk, place.root, "state", b"second")
    assert read_file(place.disk, place.path("state")) == b"second"
    assert place.disk.list_directory(place.root) == ["state"]
