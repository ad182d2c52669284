"""One seed makes one disk: nothing is decided by the order of a set, by an address or by a hash."""

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
HASH_SEEDS = ("0", "1", "77")


def disk_after(seed: int, hash_seed: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "tests.broker.seeded", str(seed)],
        cwd=ROOT,
        env={**os.environ, "PYTHONHASHSEED": hash_seed},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def test_a_seeded_node_leaves_the_same_bytes_under_every_hash_seed() -> None:
    runs = [disk_after(5, hash_seed) for hash_seed in HASH_SEEDS]
    outcomes = [run.communicate(timeout=120) for run in runs]
    assert [run.returncode for run in runs] == [0] * len(runs), outcomes[0][1]
    (first, _), *others = outcomes
    assert len(first.splitlines()) > 50
    for printed, _ in others:
        assert printed.splitlines() == first.splitlines()
