"""Parquet files of one task: written into the table's directory, synced, and unknown to the table until the driver adds
them. Their names tell them from files that others keep in the same directory (`is_own`).

Rows are gathered until they make a row group of a good size, because Spark hands them over in pieces of 10,000 and a
row group for each would make files that are slow to read. What is gathered is bounded, and so is the number of files
that are open at once: a topic with odd timestamps has a day for every message.
"""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from headrace.host.disk import SystemDisk
from headrace.host.rand import Rand
from headrace.spark.lake.keying import Keying
from headrace.spark.lake.span import Span, joined
from headrace.spark.lake.split import Values, directory, named_column, split
from headrace.spark.lake.statistic import bounded_columns, statistics_json

GATHERED_BYTES_MAX = 64 << 20
FILE_BYTES_MAX = 512 << 20
OPEN_FILES_MAX = 64

_PREFIX = "headrace"
_OWN_NAME = re.compile(rf"{_PREFIX}-[0-9a-f]{{8}}(-[0-9a-f]{{4}}){{3}}-[0-9a-f]{{12}}\.[a-z0-9]+\.parquet")


def is_own(path: str, partition_by: Sequence[str]) -> bool:
    """Whether this sink wrote a file of a table, by its place below the table's directory and by its name.

    The place matters because one table may lie in the directory of another.
    """
    *directories, name = path.split("/")
    return _OWN_NAME.fullmatch(name) is not None and [named_column(one) for one in directories] == list(partition_by)


@dataclass(frozen=True, slots=True, kw_only=True)
class PartFile:
    """One file that is complete and on disk."""

    path: str  # relative to the table
    values: Values
    row_count: int
    size_bytes: int
    modified_ms: int
    statistics: str
    spans: tuple[Span, ...]


@dataclass(slots=True)
class _Open:
    path: str
    values: Values
    writer: pq.ParquetWriter
    footers: list[pq.FileMetaData]
    spans: list[Span] = field(default_factory=list)
    written_bytes: int = 0


class PartFiles:
    """The files of one task. Ends with `close`, which makes them durable, or with `discard`."""

    def __init__(
        self,
        table: Path,
        schema: pa.Schema,
        *,
        partition_by: tuple[str, ...],
        compression: str,
        keying: Keying,
        rand: Rand,
        file_bytes_max: int | None = FILE_BYTES_MAX,
    ) -> None:
        self._table = table
        self._schema = schema
        self._file_schema = pa.schema([field for field in schema if field.name not in partition_by])
        self._partition_by = partition_by
        self._compression = compression
        self._keying = keying
        self._rand = rand
        self._file_bytes_max = file_bytes_max
        self._gathered: list[pa.RecordBatch] = []
        self._gathered_bytes = 0
        self._open: dict[Values, _Open] = {}
        self._done: list[PartFile] = []

    def add(self, batch: pa.RecordBatch) -> None:
        self._gathered.append(batch)
        self._gathered_bytes += batch.nbytes
        if self._gathered_bytes >= GATHERED_BYTES_MAX:
            self._write_gathered()

    def close(self) -> tuple[PartFile, ...]:
        """Write what is left and sync everything, names too: what the driver adds must survive the machine."""
        self._write_gathered()
        for values in list(self._open):
            self._finish(self._open.pop(values))
        sync_directories(self._table, (part.path for part in self._done))
        return tuple(self._done)

    def discard(self) -> None:
        """Remove all files; the task has failed."""
        for part in self._open.values():
            part.writer.close()
        for path in [*(part.path for part in self._open.values()), *(part.path for part in self._done)]:
            (self._table / path).unlink(missing_ok=True)

    def _write_gathered(self) -> None:
        if not self._gathered:
            return
        table = self._keying.trimmed(pa.Table.from_batches(self._gathered).cast(self._schema))
        self._gathered, self._gathered_bytes = [], 0
        for values, rows in split(table, self._partition_by):
            self.write(values, rows.drop_columns(list(self._partition_by)), self._keying.spans(rows))

    def write(self, values: Values, rows: pa.Table, spans: Iterable[Span] = ()) -> None:
        """Write rows of one partition, without the columns that are in its values, as one row group."""
        part = self._open.pop(values, None) or self._begin(values)
        self._open[values] = part  # the least recently written one stands first
        part.spans.extend(spans)
        part.writer.write_table(rows, row_group_size=rows.num_rows)
        part.written_bytes += rows.nbytes
        if self._file_bytes_max is not None and part.written_bytes >= self._file_bytes_max:
            self._finish(self._open.pop(values))

    def _begin(self, values: Values) -> _Open:
        if len(self._open) >= OPEN_FILES_MAX:
            self._finish(self._open.pop(next(iter(self._open))))
        name = f"{_PREFIX}-{self._rand.uuid()}.{self._compression}.parquet"
        path = f"{directory(self._partition_by, values)}/{name}" if values else name
        (self._table / path).parent.mkdir(parents=True, exist_ok=True)
        footers: list[pq.FileMetaData] = []
        writer = pq.ParquetWriter(
            self._table / path,
            self._file_schema,
            compression=self._compression,
            metadata_collector=footers,
            **_encodings(self._file_schema),
        )
        return _Open(path, values, writer, footers)

    def _finish(self, part: _Open) -> None:
        part.writer.close()
        path = self._table / part.path
        sync_file(path)
        status = path.stat()
        (footer,) = part.footers
        self._done.append(
            PartFile(
                path=part.path,
                values=part.values,
                row_count=footer.num_rows,
                size_bytes=status.st_size,
                modified_ms=status.st_mtime_ns // 1_000_000,
                statistics=statistics_json(footer, self._file_schema),
                spans=joined(part.spans),
            )
        )


def _encodings(schema: pa.Schema) -> dict[str, Any]:
    """Offsets and times as differences, which take next to nothing; the rest by dictionary while values repeat."""
    counted = [field.name for field in schema if _is_counted(field.type)]
    return {
        "column_encoding": dict.fromkeys(counted, "DELTA_BINARY_PACKED"),
        "use_dictionary": [name for name in schema.names if name not in counted],
        "write_statistics": bounded_columns(schema),
    }


def _is_counted(kind: pa.DataType) -> bool:
    return bool(pa.types.is_integer(kind) or pa.types.is_date(kind) or pa.types.is_timestamp(kind))


def sync_file(path: Path) -> None:
    """Make a file's bytes durable, whoever wrote them."""
    file = SystemDisk().open(str(path))
    try:
        file.fdatasync()
    finally:
        file.close()


def sync_directories(table: Path, paths: Iterable[str]) -> None:
    """Make the names of files durable: their directories, and those up to the table's own."""
    disk = SystemDisk()
    directories = {parent for path in paths for parent in Path(path).parents}
    for relative in sorted(directories, key=lambda path: -len(path.parts)):
        disk.sync_directory(str(table / relative))
