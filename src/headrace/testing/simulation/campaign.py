"""Many runs: until enough virtual time has passed, with one line of figures, and the faults that a failure needs."""

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from headrace.testing.simulation.plan import FaultKind, Pace, make_plan
from headrace.testing.simulation.run import Report, Simulation

_HOUR_S = 3600.0


@dataclass
class Statistics:
    """What some runs came to."""

    runs: int = 0
    virtual_s: float = 0.0
    cpu_s: float = 0.0
    messages: int = 0
    starts: int = 0
    faults: Counter[FaultKind] = field(default_factory=Counter)
    violations: Counter[str] = field(default_factory=Counter)

    def add(self, report: Report) -> None:
        self.runs += 1
        self.virtual_s += report.virtual_s
        self.cpu_s += report.cpu_s
        self.messages += report.messages
        self.starts += report.starts
        self.faults += report.faults
        self.violations += Counter({kind: len(found) for kind, found in report.verdict.violations.items()})

    def __str__(self) -> str:
        hours = self.virtual_s / _HOUR_S
        faults = ", ".join(f"{kind} {count}" for kind, count in sorted(self.faults.items())) or "none"
        others = "".join(
            f", {kind} {count}"
            for kind, count in sorted(self.violations.items())
            if count and kind not in ("lost", "doubled")
        )
        return (
            f"{self.runs} runs, {hours:.2f} virtual hours, {self.cpu_s:.1f} CPU s "
            f"({hours / max(self.cpu_s, 0.001):.2f} h/s), {self.starts} starts, faults: {faults}; "
            f"{self.messages} messages, lost {self.violations['lost']}, doubled {self.violations['doubled']}{others}"
        )


def run_seed(seed: int, *, pace: Pace | None = None, faults: tuple[FaultKind, ...] | None = None) -> Report:
    return Simulation(make_plan(seed, pace=pace, faults=faults)).run()


def run_hours(
    hours: float, *, first_seed: int, pace: Pace | None, on_report: Callable[[Report], None]
) -> Iterator[Statistics]:
    """Run seed after seed until so many virtual hours have passed; yields the sum after each run."""
    sums = Statistics()
    seed = first_seed
    while sums.virtual_s < hours * _HOUR_S:
        report = run_seed(seed, pace=pace)
        on_report(report)
        sums.add(report)
        yield sums
        seed += 1


def shorten(report: Report) -> tuple[FaultKind, ...]:
    """The kinds of faults without which this seed does not fail: each is left out once."""
    plan = report.plan
    needed = plan.faults
    for kind in plan.faults:
        fewer = tuple(one for one in needed if one != kind)
        if not run_seed(plan.seed, pace=plan.pace, faults=fewer).is_good:
            needed = fewer
    return needed
