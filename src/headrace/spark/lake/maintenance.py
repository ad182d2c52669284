"""The upkeep of a Delta table: small files into large ones, days that nobody wants any more, files that no log names.

All of it goes on beside readers and writers. Compaction and deletion are entries of the log like any other, and a batch
that is being added meanwhile is decided again (`commit.py`). What the table remembers of written offsets and batches is
not touched: a day that was dropped does not come back because a checkpoint was lost.
"""

import datetime
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa

from headrace.spark.lake.table import open_table, said

VACUUM_HOURS_DEFAULT = 168  # a week, as Delta itself has it
COMPACTED_BYTES = 256 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Contents:
    """What a table holds now under one value of a partition column."""

    row_count: int
    size_bytes: int
    file_count: int


def contents(path: Path, column: str) -> dict[str | None, Contents]:
    """Rows, bytes and files for each value of a partition column, from the log alone."""
    with said(path):
        actions = pa.table(open_table(path).get_add_actions(flatten=True))
    if not actions.num_rows:
        return {}
    grouped = actions.group_by(f"partition.{column}").aggregate(
        [("num_records", "sum"), ("size_bytes", "sum"), ("path", "count")]
    )
    return {
        row[f"partition.{column}"]: Contents(
            row_count=row["num_records_sum"], size_bytes=row["size_bytes_sum"], file_count=row["path_count"]
        )
        for row in grouped.to_pylist()
    }


def compact(path: Path) -> tuple[int, int]:
    """Join small files of each partition; says how many were taken and how many made. Readers see the same rows."""
    with said(path):
        metrics: dict[str, Any] = open_table(path).optimize.compact(target_size=COMPACTED_BYTES)
    return metrics["numFilesRemoved"], metrics["numFilesAdded"]


def drop_days_before(path: Path, day: datetime.date, *, column: str = "day") -> int:
    """Delete the rows of earlier days. Their files go with the next vacuum. Returns how many rows were deleted."""
    with said(path):
        metrics: dict[str, Any] = open_table(path).delete(f"{column} < '{day.isoformat()}'")
    return int(metrics["num_deleted_rows"] or 0)


def vacuum(path: Path, *, retention_hours: int = VACUUM_HOURS_DEFAULT) -> int:
    """Remove files that the table does not name and that are older than this; says how many.

    They are what compaction and deletion replaced and what killed drivers left. A batch that is under way has files
    that are not named yet: the retention must be longer than any batch takes.
    """
    with said(path):
        table = open_table(path)
        settings: dict[str, Any] = {
            "retention_hours": retention_hours,
            "enforce_retention_duration": False,
            "full": True,
        }
        # It also lists what an earlier vacuum has removed, and writes to the log even when nothing is left to do.
        there = [name for name in table.vacuum(dry_run=True, **settings) if (path / name).exists()]
        if there:
            table.vacuum(dry_run=False, **settings)
    return len(there)
