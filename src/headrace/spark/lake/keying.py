"""What a task does about rows that the table has already.

It is a saving and not the guarantee: the table may change while a task writes, and the driver looks again when it adds
the files (`commit.py`).
"""

from pathlib import Path
from typing import Protocol

import pyarrow as pa
from deltalake import DeltaTable

from headrace.spark.lake.key import PartitionKey, partition_application
from headrace.spark.lake.span import Span, spans_of, without_known


class Keying(Protocol):
    def trimmed(self, table: pa.Table) -> pa.Table:
        """The rows that are to be written."""

    def spans(self, table: pa.Table) -> list[Span]:
        """What the driver has to know of rows to decide about their file."""


class ByBatch:
    """Computed rows: a batch is in the table as a whole or not at all, so single rows say nothing."""

    def trimmed(self, table: pa.Table) -> pa.Table:
        return table

    def spans(self, table: pa.Table) -> list[Span]:
        return []


class ByOffset:
    """Rows of topics: those below the offset that the table has come to are left out."""

    def __init__(self, path: Path, topic_ids: dict[str, str] | None) -> None:
        self._path = path
        self._topic_ids = topic_ids
        self._table: DeltaTable | None = None
        self._floors: dict[PartitionKey, int] = {}

    def trimmed(self, table: pa.Table) -> pa.Table:
        spans = spans_of(table)
        for span in spans:
            if span.key not in self._floors:
                self._floors[span.key] = self._floor(span.key)
        return without_known(table, spans, self._floors)

    def spans(self, table: pa.Table) -> list[Span]:
        return spans_of(table)

    def _floor(self, key: PartitionKey) -> int:
        if self._table is None:
            if not DeltaTable.is_deltatable(self._path):
                return 0
            self._table = DeltaTable(self._path)
        return self._table.transaction_version(partition_application(key, self._topic_ids)) or 0
