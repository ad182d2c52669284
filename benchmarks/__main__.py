"""`python -m benchmarks [NAMES] [--quick]`: run the benchmarks, print tables and targets, and keep the figures.

A benchmark that cannot run is reported and the others go on; then the exit code is 1. A missed target is a figure like
any other and does not change the exit code.
"""

import argparse
import json
import shutil
import sys
import tempfile
import time
import traceback
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec
from rich.console import Console

from benchmarks import (
    compaction,
    groups,
    latency,
    machine,
    memory,
    opening,
    profile,
    queue_latency,
    queue_memory,
    queue_space,
    queues,
    spark,
    spread,
    throughput,
    transactions,
)
from benchmarks.report import Report, console, print_report, print_table, verdict
from benchmarks.settings import Settings

BENCHMARKS: dict[str, Callable[[Settings], Report]] = {
    module.NAME: module.run
    for module in (
        *(throughput, latency, opening, memory, spread, profile),
        *(queues, queue_latency, queue_memory, queue_space, groups, transactions, spark, compaction),
    )
}


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description="Measure headrace on this machine.")
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"which of {', '.join(BENCHMARKS)}; all without")
    parser.add_argument("--quick", action="store_true", help="less of everything: a look, not a measurement")
    parser.add_argument("--results", type=Path, default=Path("bench-results"), help="where figures and data go")
    given = parser.parse_args(arguments)
    unknown = sorted(set(given.names) - set(BENCHMARKS))
    if unknown:
        parser.error(f"no benchmark is named {', '.join(unknown)}; there are {', '.join(BENCHMARKS)}")
    given.results.mkdir(parents=True, exist_ok=True)
    directory = Path(tempfile.mkdtemp(prefix="data-", dir=given.results))
    try:
        settings = Settings(is_quick=given.quick, directory=directory)
        return run(given.names or list(BENCHMARKS), settings, given.results)
    finally:
        shutil.rmtree(directory, ignore_errors=True)


def run(names: list[str], settings: Settings, results: Path) -> int:
    out = console()
    began, began_s = datetime.now(UTC), time.monotonic()
    facts = machine.facts(settings.directory)
    print_table(out, "The machine", ["fact", "value"], [[name, value] for name, value in facts.items()])
    reports, failures = [], []
    for name in names:
        out.print(f"[dim]{name} ...[/]")
        try:
            report = BENCHMARKS[name](settings)
        except Exception:  # noqa: BLE001 - reported, and the others still run
            traceback.print_exc()
            failures.append(name)
        else:
            reports.append(report)
            print_report(out, report)
    seconds = time.monotonic() - began_s
    _summarise(out, reports, failures, seconds, is_quick=settings.is_quick)
    file = results / f"{began:%Y%m%dT%H%M%SZ}.json"
    document: dict[str, Any] = {
        "began": began.isoformat(),
        "seconds": seconds,
        "quick": settings.is_quick,
        "machine": facts,
        "failed": failures,
        "reports": msgspec.to_builtins(reports),
    }
    file.write_text(json.dumps(document, indent=2) + "\n")
    out.print(f"Figures are in {file}.")
    return 1 if failures else 0


def _summarise(out: Console, reports: list[Report], failures: list[str], seconds: float, *, is_quick: bool) -> None:
    out.print(f"[bold]Targets[/] ({'quick' if is_quick else 'full'} run, {seconds:.0f} s)")
    for report in reports:
        for goal in report.goals:
            out.print(f"  {verdict(goal)}  {goal.text}: {goal.value:.2f}")
    for name in failures:
        out.print(f"  [red]failed[/]  {name} could not be run")


if __name__ == "__main__":
    sys.exit(main())
