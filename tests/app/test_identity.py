"""A data directory says whose it is and in which format it was written."""

import pytest

from headrace.app.identity import FORMAT, check_identity
from headrace.model.errors import ForeignDataError
from headrace.testing.disk import SimulatedDisk
from headrace.testing.rand import SeededRand

FILE = "/data/node.toml"
OLD = b'node_id = 1\ncluster_id = "c"\nincarnation = "i"\n'


def checked(disk: SimulatedDisk) -> str:
    return check_identity(disk, SeededRand(1), "/data", node_id=1, cluster_id="c")


def disk_with(text: bytes) -> SimulatedDisk:
    disk = SimulatedDisk()
    disk.make_directory("/data")
    disk.open(FILE, create=True)
    disk.overwrite(FILE, text)
    return disk


def test_a_new_directory_is_of_the_newest_format() -> None:
    disk = SimulatedDisk()
    disk.make_directory("/data")
    incarnation = checked(disk)
    assert disk.files()[FILE].startswith(b"format = %d\n" % FORMAT)
    assert checked(disk) == incarnation


def test_a_directory_without_a_format_is_an_older_one_and_is_given_one() -> None:
    disk = disk_with(OLD)
    assert checked(disk) == "i"
    assert disk.files()[FILE] == b"format = %d\n" % FORMAT + OLD


def test_a_directory_of_a_newer_format_is_refused_and_left_as_it_is() -> None:
    text = b"format = 7\n" + OLD
    disk = disk_with(text)
    with pytest.raises(
        ForeignDataError, match=f"newer headrace, in format 7, and this one reads formats up to {FORMAT}"
    ):
        checked(disk)
    assert disk.files()[FILE] == text


def test_a_directory_of_another_node_is_left_as_it_is() -> None:
    disk = disk_with(OLD.replace(b"1", b"2"))
    with pytest.raises(ForeignDataError, match="belongs to node 2"):
        checked(disk)
    assert disk.files()[FILE] == OLD.replace(b"1", b"2")
