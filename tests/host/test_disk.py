"""The helpers over a Disk."""

import errno
import random
import resource
from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.host.disk import SystemDisk, read_file, read_large_file, write_atomically, write_fully
from headrace.model.batch import Buffer
from headrace.testing.disk import SimulatedDisk


@given(st.lists(st.binary(max_size=40), max_size=30), st.integers(0, 50), st.randoms())
def test_everything_is_written_however_short_the_writes_are(
    buffers: list[bytes], position: int, rand: random.Random
) -> None:
    disk = SimulatedDisk()
    disk.short_writes = lambda offered: rand.randint(1, offered)
    file = disk.open("/a", create=True)
    expected = b"".join(buffers)
    assert write_fully(file, buffers, position) == len(expected)
    assert file.pread(position, len(expected) + 1) == expected


def test_more_buffers_than_one_call_takes_are_written_with_short_writes_too() -> None:
    disk = SimulatedDisk()
    rand = random.Random(7)
    disk.short_writes = lambda offered: rand.randint(1, offered)
    file = disk.open("/a", create=True)
    buffers: Sequence[Buffer] = [b"%d," % n for n in range(2500)]
    write_fully(file, buffers, 0)
    assert file.pread(0, 99_999) == b"".join(buffers)


def test_a_disk_that_takes_nothing_is_an_error_and_not_an_endless_loop() -> None:
    disk = SimulatedDisk()
    disk.short_writes = lambda offered: 0
    file = disk.open("/a", create=True)
    with pytest.raises(OSError) as caught:
        write_fully(file, [b"abc"], 0)
    assert caught.value.errno == errno.EIO


def test_a_full_disk_is_told_after_the_part_that_fitted() -> None:
    disk = SimulatedDisk(capacity_bytes=4)
    file = disk.open("/a", create=True)
    with pytest.raises(OSError) as caught:
        write_fully(file, [b"abcdef"], 0)
    assert caught.value.errno == errno.ENOSPC
    assert file.pread(0, 9) == b"abcd"


@pytest.mark.parametrize("operation", ["open", "truncate", "pwritev", "fdatasync", "rename"])
def test_an_atomic_write_that_fails_leaves_the_old_file(operation: str) -> None:
    disk = SimulatedDisk()
    write_atomically(disk, "", "state", b"old")
    disk.fail(operation)  # type: ignore[arg-type]
    with pytest.raises(OSError):
        write_atomically(disk, "", "state", b"new")
    assert read_file(disk, "/state") == b"old"
    write_atomically(disk, "", "state", b"newer")
    assert disk.files() == {"/state": b"newer"}


def test_a_write_through_that_the_kernel_cuts_short_is_not_taken_for_whole(tmp_path: Path) -> None:
    file = SystemDisk().open(str(tmp_path / "a"), create=True)
    unlimited = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (4, unlimited[1]))
    try:
        with pytest.raises(OSError) as caught:
            file.write_through(b"abcdef", 0)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, unlimited)
    assert caught.value.errno == errno.EFBIG
    assert file.pread(0, 9) == b"abcd"
    file.write_through(b"abcdef", 0)
    assert file.pread(0, 9) == b"abcdef"
    file.close()


@pytest.mark.parametrize("size", [0, 1, 256 * 1024, 256 * 1024 + 1, 1_000_000])
def test_a_large_file_is_read_whole(size: int, tmp_path: Path) -> None:
    content = random.Random(size).randbytes(size)
    (tmp_path / "large").write_bytes(content)
    assert read_large_file(SystemDisk(), str(tmp_path / "large")) == content
