"""Regular upkeep of a table beside the queries that write to it."""

import datetime
import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self

from headrace.host.clock import Clock
from headrace.spark.errors import LakeError
from headrace.spark.lake.compaction import compact
from headrace.spark.lake.maintenance import drop_days_before, vacuum
from headrace.spark.lake.table import exists


@dataclass(frozen=True, slots=True, kw_only=True)
class Upkeep:
    """What is done to a table besides adding to it."""

    keep_days: int | None  # None: for ever
    compact_memory_bytes: int | None  # to join small files with; None: leave them
    vacuum_hours: int | None  # None: never


@dataclass(frozen=True, slots=True, kw_only=True)
class Kept:
    """What upkeep came to."""

    dropped_rows: int = 0
    compacted_files: int = 0
    removed_files: int = 0

    def __add__(self, other: "Kept") -> "Kept":
        return Kept(
            dropped_rows=self.dropped_rows + other.dropped_rows,
            compacted_files=self.compacted_files + other.compacted_files,
            removed_files=self.removed_files + other.removed_files,
        )


def keep_up(path: Path, upkeep: Upkeep, *, now_ms: int) -> Kept:
    """Once through all of it: first what goes, so that nothing is rewritten that is dropped next."""
    if not exists(path):
        return Kept()
    dropped = compacted = removed = 0
    if upkeep.keep_days is not None:
        today = datetime.datetime.fromtimestamp(now_ms / 1000, datetime.UTC).date()
        dropped = drop_days_before(path, today - datetime.timedelta(days=upkeep.keep_days))
    if upkeep.compact_memory_bytes is not None:
        compacted, _ = compact(path, now_ms=now_ms, memory_bytes=upkeep.compact_memory_bytes)
    if upkeep.vacuum_hours is not None:
        removed = vacuum(path, retention_hours=upkeep.vacuum_hours)
    return Kept(dropped_rows=dropped, compacted_files=compacted, removed_files=removed)


class RegularUpkeep:
    """Upkeep every so often in a thread, from the first interval on until the end of the block."""

    def __init__(
        self, path: Path, upkeep: Upkeep, *, every_s: float, clock: Clock, note: Callable[[str], None]
    ) -> None:
        self._path = path
        self._upkeep = upkeep
        self._every_s = every_s
        self._clock = clock
        self._note = note
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._work, name="headrace-lake-upkeep", daemon=True)
        self.kept = Kept()

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._ended.set()
        self._thread.join()

    def _work(self) -> None:
        while not self._ended.wait(self._every_s):
            try:
                self.kept += keep_up(self._path, self._upkeep, now_ms=self._clock.wall_ms())
            except LakeError as error:
                # A writer was faster, or the disk is full: the next time may go better, and the queries go on.
                self._note(f"The upkeep of the table is put off: {error}")
