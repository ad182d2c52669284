"""`format("headrace_minutes")`: a stream with a row for each minute that is over by the clock, for `lateMs` now.

Spark runs a batch when a source has rows. Without these the last minutes before a quiet time would stay open until the
next message, and those of a run that ends would wait for the next run that has any.
"""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, SupportsTriggerAvailableNow
from pyspark.sql.types import StructType

from headrace.host.clock import Clock, SystemClock
from headrace.spark.journal.minute import MINUTE_MS
from headrace.spark.pipeline.progress import TICK

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

NAME = "headrace_minutes"
LATE_OPTION = "lateMs"

Document = dict[str, Any]


def closed_before_ms(now_ms: int, late_ms: int) -> int:
    """The moment before which every minute is over, and what came late with it."""
    return (now_ms - late_ms) // MINUTE_MS * MINUTE_MS


class Ticks(DataSource):
    @classmethod
    def name(cls) -> str:
        return NAME

    def schema(self) -> str:
        return "minute bigint"

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802 - as PySpark calls it
        return TickReader(int(self.options[LATE_OPTION]), SystemClock())


class TickReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Offsets are minutes. However many have passed, the last one is the only row."""

    def __init__(self, late_ms: int, clock: Clock) -> None:
        self._late_ms = late_ms
        self._clock = clock
        self._target: int | None = None

    def initialOffset(self) -> Document:  # noqa: N802
        return {TICK: 0}

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        self._target = self._now()

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        return ReadAllAvailable()

    def latestOffset(self, start: Document, limit: ReadLimit) -> Document:  # noqa: N802
        minute = self._now() if self._target is None else self._target
        # The wall clock may be set back; a stream's offsets only rise.
        return {TICK: max(minute, start[TICK])}

    def partitions(self, start: Document, end: Document) -> Sequence[InputPartition]:
        return [InputPartition(end[TICK])] if start != end else []

    def read(self, partition: InputPartition) -> Iterator[tuple[int]]:
        yield (partition.value,)

    def _now(self) -> int:
        return closed_before_ms(self._clock.wall_ms(), self._late_ms) // MINUTE_MS


def register(spark: "SparkSession") -> None:
    """Make the format known to a session."""
    spark.dataSource.register(Ticks)
