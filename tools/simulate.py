"""`make sim`: replay one seed of the simulator, or go on over seeds for some virtual hours.

The exit status is 1 if a run broke a promise. What is printed then is all that it takes to see it again: the seed, the
commit, the faults that are needed for it, what was found, and the node's last warnings.
"""

import argparse
import subprocess
import sys
from typing import cast

from headrace.testing.simulation.campaign import Statistics, run_hours, run_seed, shorten
from headrace.testing.simulation.plan import FAULT_KINDS, PACES, FaultKind, Pace
from headrace.testing.simulation.run import Report

_LOG_LINES = 30


def main() -> int:
    parser = argparse.ArgumentParser(prog="make sim", description=__doc__)
    parser.add_argument("--seed", type=int, help="the seed to replay, or the first one of --hours")
    parser.add_argument("--hours", type=float, help="go on over seeds until so many virtual hours have passed")
    parser.add_argument("--pace", choices=PACES, help="how dense the load is; by default the seed says it")
    parser.add_argument("--faults", help=f"instead of the seed's, from: {', '.join(FAULT_KINDS)} (comma-separated)")
    parser.add_argument("--hash", action="store_true", help="print the hash of the run's trace and nothing else")
    given = parser.parse_args()
    pace = cast(Pace | None, given.pace)
    if given.hours is not None:
        return _go_on(given.hours, given.seed or 0, pace)
    faults = None
    if given.faults is not None:
        faults = tuple(cast(FaultKind, kind) for kind in given.faults.split(",") if kind)
        if unknown := [kind for kind in faults if kind not in FAULT_KINDS]:
            parser.error(f"unknown faults: {', '.join(unknown)}")
    report = run_seed(given.seed or 0, pace=pace, faults=faults)
    if given.hash:
        print(report.trace_hash)
        return 0
    sums = Statistics()
    sums.add(report)
    print(f"{sums}; {report.event_count} events, hash {report.trace_hash}")
    if not report.is_good:
        _tell(report)
    return int(not report.is_good)


def _go_on(hours: float, first_seed: int, pace: Pace | None) -> int:
    failed: list[int] = []

    def judge(report: Report) -> None:
        if not report.is_good:
            failed.append(report.plan.seed)
            _tell(report)

    sums = Statistics()
    for sums in run_hours(hours, first_seed=first_seed, pace=pace, on_report=judge):
        if sums.runs % 20 == 0:
            print(sums, file=sys.stderr, flush=True)
    print(sums)
    if failed:
        print(f"failed seeds: {', '.join(map(str, failed))}")
    return int(bool(failed))


def _tell(report: Report) -> None:
    plan = report.plan
    commit = subprocess.run(["git", "describe", "--always", "--dirty"], capture_output=True, text=True, check=False)
    faults = ",".join(shorten(report))
    print(f"seed {plan.seed} failed at commit {commit.stdout.strip() or 'unknown'}; again with:")
    print(f'  make sim SEED={plan.seed} PACE={plan.pace} FAULTS="{faults}"')
    print(f"  its own faults were: {', '.join(plan.faults) or 'none'}")
    print(report.verdict)
    for line in report.log[-_LOG_LINES:]:
        print(f"  {line}")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
