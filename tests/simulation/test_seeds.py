"""Whole nodes under faults: a number of seeds keep every promise, and each seed is the same run every time."""

import os
import subprocess
import sys

import pytest

from headrace.testing.simulation.campaign import Statistics, run_seed

LONG = bool(os.environ.get("HEADRACE_LONG"))
GROUPS = 10
SEEDS_OF_A_GROUP = 200 if LONG else 20


@pytest.mark.parametrize("group", range(GROUPS))
def test_every_promise_is_kept_under_faults(group: int) -> None:
    sums = Statistics()
    for seed in range(group * SEEDS_OF_A_GROUP, (group + 1) * SEEDS_OF_A_GROUP):
        report = run_seed(seed, pace="quick")
        sums.add(report)
        assert report.is_good, f"{report.verdict}\nsee it again with: make sim SEED={seed} PACE=quick"
    print(sums)


@pytest.mark.parametrize("seed", range(1 if not LONG else 20))
def test_hours_of_light_load_keep_every_promise(seed: int) -> None:
    report = run_seed(seed, pace="light")
    print(report.virtual_s, report.cpu_s)
    assert report.is_good, f"{report.verdict}\nsee it again with: make sim SEED={seed} PACE=light"


def test_a_seed_is_the_same_run_in_every_process_and_under_every_hash_seed() -> None:
    for seed in range(2 if not LONG else 20):
        hashes = {_hash_in_another_process(seed, hash_seed) for hash_seed in ("0", "1", "2")}
        hashes |= {run_seed(seed, pace="quick").trace_hash for _ in range(2)}
        assert len(hashes) == 1, f"seed {seed} gave {len(hashes)} different runs"


def test_two_seeds_are_two_runs() -> None:
    assert run_seed(1, pace="quick").trace_hash != run_seed(2, pace="quick").trace_hash


def _hash_in_another_process(seed: int, hash_seed: str) -> str:
    command = [sys.executable, "-m", "tools.simulate", "--seed", str(seed), "--pace", "quick", "--hash"]
    environment = {**os.environ, "PYTHONHASHSEED": hash_seed}
    return subprocess.run(command, capture_output=True, text=True, check=True, env=environment).stdout.strip()
