"""Joins the small files of each partition of a table into large ones. Readers see the same rows.

Rows are copied a row group at a time, so that memory does not grow with the files. What is joined gets the names and
the syncs of every file of the sink (`part_file.py`): a vacuum finds what a killed compaction leaves, and the table
never names a file that a loss of power can take. Only files of the sink are joined; those of other writers stay.

The log is told in one transaction that some files are replaced by one, and that no row changed. The library does not
refuse such a transaction when another has replaced the same files since: their rows would be there twice. So the table
is looked at again before each transaction, and all compactions bear one mark (`key.py`), of which the library lets only
one through.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import CommitProperties, DeltaTable, Transaction
from deltalake.exceptions import CommitFailedError
from deltalake.transaction import AddAction, RemoveAction

from headrace.host.rand import SystemRand
from headrace.spark.lake.keying import ByBatch
from headrace.spark.lake.part_file import GATHERED_BYTES_MAX, PartFile, PartFiles, is_own
from headrace.spark.lake.schema import arrow_schema
from headrace.spark.lake.sink_option import COMPRESSIONS
from headrace.spark.lake.split import Values, spelled
from headrace.spark.lake.table import columns_of, file_paths, open_table, said, sync_log

COMPACTED_BYTES = 256 << 20
MEMORY_BYTES_DEFAULT = 256 << 20
MEMORY_BYTES_MIN = 64 << 20

_APPLICATION = "headrace/compaction"
# A row group is gathered and encoded while the next page is read, and the allocator keeps some of each.
_COPIES = 8
_READ_AT_ONCE_BYTES = 1 << 20
_FOREIGN_FEATURES = {"deletionVectors", "columnMapping"}  # they say what a file's rows mean, and files do not


@dataclass(frozen=True, slots=True)
class _Small:
    """A file that is to be joined with others of its partition."""

    path: str
    values: Values
    size_bytes: int
    row_count: int


def compact(path: Path, *, now_ms: int, memory_bytes: int = MEMORY_BYTES_DEFAULT) -> tuple[int, int]:
    """Join files to about `COMPACTED_BYTES`; returns how many were taken and how many made.

    Commits after each joined file: what a later one fails with does not undo it.
    """
    taken = made = 0
    with said(path):
        table = open_table(path)
        if _FOREIGN_FEATURES & {*(table.protocol().reader_features or ())}:
            return 0, 0
        for files in _bins(_small_files(table)):
            joined = _join(path, table, files, memory_bytes)
            if _replace(path, files, joined, now_ms):
                taken, made = taken + len(files), made + 1
        pa.default_memory_pool().release_unused()
    return taken, made


def _small_files(table: DeltaTable) -> list[_Small]:
    """In the order in which they were written, which is that of the offsets in an archive."""
    partition_by = table.metadata().partition_columns
    actions = pa.table(table.get_add_actions(flatten=True))
    columns = [f"partition.{name}" for name in partition_by]
    found = [
        (row["modification_time"], _Small(file, tuple(spelled(row[name]) for name in columns), size, rows))
        for file, row in zip(file_paths(table), actions.to_pylist(), strict=True)
        if (size := row["size_bytes"]) < COMPACTED_BYTES
        and (rows := row["num_records"]) is not None
        and is_own(file, partition_by)
    ]
    return [file for _, file in sorted(found, key=lambda one: (one[0], one[1].path))]


def _bins(files: Iterable[_Small]) -> Iterator[list[_Small]]:
    """Neighbouring files of one partition that are not too large together. Files without a neighbour stay."""
    open_bins: dict[Values, list[_Small]] = {}
    for file in files:
        bin = open_bins.setdefault(file.values, [])
        if sum(one.size_bytes for one in bin) + file.size_bytes > COMPACTED_BYTES:
            yield from _worthwhile(bin)
            bin = open_bins[file.values] = []
        bin.append(file)
    for bin in open_bins.values():
        yield from _worthwhile(bin)


def _worthwhile(bin: list[_Small]) -> Iterator[list[_Small]]:
    if len(bin) > 1:
        yield bin


def _join(path: Path, table: DeltaTable, files: list[_Small], memory_bytes: int) -> PartFile:
    partition_by = tuple(table.metadata().partition_columns)
    schema = arrow_schema(columns_of(table))
    parts = PartFiles(
        path,
        schema,
        partition_by=partition_by,
        compression=COMPRESSIONS[0],
        keying=ByBatch(),
        rand=SystemRand(),
        file_bytes_max=None,
    )
    stored = pa.schema([field for field in schema if field.name not in partition_by])
    try:
        for rows in _row_groups(path, files, stored, min(memory_bytes // _COPIES, GATHERED_BYTES_MAX)):
            parts.write(files[0].values, rows)
        (joined,) = parts.close()
    except BaseException:
        parts.discard()
        raise
    assert joined.row_count == sum(file.row_count for file in files), f"{joined.row_count} rows of {files}"
    return joined


def _row_groups(path: Path, files: Iterable[_Small], schema: pa.Schema, size_bytes: int) -> Iterator[pa.Table]:
    """The rows of files, one file after the other, in pieces of about so many bytes."""
    gathered: list[pa.RecordBatch] = []
    gathered_bytes = 0
    for file in files:
        for batch in _batches(path / file.path, schema, size_bytes // _COPIES):
            gathered.append(batch)
            gathered_bytes += batch.nbytes
            if gathered_bytes >= size_bytes:
                yield pa.Table.from_batches(gathered)
                gathered, gathered_bytes = [], 0
    if gathered:
        yield pa.Table.from_batches(gathered)


def _batches(path: Path, schema: pa.Schema, size_bytes: int) -> Iterator[pa.RecordBatch]:
    with pq.ParquetFile(path, buffer_size=_READ_AT_ONCE_BYTES, pre_buffer=False) as source:
        for index in range(source.num_row_groups):
            group = source.metadata.row_group(index)
            row_count = max(group.num_rows * size_bytes // max(group.total_byte_size, 1), 1)
            for batch in source.iter_batches(row_count, row_groups=[index]):
                yield _with_columns(batch, schema)


def _with_columns(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """A batch with the table's columns as they are now: those that were added since are null in it."""
    columns = [
        batch[field.name] if field.name in batch.schema.names else pa.nulls(batch.num_rows, field.type)
        for field in schema
    ]
    return pa.RecordBatch.from_arrays(
        [column.cast(field.type) for column, field in zip(columns, schema, strict=True)], schema=schema
    )


def _replace(path: Path, files: list[_Small], joined: PartFile, now_ms: int) -> bool:
    """One transaction; False where others have replaced or deleted some of the files meanwhile."""
    table = open_table(path)
    partition_by = table.metadata().partition_columns
    values = dict(zip(partition_by, joined.values, strict=True))
    if {file.path for file in files} <= {*file_paths(table)}:
        added = AddAction(joined.path, joined.size_bytes, values, joined.modified_ms, False, joined.statistics)
        removed = [RemoveAction(file.path, False, now_ms, file.size_bytes, values) for file in files]
        mark = Transaction(_APPLICATION, table.version() + 1)
        try:
            table.create_write_transaction(
                [added, *removed],
                "append",
                table.schema(),
                partition_by,
                commit_properties=CommitProperties(app_transactions=[mark]),
            )
        except CommitFailedError:
            pass
        else:
            sync_log(table, path)
            return True
    # As always, an error may have come after the commit.
    if joined.path not in file_paths(open_table(path)):
        (path / joined.path).unlink(missing_ok=True)
    return False
