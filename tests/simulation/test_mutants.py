"""The simulator notices when a rule of the product is taken away: each mutant fails within a few seeds.

The numbers are those of the table in design 4, which says why each rule is there.
"""

import asyncio
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import pytest

from headrace.broker.stable import Stability
from headrace.folds import producer
from headrace.folds.queue.fold import QueueFold
from headrace.host.disk import File
from headrace.host.node_clock import NodeClock
from headrace.log import segment_writer
from headrace.log.journal import Journal, JournalRecord
from headrace.model.batch import Buffer
from headrace.model.errors import StaleReceiptError
from headrace.testing.disk import SimulatedDisk, SimulatedFile
from headrace.testing.simulation.campaign import run_seed
from headrace.testing.simulation.plan import FaultKind

SEEDS_MAX = 30
_LATE_S = 0.5
Patch = pytest.MonkeyPatch


class Mutant(NamedTuple):
    rule: str
    plant: Callable[[Patch], None]
    faults: tuple[FaultKind, ...]
    shows: set[str]  # any of these kinds of violation


def do_nothing(*_: object, **__: object) -> None:
    pass


def acknowledge_before_the_sync(patch: Patch) -> None:
    def sync_later(file: SimulatedFile) -> None:
        asyncio.get_running_loop().call_later(_LATE_S, file._image.sync)

    patch.setattr(SimulatedFile, "fdatasync", sync_later)


def leave_directories_unsynced(patch: Patch) -> None:
    patch.setattr(SimulatedDisk, "sync_directory", do_nothing)


def forget_the_journal(patch: Patch) -> None:
    read = Journal.open

    def open_and_forget(journal: Journal) -> list[JournalRecord]:
        read(journal)
        return []

    patch.setattr(Journal, "open", open_and_forget)


def ignore_short_writes(patch: Patch) -> None:
    def write_once(file: File, buffers: Sequence[Buffer], position: int) -> int:
        file.pwritev(buffers, position)
        return sum(map(len, buffers))

    patch.setattr(segment_writer, "write_fully", write_once)


def store_every_retry(patch: Patch) -> None:
    patch.setattr(producer, "_judge", do_nothing)


def honour_stale_receipts(patch: Patch) -> None:
    check = QueueFold.check

    def accept(fold: QueueFold, offset: int, number: int, **now: Any) -> None:
        try:
            check(fold, offset, number, **now)
        except StaleReceiptError:
            if offset not in fold.live:
                raise

    patch.setattr(QueueFold, "check", accept)


def show_aborted_records(patch: Patch) -> None:
    patch.setattr(Stability, "aborted_in", lambda *_: [])


def read_undecided_transactions(patch: Patch) -> None:
    patch.setattr(Stability, "last_stable_offset", property(lambda partition: partition.high_watermark))


def believe_every_clock(patch: Patch) -> None:
    def look(clock: NodeClock) -> None:
        clock._believe(clock.wall_ms() - clock.trusted_ms())

    patch.setattr(NodeClock, "look", look)


GONE = {"lost", "changed", "moved", "trouble"}
MUTANTS = (
    Mutant("acknowledge after the sync", acknowledge_before_the_sync, ("power",), GONE),
    Mutant("16, replay what is not in the segments", forget_the_journal, ("power",), GONE),
    Mutant("18, sync directories", leave_directories_unsynced, ("power",), GONE),
    Mutant("22, write the rest of a short write", ignore_short_writes, ("short_writes", "kill"), GONE),
    Mutant("27, recognise a retry", store_every_retry, ("reset", "slow_network"), {"doubled", "order"}),
    Mutant("invariant 5, leave out what was aborted", show_aborted_records, (), {"transaction"}),
    Mutant("invariant 5, wait for the decision", read_undecided_transactions, (), {"changed", "transaction"}),
    Mutant("32, refuse an older receipt", honour_stale_receipts, (), {"exactly once"}),
    Mutant("36, do not believe a jump of the clock", believe_every_clock, ("clock_jump",), GONE),
)


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.plant.__name__)
def test_a_rule_that_is_taken_away_is_missed(mutant: Mutant, monkeypatch: pytest.MonkeyPatch) -> None:
    mutant.plant(monkeypatch)
    for count, seed in enumerate(range(SEEDS_MAX), 1):
        found = run_seed(seed, pace="quick", faults=mutant.faults).verdict.violations
        if mutant.shows & found.keys():
            print(f"{mutant.rule}: found after {count} seeds: {', '.join(found)}")
            return
    raise AssertionError(f"{SEEDS_MAX} seeds have not missed the rule: {mutant.rule}")
