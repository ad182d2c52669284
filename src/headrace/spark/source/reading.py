"""A task's loop: ranges of offsets in, Arrow batches out.

    driver's plan --> [Range, ...] --fetch--> stored bytes --decode--> RecordBatches for Spark

Connections belong to the process and not to the task (see `kept`). While one answer is decoded and taken by the JVM,
the next one is already on its way; more than these two are never held.

A range is over when the next offset to read is its end or beyond. That offset comes from the headers of batches, so
control entries, aborted transactions and what compaction took away end a range like messages do. Where a partition has
nothing at all below what its readers may see, the rest of the range is such a hole.
"""

import logging
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import NamedTuple

import pyarrow as pa

from headrace.client.raw_fetch import Position, RawFetched
from headrace.client.router import ClientConfig
from headrace.client.values import TopicPartition
from headrace.model.errors import CorruptBatchError, TimedOutError, UnknownTopicError
from headrace.spark.arrow.decode import Wanted, decode_lazily
from headrace.spark.errors import DataLossError
from headrace.spark.source.kept import Kept, kept

_logger = logging.getLogger(__name__)

READ_COMMITTED, READ_UNCOMMITTED = "read_committed", "read_uncommitted"

# Small batches cost Spark more than their rows do: below this many rows, or bytes, they are joined.
BATCH_ROWS_MIN = 1_000
_BATCH_BYTES_ENOUGH = 4 << 20
_WAIT_MS = 500


@dataclass(frozen=True, slots=True)
class Range:
    """Offsets of one partition that a task reads."""

    topic: str
    partition: int
    start: int
    end: int  # exclusive

    @property
    def at(self) -> TopicPartition:
        return TopicPartition(self.topic, self.partition)


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadSettings:
    """How a task reads. Travels from the driver to the tasks."""

    servers: str
    isolation: str = READ_UNCOMMITTED
    # Whether offsets that are gone end the task, or are passed over.
    fail_on_data_loss: bool = True
    # Of one answer of a leader. Two of them are held at once.
    fetch_bytes_max: int = 16 << 20
    client: ClientConfig = field(default_factory=ClientConfig)


Skipped = Callable[[Range, int], None]


def read_ranges(
    ranges: Sequence[Range], columns: pa.Schema, settings: ReadSettings, *, skipped: Skipped | None = None
) -> Iterator[pa.RecordBatch]:
    """The rows of some ranges, those of a partition in order. `skipped` hears how many offsets of a range are gone."""
    reading = _Reading(ranges, settings, kept(settings.servers, settings.client), skipped or log_skipped)
    return _joined(reading.batches(columns))


class Piece(NamedTuple):
    """Stored bytes of a range, undecoded."""

    range: Range
    start: int  # where in the range they begin
    fetched: RawFetched


def fetch_ranges(ranges: Sequence[Range], settings: ReadSettings, *, skipped: Skipped | None = None) -> Iterator[Piece]:
    """What `read_ranges` decodes, for who decodes it otherwise."""
    return _Reading(ranges, settings, kept(settings.servers, settings.client), skipped or log_skipped).pieces()


@dataclass(slots=True)
class _Progress:
    """How far a range is read."""

    range: Range
    position: int

    @property
    def is_over(self) -> bool:
        return self.position >= self.range.end


class _Reading:
    def __init__(self, ranges: Sequence[Range], settings: ReadSettings, source: Kept, skipped: Skipped) -> None:
        self._settings = settings
        self._source = source
        self._skipped = skipped
        self._left = [progress for one in ranges if not (progress := _Progress(one, one.start)).is_over]
        self._wait_ms = 0
        self._moved_ms = source.clock.monotonic_ms()

    def batches(self, columns: pa.Schema) -> Iterator[pa.RecordBatch]:
        for one, start, fetched in self.pieces():
            wanted = Wanted(
                topic=fetched.at.topic,
                partition=fetched.at.partition,
                start=start,
                end=one.end,
                columns=columns,
            )
            found, _ = decode_lazily(fetched.records, wanted, fetched.aborted)
            yield from found

    def pieces(self) -> Iterator[Piece]:
        answer = self._ask()
        try:
            while answer is not None:
                taken = self._take(self._result(answer))
                answer = self._ask()
                for progress, start, fetched in taken:
                    yield Piece(progress.range, start, fetched)
        finally:
            if answer is not None:
                answer.cancel()

    def _ask(self) -> "Future[list[RawFetched]] | None":
        """Have the next bytes fetched: of every partition, where the first of its ranges goes on."""
        positions: dict[TopicPartition, Position] = {}
        for one in self._left:
            if one.range.at not in positions:
                expected_bytes = self._source.bytes_for(one.range.topic, one.range.end - one.position)
                bytes_max = min(self._settings.fetch_bytes_max, self._settings.client.partition_fetch_bytes_max)
                positions[one.range.at] = Position(one.position, min(expected_bytes, bytes_max))
        if not positions:
            return None
        return self._source.fetch(
            positions,
            committed=self._settings.isolation == READ_COMMITTED,
            wait_ms=self._wait_ms,
            bytes_max=self._settings.fetch_bytes_max,
        )

    def _result(self, answer: "Future[list[RawFetched]]") -> list[RawFetched]:
        try:
            return answer.result()
        except UnknownTopicError as error:
            if self._settings.fail_on_data_loss or not self._leave_missing():
                raise DataLossError(f"a topic was deleted while it was read: {error}") from error
            return []

    def _leave_missing(self) -> bool:
        """Pass over what is left of topics that are gone. Returns whether there are any."""
        missing = self._source.missing({one.range.topic for one in self._left})
        for one in self._left:
            if one.range.topic in missing:
                self._skipped(one.range, one.range.end - one.position)
                one.position = one.range.end
        return bool(missing)

    def _take(self, answers: Sequence[RawFetched]) -> list[tuple[_Progress, int, RawFetched]]:
        """What has rows, with where they begin. Every range is then as far as the answers go."""
        reading: dict[TopicPartition, _Progress] = {}
        for one in self._left:
            reading.setdefault(one.range.at, one)
        taken = []
        is_moved = False
        for fetched in answers:
            progress = reading[fetched.at]
            start = progress.position
            if fetched.error is not None:
                progress.position = self._pass_over(progress, fetched)
            elif fetched.next_offset > start:
                self._source.learn(fetched)
                taken.append((progress, start, fetched))
                progress.position = fetched.next_offset
            is_moved = is_moved or progress.position > start
        self._wait_ms = 0
        if is_moved:
            self._moved_ms = self._source.clock.monotonic_ms()
        else:
            for fetched in answers:
                self._end_or_wait(reading[fetched.at], fetched)
        self._left = [one for one in self._left if not one.is_over]
        return taken

    def _pass_over(self, progress: _Progress, fetched: RawFetched) -> int:
        """Where to go on behind offsets that the partition does not have, if that is allowed."""
        one, start = progress.range, progress.position
        resumed = fetched.start_offset if start < fetched.start_offset < one.end else one.end
        gone = f"{one.at}: offsets {start} to {resumed - 1} are gone"
        if self._settings.fail_on_data_loss:
            raise DataLossError(
                f"{gone}, it has those from {fetched.start_offset} on; retention removed them, or the topic was made "
                "anew. Set failOnDataLoss to false to go on without them"
            )
        self._skipped(one, resumed - start)
        return resumed

    def _end_or_wait(self, progress: _Progress, fetched: RawFetched) -> None:
        """Nothing was there. Below what readers may see, that is a hole up to the end; else it may still come."""
        one = progress.range
        if len(fetched.records):
            raise CorruptBatchError(f"{one.at} sent a batch at offset {progress.position} that is not whole")
        if fetched.readable_end >= one.end:
            progress.position = one.end
            return
        waited_ms = self._source.clock.monotonic_ms() - self._moved_ms
        if waited_ms < self._settings.client.deadline_ms:
            self._wait_ms = _WAIT_MS
        elif fetched.high_watermark >= one.end:
            raise TimedOutError(
                f"{one.at}: a transaction that is not over holds what is before offset {one.end}, "
                f"for {waited_ms} ms now; read later, or with read_uncommitted"
            )
        elif self._settings.fail_on_data_loss:
            raise DataLossError(
                f"{one.at} ends at offset {fetched.high_watermark}, and was to be read up to {one.end}; "
                "was the topic made anew?"
            )
        else:
            self._skipped(one, one.end - progress.position)
            progress.position = one.end


def log_skipped(one: Range, count: int) -> None:
    """What a stream counts in its progress, a batch can only tell so."""
    # Nobody sets up the logging of PySpark's workers, which then prints the message and none of its fields.
    _logger.warning(
        "%s: %d offsets that were to be read are gone",
        one.at,
        count,
        extra={"topic": one.topic, "partition": one.partition, "count": count},
    )


def _joined(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The same rows, small batches joined with those after them."""
    small: list[pa.RecordBatch] = []
    rows = size = 0
    for batch in batches:
        if batch.num_rows >= BATCH_ROWS_MIN and not small:
            yield batch
            continue
        small.append(batch)
        rows += batch.num_rows
        size += batch.nbytes
        if rows >= BATCH_ROWS_MIN or size >= _BATCH_BYTES_ENOUGH:
            yield pa.concat_batches(small)
            small, rows, size = [], 0, 0
    if small:
        yield pa.concat_batches(small)
