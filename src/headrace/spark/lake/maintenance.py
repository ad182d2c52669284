"""The upkeep of a Delta table: what it holds, dropping old days, removing files that its log does not name.

All of it goes on beside readers and writers; joining small files is in `compaction.py`. A deletion is an entry of the
log like any other, and a batch that is being added meanwhile is decided again (`commit.py`). What the table remembers
of written offsets and batches is not touched: a dropped day does not come back because a checkpoint was lost.
"""

import datetime
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
from deltalake import CommitProperties, Transaction

from headrace.spark.lake.key import dropped_mark
from headrace.spark.lake.part_file import is_own
from headrace.spark.lake.table import open_table, said

VACUUM_HOURS_DEFAULT = 168  # a week, as Delta itself has it


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


def drop_days_before(path: Path, day: datetime.date, *, column: str = "day") -> int:
    """Delete the rows of earlier days. Their files go with the next vacuum. Returns how many rows were deleted.

    The deletion is marked (`key.py`): an audit tells dropped rows from lost ones by it.
    """
    mark = dropped_mark(day)
    with said(path):
        table = open_table(path)
        # A longer retention than before does not bring the earlier days back.
        version = max(mark.version, table.transaction_version(mark.application) or 0)
        properties = CommitProperties(app_transactions=[Transaction(mark.application, version)])
        metrics: dict[str, Any] = table.delete(f"{column} < '{day.isoformat()}'", commit_properties=properties)
    return int(metrics["num_deleted_rows"] or 0)


def vacuum(path: Path, *, retention_hours: int = VACUUM_HOURS_DEFAULT) -> int:
    """Remove files of this sink that the table has not named for so long; returns how many.

    They are what compaction and deletion replaced and what killed drivers left. A batch that is under way has files
    that are not named yet: the retention must be longer than any batch takes. The library only lists what is not named,
    because it would remove every file below the table's directory, whatever program put it there.
    """
    removed = 0
    with said(path):
        table = open_table(path)
        partition_by = table.metadata().partition_columns
        unnamed = table.vacuum(
            dry_run=True, retention_hours=retention_hours, enforce_retention_duration=False, full=True
        )
        for name in set(unnamed):
            # The list also has what an earlier vacuum has removed, and what symbolic links lead to.
            if is_own(name, partition_by) and (path / name).exists() and not _is_elsewhere(path, name):
                (path / name).unlink()
                removed += 1
    return removed


def _is_elsewhere(path: Path, name: str) -> bool:
    """Whether a symbolic link below the table's directory leads to the file, which may be another table's."""
    return (path / name).resolve() != path.resolve() / name
