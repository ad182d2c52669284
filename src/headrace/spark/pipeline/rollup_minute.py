"""Events added up by the minute, and Spark's side of it: what is kept of minutes that are not over.

A minute is written when the clock says that it is over and that nothing late is expected any more. Until then Spark
keeps it in the checkpoint. What comes later still, such as messages that were sent with times of long ago, is written
as a further row of its minute: the sum of the rows has every message once.

All of a micro-batch goes by one moment, which Spark writes down before it runs the batch. A batch that is run again
comes to the same rows.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import msgspec
from pyspark.sql import Row
from pyspark.sql.streaming.stateful_processor import StatefulProcessor, StatefulProcessorHandle

from headrace.spark.errors import without_stack
from headrace.spark.journal.minute import MINUTE_MS
from headrace.spark.pipeline.rollup_event import SENT, TICK

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

VALUE_SCHEMA = (
    "minute timestamp, name string, group string, event string, messages bigint, bytes bigint, "
    "p50_ms double, p95_ms double, p99_ms double, max_ms bigint, unknown bigint, offsets map<string, bigint>"
)
PERCENTILES = (0.5, 0.95, 0.99)

_MINUTE = "minute bigint"
_STATE = "summed binary"  # a `Minute` as JSON: Spark keeps no maps for Python
_PROVIDER = "spark.sql.streaming.stateStore.providerClass"
_ROCKSDB = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
_NO_DATA_BATCHES = "spark.sql.streaming.noDataMicroBatches.enabled"


class Minute(msgspec.Struct):
    """What happened in one minute to one name, by one group, by one event."""

    messages: int = 0
    bytes: int = 0
    unknown: int = 0  # messages without an age
    ages: dict[int, int] = {}  # how many messages had which
    offsets: dict[str, int] = {}  # of commits: the last of each partition

    def add(self, event: Any) -> None:
        """Add a row of `EVENT_SCHEMA`."""
        self.messages += event["messages"]
        self.bytes += event["bytes"]
        if event["ageMs"] is None:
            self.unknown += event["messages"]
        else:
            self.ages[event["ageMs"]] = self.ages.get(event["ageMs"], 0) + event["messages"]
        if event["offset"] is not None:
            place = str(event["partition"])
            self.offsets[place] = max(event["offset"], self.offsets.get(place, 0))

    def row(self, minute: int, name: str, group: str | None, event: str) -> Row:
        """A row of `VALUE_SCHEMA`."""
        p50, p95, p99 = percentiles(self.ages, PERCENTILES)
        return Row(
            minute=datetime.fromtimestamp(minute * MINUTE_MS / 1000, UTC),
            name=name,
            group=group,
            event=event,
            messages=self.messages,
            bytes=self.bytes,
            p50_ms=p50,
            p95_ms=p95,
            p99_ms=p99,
            max_ms=max(self.ages, default=None),
            unknown=None if event == SENT else self.unknown,
            offsets=self.offsets or None,
        )


def percentiles(ages: Mapping[int, int], parts: Iterable[float]) -> list[float | None]:
    """Between the two messages around it where a percentile is at none, as Spark's own have it."""
    counts = sorted((age, count) for age, count in ages.items() if count)
    last = sum(count for _, count in counts) - 1

    def at(index: int) -> int:
        for age, count in counts:
            if index < count:
                return age
            index -= count
        raise AssertionError(f"{index} beyond the last of {counts}")

    found: list[float | None] = []
    for part in parts:
        if last < 0:
            found.append(None)
            continue
        place = last * part
        below = int(place)
        low, high = at(below), at(min(below + 1, last))
        found.append(low + (high - low) * (place - below))
    return found


class Minutes(StatefulProcessor):
    """One for each name, group and event: keeps minutes until they are over."""

    def __init__(self, late_ms: int) -> None:
        self._late_ms = late_ms

    def init(self, handle: StatefulProcessorHandle) -> None:
        self._handle = handle
        self._open = handle.getMapState("minutes", _MINUTE, _STATE)

    def handleInputRows(self, key: Any, rows: Iterator[Row], timerValues: Any) -> Iterator[Row]:  # noqa: N802, N803 - PySpark's names
        with without_stack():
            if key[2] == TICK:
                return
            found: dict[int, Minute] = {}
            for row in rows:
                minute = row["minute"]
                if minute not in found:
                    found[minute] = self._known(minute)
                found[minute].add(row)
            now_ms = timerValues.getCurrentProcessingTimeInMs()
            for minute, summed in found.items():
                if self._closes_ms(minute) <= now_ms:
                    self._open.removeKey((minute,))
                    yield summed.row(minute, *key)
                else:
                    self._keep(minute, summed)

    def handleExpiredTimer(self, key: Any, timerValues: Any, expiredTimerInfo: Any) -> Iterator[Row]:  # noqa: N802, N803 - PySpark's names
        with without_stack():
            now_ms = timerValues.getCurrentProcessingTimeInMs()
            # Which minute the timer was for is not asked: an earlier run may have waited for other lengths of time.
            for minute in [minute for (minute,) in self._open.keys()]:  # noqa: SIM118 - no dictionary
                if self._closes_ms(minute) <= now_ms:
                    summed = self._known(minute)
                    self._open.removeKey((minute,))
                    yield summed.row(minute, *key)
                elif self._closes_ms(minute) not in self._handle.listTimers():
                    self._handle.registerTimer(self._closes_ms(minute))

    def close(self) -> None:
        pass

    def _known(self, minute: int) -> Minute:
        if not self._open.containsKey((minute,)):
            return Minute()
        state: Any = self._open.getValue((minute,))
        return msgspec.json.decode(state[0], type=Minute)

    def _keep(self, minute: int, summed: Minute) -> None:
        if not self._open.containsKey((minute,)):
            self._handle.registerTimer(self._closes_ms(minute))
        self._open.updateValue((minute,), (msgspec.json.encode(summed),))

    def _closes_ms(self, minute: int) -> int:
        return (minute + 1) * MINUTE_MS + self._late_ms


def set_up(spark: "SparkSession") -> None:
    """What a query of minutes needs. Its ticks start its batches; Spark would otherwise run empty ones without end."""
    spark.conf.set(_PROVIDER, _ROCKSDB)
    spark.conf.set(_NO_DATA_BATCHES, "false")


def by_minute(happened: "DataFrame", *, late_ms: int) -> "DataFrame":
    """A stream of events as rows of minutes that are over."""
    return happened.groupBy("name", "group", "event").transformWithState(
        Minutes(late_ms), VALUE_SCHEMA, outputMode="Append", timeMode="ProcessingTime"
    )


def add_up(happened: Iterable[Any]) -> list[Row]:
    """The same of all events at once, whether their minutes are over or not."""
    found: dict[tuple[Any, ...], Minute] = defaultdict(Minute)
    for row in happened:
        found[row["minute"], row["name"], row["group"], row["event"]].add(row)
    return [summed.row(*key) for key, summed in found.items()]
