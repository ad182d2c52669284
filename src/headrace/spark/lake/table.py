"""A Delta table as the sink sees it: opened or made, with the columns that the rows need."""

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit

from deltalake import DeltaTable, Field, Schema
from deltalake.exceptions import DeltaError
from pyspark.sql.types import StructField, StructType

from headrace.host.disk import SystemDisk
from headrace.spark.errors import LakeError, OptionError
from headrace.spark.lake.part_file import is_own, sync_file
from headrace.spark.lake.schema import added_columns, delta_schema, nullable, spark_schema

_LOG = "_delta_log"


@contextmanager
def said(path: Path) -> Iterator[None]:
    """What the Delta library and the disk have to say, as one sentence about the table."""
    try:
        yield
    except (DeltaError, OSError) as error:
        reason = " ".join(str(error).split())
        raise LakeError(f"the table at {path} cannot be read or written: {reason}") from error


def exists(path: Path) -> bool:
    return path.is_dir() and DeltaTable.is_deltatable(str(path))


def check_place(path: Path, *, partition_by: Sequence[str]) -> None:
    """Refuse a place for a table where other things are. Vacuums and later commits take the whole directory as theirs.

    Files of a first batch that was never committed are the sink's own. Hidden names, as of a checkpoint inside the
    table's directory, do not count: no reader or vacuum of Delta tables looks at them.
    """
    for place in (path, *path.parents):
        if place.is_file():
            raise OptionError(f"{place} is a file, and the table {path} is a directory; give another path")
    if exists(path):
        return
    with said(path):
        found = next((file for file in _visible_files(path) if not is_own(file, partition_by)), None)
    if found is not None:
        raise OptionError(
            f"{path} is not a Delta table, and {found} is in it; give a directory that is empty or does not exist"
        )


def _visible_files(root: Path) -> Iterator[str]:
    def fail(error: OSError) -> None:
        raise error

    for place, directories, files in os.walk(root, onerror=fail) if root.exists() else ():
        directories[:] = sorted(name for name in directories if not _is_hidden(name))
        for name in sorted(files):
            if not _is_hidden(name):
                yield Path(place, name).relative_to(root).as_posix()


def _is_hidden(name: str) -> bool:
    return name.startswith(("_", "."))


def open_table(path: Path) -> DeltaTable:
    """An existing table as it is now."""
    with said(path):
        if not exists(path):
            raise LakeError(f"there is no Delta table at {path}")
        return DeltaTable(str(path))


def file_paths(table: DeltaTable) -> list[str]:
    """Where the table's files are, from its directory on.

    The library's own addresses begin with the directory as an address has it: symbolic links are followed, and what is
    no plain character is escaped. What comes behind it is as it is on the disk.
    """
    root = urlsplit(table.table_uri).path
    return [uri.removeprefix(root) for uri in table.file_uris()]


def columns_of(table: DeltaTable) -> StructType:
    return nullable(spark_schema(table.schema()))


def check_fit(
    table: DeltaTable, rows: StructType, *, path: Path, partition_by: Sequence[str] | None, merges: bool
) -> list[StructField]:
    """Refuse rows that do not fit the table; the columns that it has still to get."""
    partitioned = table.metadata().partition_columns
    if partition_by is not None and list(partition_by) != partitioned:
        there = f"by {', '.join(partitioned)}" if partitioned else "not at all"
        raise OptionError(f"partitionBy is {', '.join(partition_by)}, and the table at {path} is partitioned {there}")
    added = added_columns(columns_of(table), rows, path=str(path), merges=merges)
    absent = [name for name in partitioned if name not in rows.names]
    if absent:
        raise OptionError(f"the table at {path} is partitioned by {', '.join(absent)}, which the rows do not have")
    return added


def ready_table(path: Path, rows: StructType, *, partition_by: Sequence[str] | None, merges: bool) -> DeltaTable:
    """The table as it is now, made or grown so that the rows fit."""
    if not exists(path):
        check_place(path, partition_by=partition_by or ())
        _create(path, delta_schema(rows), partition_by or ())
    table = DeltaTable(str(path))
    added = check_fit(table, rows, path=path, partition_by=partition_by, merges=merges)
    if added:
        fields = [Field.from_json(field.json()) for field in added]
        table.alter.add_columns(fields)
        table = DeltaTable(str(path))
    return table


def _create(path: Path, schema: Schema, partition_by: Sequence[str]) -> None:
    path.mkdir(parents=True, exist_ok=True)
    try:
        DeltaTable.create(str(path), schema, partition_by=list(partition_by))
    except DeltaError:
        # Another writer was first; what it made is checked like any table.
        if not exists(path):
            raise


def sync_log(table: DeltaTable, path: Path) -> None:
    """Make the versions durable that came after the one which the handle has.

    The library renames its files into place and leaves it to the kernel when they reach the disk. Spark's own commit is
    on disk soon after, and a machine that then loses power must not wake up with Spark's word and without ours.
    """
    before = table.version()
    table.update_incremental()
    for version in range(before + 1, table.version() + 1):
        entry = path / _LOG / f"{version:020}.json"
        if entry.exists():
            sync_file(entry)
    disk = SystemDisk()
    disk.sync_directory(str(path / _LOG))
    disk.sync_directory(str(path))
