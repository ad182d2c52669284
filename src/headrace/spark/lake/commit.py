"""Adding files to a table in one Delta transaction, exactly once.

The transaction carries marks (`key.py`) beside the files. Two writers that bring the same mark are two writers of the
same rows: the log takes one of them, and the library refuses the other because the mark changed since it looked. What
was refused is decided again from the table as it is then:

- computed rows: the batch's mark is there, so the batch is, and there is nothing to add;
- rows of a topic: a file whose offsets are all below the table's is left out, one that lies across is written again
  without the rows that are there.

So it does not matter who comes again: a driver that died between this commit and Spark's, one that lost its checkpoint,
or a second one beside the first.

A commit that is answered with an error may have happened all the same. Looking again finds it by its marks; and for
this reason no file is removed here once a commit was tried with it. `vacuum` finds what stays behind.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import CommitProperties, DeltaTable, Transaction
from deltalake.exceptions import CommitFailedError
from deltalake.transaction import AddAction
from pyspark.sql.types import StructType

from headrace.host.rand import SystemRand
from headrace.spark.errors import LakeConflictError
from headrace.spark.lake.key import Mark, PartitionKey, begin_application, partition_application
from headrace.spark.lake.keying import ByBatch, ByOffset, Keying
from headrace.spark.lake.part_file import PartFile, PartFiles
from headrace.spark.lake.schema import arrow_schema
from headrace.spark.lake.sink_option import SinkOptions
from headrace.spark.lake.span import Span, joined
from headrace.spark.lake.table import exists, file_paths, open_table, ready_table, said, sync_log

ATTEMPTS_MAX = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What driver and tasks agree on for one write."""

    options: SinkOptions
    columns: StructType
    partition_by: tuple[str, ...]
    topic_ids: dict[str, str] | None
    overwrites: bool

    @property
    def path(self) -> Path:
        return self.options.path

    def keying(self) -> Keying:
        if self.options.keyed_by == "batch":
            return ByBatch()
        return ByOffset(self.path, self.topic_ids)

    def part_files(self) -> PartFiles:
        return PartFiles(
            self.path,
            arrow_schema(self.columns),
            partition_by=self.partition_by,
            compression=self.options.compression,
            keying=self.keying(),
            rand=SystemRand(),
        )


def add_batch(plan: Plan, files: Sequence[PartFile], mark: Mark | None) -> int:
    """Add computed rows, unless their mark says that the table has them. Returns how many were added."""
    for attempt in range(ATTEMPTS_MAX):
        table = _ready(plan)
        if mark is not None and _is_there(table, mark):
            if attempt == 0:
                remove_files(plan.path, files)
            return 0
        if not files and not plan.overwrites:
            return 0
        if _commit(plan, table, files, [mark] if mark is not None else []):
            return sum(file.row_count for file in files)
    raise _conflict(plan.path)


def add_offsets(plan: Plan, files: Sequence[PartFile]) -> int:
    """Add rows of topics, without those that the table has. Returns how many were added."""
    for attempt in range(ATTEMPTS_MAX):
        table = _ready(plan)
        files = _without_known(plan, table, files, removes=attempt == 0)
        if not files:
            return 0
        spans = joined(span for file in files for span in file.spans)
        if _commit(plan, table, files, [mark for span in spans for mark in _marks(plan, table, span)]):
            return sum(file.row_count for file in files)
    raise _conflict(plan.path)


def remove_unknown(plan: Plan, files: Sequence[PartFile]) -> None:
    """After a failure: remove the files, except those that the table has come to know."""
    known: set[str] = set()
    if exists(plan.path):
        known = set(file_paths(open_table(plan.path)))
    remove_files(plan.path, [file for file in files if file.path not in known])


def remove_files(path: Path, files: Iterable[PartFile]) -> None:
    for file in files:
        (path / file.path).unlink(missing_ok=True)


def _ready(plan: Plan) -> DeltaTable:
    options = plan.options
    with said(plan.path):
        return ready_table(plan.path, plan.columns, partition_by=options.partition_by, merges=options.merges_schema)


def _commit(plan: Plan, table: DeltaTable, files: Sequence[PartFile], marks: Sequence[Mark]) -> bool:
    """One transaction; False when the log refused it because of what others did since the table was opened."""
    properties = CommitProperties(app_transactions=[Transaction(mark.application, mark.version) for mark in marks])
    with said(plan.path):
        try:
            table.create_write_transaction(
                [_action(plan.partition_by, file) for file in files],
                "overwrite" if plan.overwrites else "append",
                table.schema(),
                list(plan.partition_by),
                commit_properties=properties,
            )
        except CommitFailedError:
            return False
        sync_log(table, plan.path)
    return True


def _action(partition_by: Sequence[str], file: PartFile) -> AddAction:
    values = dict(zip(partition_by, file.values, strict=True))
    return AddAction(file.path, file.size_bytes, values, file.modified_ms, True, file.statistics)


def _marks(plan: Plan, table: DeltaTable, span: Span) -> Iterator[Mark]:
    """Where a partition's rows end now, and where they begin if these are its first."""
    application = partition_application(span.key, plan.topic_ids)
    yield Mark(application, span.end)
    if table.transaction_version(application) is None:
        yield Mark(begin_application(span.key, plan.topic_ids), span.start)


def _is_there(table: DeltaTable, mark: Mark) -> bool:
    version = table.transaction_version(mark.application)
    return version is not None and version >= mark.version


def _without_known(plan: Plan, table: DeltaTable, files: Sequence[PartFile], *, removes: bool) -> list[PartFile]:
    keys = {span.key for file in files for span in file.spans}
    floors = {key: table.transaction_version(partition_application(key, plan.topic_ids)) or 0 for key in keys}
    known = [file for file in files if _has_known(file, floors)]
    kept = [file for file in files if not _has_known(file, floors)]
    for file in known:
        kept.extend(_written_again(plan, file))
    if removes:
        remove_files(plan.path, known)
    return kept


def _has_known(file: PartFile, floors: dict[PartitionKey, int]) -> bool:
    return any(span.start < floors[span.key] for span in file.spans)


def _written_again(plan: Plan, file: PartFile) -> tuple[PartFile, ...]:
    """The rows of a file that the table does not have, in files of their own."""
    schema = arrow_schema(plan.columns)
    parts = plan.part_files()
    try:
        with pq.ParquetFile(plan.path / file.path) as source:
            for index in range(source.num_row_groups):
                rows = source.read_row_group(index)
                for name, value in zip(plan.partition_by, file.values, strict=True):
                    column = pa.array([value] * rows.num_rows, pa.string()).cast(schema.field(name).type)
                    rows = rows.append_column(name, column)
                for batch in rows.select(schema.names).to_batches():
                    parts.add(batch)
        return parts.close()
    except BaseException:
        parts.discard()
        raise


def _conflict(path: Path) -> LakeConflictError:
    return LakeConflictError(
        f"the table at {path} was changed by others {ATTEMPTS_MAX} times while a batch was to be added; run it again"
    )
