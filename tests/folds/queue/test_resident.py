"""What a million leases cost a process, with all that Python and the C library keep beside them.

In a process of its own, since what a process has once had is part of the figure.
"""

import subprocess
import sys
from pathlib import Path

import pytest

LEASE_BYTES_MAX = 200

PROGRAM = """
import gc, sys, threading
from pathlib import Path
from headrace.folds.queue import image
from headrace.folds.queue.fold import QueueFold
from headrace.folds.queue.instant import Instant
from headrace.host.disk import SystemDisk
from headrace.log import snapshots

NAME, COUNT = "queue-00c0ffee", 1_000_000
directory, step = sys.argv[1], int(sys.argv[2])
gc.set_threshold(50_000, 20, 50)


def resident():
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096


def save(fold):
    taken = snapshots.FrozenSnapshot(NAME, fold.end_offset, image.freeze(fold, NAME))
    writer = threading.Thread(target=snapshots.save, args=(SystemDisk(), directory, taken))
    writer.start()
    return writer


before = resident()
if step:
    fold = QueueFold()
    fold.arrive(0, COUNT, sent_ms=0)
    for moment_ms in range(COUNT // step):
        fold.lease(step, 30_000_000, upto=COUNT, now=Instant(moment_ms, 1_700_000_000_000 + moment_ms))
        if moment_ms == COUNT // step * 3 // 4:
            writer = save(fold)  # while others are leased
    writer.join()
    save(fold).join()
else:
    saved = next(snapshots.load(SystemDisk(), directory, NAME, upto=COUNT))
    fold = image.restore(saved.data, name=NAME)
    del saved
assert len(fold.leases) == COUNT
print((resident() - before) // COUNT)
"""


def measured(directory: Path, step: int) -> int:
    """Bytes for each lease: of a fold that leases so many at a time, or of one that is read back."""
    command = [sys.executable, "-c", PROGRAM, str(directory), str(step)]
    return int(subprocess.run(command, check=True, capture_output=True, text=True, timeout=120).stdout)


@pytest.mark.parametrize("step", [1, 1000])
def test_a_lease_costs_at_most_two_hundred_bytes_after_snapshots_and_after_a_restart(step: int, tmp_path: Path) -> None:
    leased, restored = measured(tmp_path, step), measured(tmp_path, 0)
    print(f"leased {step} at a time: {leased} bytes each, {restored} read back")
    assert leased <= LEASE_BYTES_MAX
    assert restored <= LEASE_BYTES_MAX
