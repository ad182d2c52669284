"""Planted failures of the simulated disk."""

import errno

import pytest

from headrace.host.disk import read_file, write_fully
from headrace.testing.clock import SimulatedClock
from headrace.testing.disk import SimulatedDisk


def test_the_nth_call_fails_and_the_others_do_not() -> None:
    disk = SimulatedDisk()
    file = disk.open("/a", create=True)
    disk.fail("pwritev", nth=2, times=2)
    outcomes = []
    for _ in range(5):
        try:
            outcomes.append(file.pwritev([b"x"], 0))
        except OSError as error:
            outcomes.append(-(error.errno or 0))
    assert outcomes == [1, -errno.EIO, -errno.EIO, 1, 1]


def test_a_failure_can_be_bound_to_a_part_of_the_path_and_healed() -> None:
    disk = SimulatedDisk()
    disk.fail("fdatasync", path_part="journal", times=-1, error=errno.ENOSPC)
    disk.open("/segment", create=True).fdatasync()
    journal = disk.open("/journal", create=True)
    for _ in range(3):
        with pytest.raises(OSError) as caught:
            journal.fdatasync()
        assert caught.value.errno == errno.ENOSPC
    disk.heal()
    journal.fdatasync()
    assert disk.calls["fdatasync"] == 5


def test_writes_are_as_short_as_the_chooser_says() -> None:
    disk = SimulatedDisk()
    disk.short_writes = lambda offered: max(1, offered // 3)
    file = disk.open("/a", create=True)
    assert file.pwritev([b"0123456789"], 0) == 3
    assert write_fully(file, [b"0123456789", b"abc"], 0) == 13
    assert file.pread(0, 99) == b"0123456789abc"


def test_a_full_disk_takes_a_part_and_then_nothing_until_space_is_freed() -> None:
    disk = SimulatedDisk(capacity_bytes=100)
    disk.open("/other", create=True).pwritev([bytes(60)], 0)
    file = disk.open("/a", create=True)
    assert disk.free_bytes("/") == 40
    assert file.pwritev([bytes(30), bytes(30)], 0) == 40
    with pytest.raises(OSError) as caught:
        file.pwritev([b"x"], 40)
    assert caught.value.errno == errno.ENOSPC
    assert file.pwritev([b"overwriting needs no space"], 0) == 26
    with pytest.raises(OSError):
        file.truncate(41)
    disk.remove("/other")
    assert disk.free_bytes("/") == 60
    assert file.pwritev([b"x"], 40) == 1


def test_a_slow_disk_lets_the_clock_pass() -> None:
    disk, clock = SimulatedDisk(), SimulatedClock()
    disk.on_call = lambda operation, _: clock.advance(250 if operation == "fdatasync" else 0)
    disk.open("/a", create=True).fdatasync()
    assert clock.monotonic_ms() == 250


def test_cold_bytes_are_not_in_the_cache() -> None:
    disk = SimulatedDisk()
    file = disk.open("/a", create=True)
    file.pwritev([b"abc"], 0)
    assert file.pread_cached(0, 3) == b"abc"
    disk.make_cold("/a")
    assert file.pread_cached(0, 3) is None
    assert file.pread(0, 3) == b"abc"
    disk.make_cold("/a", cold=False)
    disk.all_cold = True
    assert file.pread_cached(0, 3) is None


def test_one_flipped_bit_changes_one_bit() -> None:
    disk = SimulatedDisk()
    file = disk.open("/a", create=True)
    file.pwritev([b"\0\0"], 0)
    file.fdatasync()
    disk.flip_bit("/a", 9)
    assert read_file(disk, "/a") == b"\0\2"


def test_a_copy_goes_its_own_way() -> None:
    disk = SimulatedDisk()
    file = disk.open("/a", create=True)
    file.pwritev([b"before"], 0)
    twin = disk.copy()
    file.pwritev([b"after!"], 0)
    disk.remove("/a")
    assert twin.files() == {"/a": b"before"}
    assert disk.files() == {}
