"""What a simulated crash may take and what it must leave."""

import errno
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.host.disk import read_file, write_atomically
from headrace.testing.disk import SimulatedDisk
from headrace.testing.image import SECTOR_SIZE

SEEDS = range(200)


def fresh() -> SimulatedDisk:
    disk = SimulatedDisk()
    disk.make_directory("/data")
    disk.sync_directory("/")
    return disk


def after_crash(disk: SimulatedDisk, seed: int) -> dict[str, bytes]:
    twin = disk.copy()
    twin.crash(random.Random(seed))
    return twin.files()


def synced_file(disk: SimulatedDisk, data: bytes, name: str = "a") -> None:
    file = disk.open(f"/data/{name}", create=True)
    file.pwritev([data], 0)
    file.fdatasync()
    file.close()
    disk.sync_directory("/data")


def test_what_was_synced_survives_every_crash() -> None:
    disk = fresh()
    synced_file(disk, b"x" * 2000)
    assert all(after_crash(disk, seed) == {"/data/a": b"x" * 2000} for seed in SEEDS)


def test_a_synced_file_whose_directory_was_not_synced_can_be_lost() -> None:
    disk = fresh()
    file = disk.open("/data/a", create=True)
    file.pwritev([b"x"], 0)
    file.fdatasync()
    assert {len(after_crash(disk, seed)) for seed in SEEDS} == {0, 1}


def test_a_directory_is_lost_with_its_content_until_its_parent_is_synced() -> None:
    disk = SimulatedDisk()
    disk.make_directory("/data")
    synced_file(disk, b"x")
    assert {len(after_crash(disk, seed)) for seed in SEEDS} == {0, 1}
    disk.sync_directory("/")
    assert {len(after_crash(disk, seed)) for seed in SEEDS} == {1}


def test_an_unsynced_rename_is_found_done_or_undone_but_never_half_done() -> None:
    disk = fresh()
    synced_file(disk, b"old", "a")
    synced_file(disk, b"new", "b")
    disk.rename("/data/b", "/data/a")
    undone = {"/data/a": b"old", "/data/b": b"new"}
    done = {"/data/a": b"new"}
    seen = [after_crash(disk, seed) for seed in SEEDS]
    assert undone in seen
    assert done in seen
    assert all(state in (undone, done) for state in seen)
    disk.sync_directory("/data")
    assert all(after_crash(disk, seed) == done for seed in SEEDS)


def test_a_rename_between_directories_is_done_once_either_was_synced() -> None:
    disk = fresh()
    disk.make_directory("/data/trash")
    synced_file(disk, b"x")
    disk.rename("/data/a", "/data/trash/a")
    assert {tuple(after_crash(disk, seed)) for seed in SEEDS} == {("/data/a",), ("/data/trash/a",)}
    disk.sync_directory("/data/trash")
    assert {tuple(after_crash(disk, seed)) for seed in SEEDS} == {("/data/trash/a",)}


def test_an_unsynced_removal_can_be_undone() -> None:
    disk = fresh()
    synced_file(disk, b"x")
    disk.remove("/data/a")
    assert {len(after_crash(disk, seed)) for seed in SEEDS} == {0, 1}


def test_operations_on_different_names_are_lost_independently_and_on_one_name_in_order() -> None:
    disk = fresh()
    for name in ("a", "b"):
        disk.open(f"/data/{name}", create=True).close()
    disk.rename("/data/a", "/data/c")
    seen = {tuple(name[-1] for name in after_crash(disk, seed)) for seed in SEEDS}
    assert seen == {(), ("a",), ("b",), ("c",), ("a", "b"), ("b", "c")}


def test_a_name_used_again_never_loses_what_was_renamed_away_from_it() -> None:
    disk = fresh()
    synced_file(disk, b"old")
    disk.rename("/data/a", "/data/c")
    disk.open("/data/a", create=True).close()
    seen = [after_crash(disk, seed) for seed in SEEDS]
    assert all(b"old" in files.values() for files in seen)
    assert {len(files) for files in seen} == {1, 2}


def test_syncing_a_rename_syncs_what_made_the_old_name() -> None:
    disk = fresh()
    disk.make_directory("/data/trash")
    disk.sync_directory("/data")
    disk.open("/data/a", create=True).close()
    disk.rename("/data/a", "/data/trash/a")
    disk.sync_directory("/data/trash")
    assert {tuple(after_crash(disk, seed)) for seed in SEEDS} == {("/data/trash/a",)}


def test_any_subset_of_unsynced_sectors_survives() -> None:
    disk = fresh()
    synced_file(disk, b"o" * 3 * SECTOR_SIZE)
    disk.open("/data/a").pwritev([b"n" * 3 * SECTOR_SIZE], 0)
    images = {after_crash(disk, seed)["/data/a"] for seed in SEEDS}
    subsets = {
        b"".join(bytes([c]) * SECTOR_SIZE for c in f"{a}{b}{c}".encode()) for a in "on" for b in "on" for c in "on"
    }
    assert images == subsets


def test_an_unsynced_append_leaves_any_size_and_zeros_where_sectors_were_lost() -> None:
    disk = fresh()
    synced_file(disk, b"o" * 100)
    disk.open("/data/a").pwritev([b"n" * 2000], 100)
    images = {after_crash(disk, seed)["/data/a"] for seed in SEEDS}
    assert all(image[:100] == b"o" * 100 and 100 <= len(image) <= 2100 for image in images)
    assert all(set(image[100:]) <= set(b"n\0") for image in images)
    assert len({len(image) for image in images}) > 10
    assert any(b"\0" in image and image.endswith(b"n") for image in images)


def test_a_truncation_is_durable_only_after_a_sync() -> None:
    disk = fresh()
    synced_file(disk, b"o" * 1000)
    file = disk.open("/data/a")
    file.truncate(10)
    assert {len(after_crash(disk, seed)["/data/a"]) for seed in SEEDS} == {10, 1000}
    file.fdatasync()
    assert {len(after_crash(disk, seed)["/data/a"]) for seed in SEEDS} == {10}


def test_an_atomic_write_leaves_the_old_or_the_new_whatever_call_the_crash_comes_at() -> None:
    """Failure row 18: file, rename, directory, synced in that order."""
    for calls in range(1, 12):
        disk = fresh()
        write_atomically(disk, "/data", "state", b"old" * 400)
        states: list[SimulatedDisk] = []
        start = sum(disk.calls.values())
        disk.on_call = lambda *_, disk=disk, start=start, calls=calls, states=states: (
            states.append(disk.copy()) if sum(disk.calls.values()) == start + calls else None
        )
        write_atomically(disk, "/data", "state", b"new" * 500)
        for state in states or [disk]:
            for seed in range(30):
                assert after_crash(state, seed)["/data/state"] in (b"old" * 400, b"new" * 500)


def test_a_planted_write_without_a_directory_sync_is_caught() -> None:
    disk = fresh()
    synced_file(disk, b"old", "state")
    synced_file(disk, b"new", "state.tmp")
    disk.rename("/data/state.tmp", "/data/state")
    assert any(after_crash(disk, seed)["/data/state"] == b"old" for seed in SEEDS)


def test_a_planted_rename_without_a_file_sync_is_caught() -> None:
    disk = fresh()
    file = disk.open("/data/state.tmp", create=True)
    file.pwritev([b"new" * 400], 0)
    disk.rename("/data/state.tmp", "/data/state")
    disk.sync_directory("/data")
    assert any(after_crash(disk, seed)["/data/state"] != b"new" * 400 for seed in SEEDS)


def test_after_a_failed_sync_the_bytes_are_readable_and_a_second_sync_does_not_save_them() -> None:
    disk = fresh()
    synced_file(disk, b"o" * SECTOR_SIZE)
    disk.fail("fdatasync")
    file = disk.open("/data/a")
    file.pwritev([b"n" * SECTOR_SIZE], 0)
    with pytest.raises(OSError) as caught:
        file.fdatasync()
    assert caught.value.errno == errno.EIO
    assert file.pread(0, 1) == b"n"
    file.fdatasync()
    assert {after_crash(disk, seed)["/data/a"][:1] for seed in SEEDS} == {b"o", b"n"}


def test_bytes_written_again_after_a_failed_sync_are_synced_by_the_next() -> None:
    disk = fresh()
    synced_file(disk, b"o" * SECTOR_SIZE)
    disk.fail("fdatasync", error=errno.ENOSPC)
    file = disk.open("/data/a")
    file.pwritev([b"n"], 0)
    with pytest.raises(OSError):
        file.fdatasync()
    file.pwritev([b"m"], 0)
    file.fdatasync()
    assert {after_crash(disk, seed)["/data/a"][:1] for seed in SEEDS} == {b"m"}


def test_the_kernel_may_have_written_an_older_version_of_a_sector() -> None:
    images = set()
    for seed in SEEDS:
        disk = fresh()
        synced_file(disk, b"1" * 10)
        file = disk.open("/data/a")
        file.pwritev([b"2" * 10], 0)
        disk.write_back(random.Random(seed))
        file.pwritev([b"3" * 10], 0)
        images.add(after_crash(disk, seed + 1000)["/data/a"][:1])
    assert images == {b"1", b"2", b"3"}


def test_a_handle_from_before_the_crash_is_dead() -> None:
    disk = fresh()
    synced_file(disk, b"x")
    file = disk.open("/data/a")
    disk.crash(random.Random(0))
    for call in (file.size, file.fdatasync, lambda: file.pread(0, 1), lambda: file.pwritev([b"y"], 0), file.close):
        with pytest.raises(OSError) as caught:
            call()
        assert caught.value.errno == errno.EBADF
    assert read_file(disk, "/data/a") == b"x"


def test_one_seed_gives_one_outcome() -> None:
    disk = fresh()
    disk.open("/data/a", create=True).pwritev([bytes(range(256)) * 30], 0)
    disk.open("/data/b", create=True).pwritev([bytes(range(256)) * 30], 0)
    assert all(after_crash(disk, seed) == after_crash(disk, seed) for seed in SEEDS)


steps = st.lists(
    st.one_of(
        st.tuples(st.just("write"), st.integers(0, 3000), st.binary(min_size=1, max_size=1200)),
        st.tuples(st.just("truncate"), st.integers(0, 3000), st.just(b"")),
        st.tuples(st.just("sync"), st.just(0), st.just(b"")),
        st.tuples(st.just("write_back"), st.integers(0, 99), st.just(b"")),
        st.tuples(st.just("crash"), st.integers(0, 99), st.just(b"")),
    ),
    max_size=15,
)


@given(steps)
def test_a_crash_right_after_a_sync_changes_nothing_whatever_went_before(script: list[tuple[str, int, bytes]]) -> None:
    disk = fresh()
    synced_file(disk, b"")
    file = disk.open("/data/a")
    model = bytearray()
    for step, number, data in script:
        if step == "write":
            file.pwritev([data], number)
            model.extend(bytes(max(number - len(model), 0)))
            model[number : number + len(data)] = data
        elif step == "truncate":
            file.truncate(number)
            del model[number:]
            model.extend(bytes(number - len(model)))
        elif step == "sync":
            file.fdatasync()
            assert after_crash(disk, number) == {"/data/a": bytes(model)}
        elif step == "write_back":
            disk.write_back(random.Random(number))
        else:
            disk.crash(random.Random(number))
            file = disk.open("/data/a")
            model = bytearray(read_file(disk, "/data/a"))
        assert file.pread(0, 9999) == model
