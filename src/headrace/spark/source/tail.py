"""What the driver does for a stream, micro-batch after micro-batch.

Spark asks where the stream begins (`initial`, twice, and keeps no answer), then again and again how far it may read
(`latest`), and has what lies between the end of the last batch and the new one cut into tasks (`ranges`). It writes a
batch's end down before it runs the batch, and repeats the batch up to that end after a crash. So `ranges` decides
nothing: it gives the same offsets for the same marks, whenever and in whatever process it is asked.

While there is nothing to read, `latest` waits at the node for a short time. Spark asks again every 10 ms, and other
sources of the same query wait in the meantime, hence short.

A queue's log has more than messages: leases and acknowledgements are entries too. They alone start no batch, or a busy
queue would have one after another without rows. Only where no named reader keeps the log is the mark moved past them
now and then, so that what is cleaned away behind it is not taken for lost.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

from headrace.client.values import TopicPartition
from headrace.host.clock import Clock, SystemClock
from headrace.model.errors import OffsetOutOfRangeError, UnknownTopicError
from headrace.spark.errors import DataLossError
from headrace.spark.link import Link
from headrace.spark.option.place import EARLIEST, LATEST, NOTE, Everywhere
from headrace.spark.option.source import Queue, SourceOptions, describe
from headrace.spark.source.mark import Mark, Positions, behind_latest, fair_shares, write_positions
from headrace.spark.source.named_reader import NamedReader
from headrace.spark.source.reading import Range
from headrace.spark.source.survey import Selected, Survey

T = TypeVar("T")

WAIT_MS = 100
# How long a mark may stand before entries that are no messages.
STAND_MS_MAX = 30_000


class Tail:
    """One for each query, in the process that plans for it."""

    def __init__(
        self, options: SourceOptions, link: Link, *, control_is_news: bool = False, clock: Clock | None = None
    ) -> None:
        self._options = options
        self._link = link
        self._survey = Survey(options, link)
        self._clock = clock or SystemClock()
        self._queue = options.selection.name if isinstance(options.selection, Queue) else None
        self._skips_control = self._queue is not None and not control_is_news
        self._named: NamedReader | None = None
        if self._queue is not None and options.reader is not None:
            self._named = NamedReader(options.http, self._queue, options.reader, clock=self._clock)
        self._initial: Mark | None = None
        self._target: Positions | None = None  # the end of an available-now query
        self._ends: Positions = {}
        self._consumed: Positions = {}  # the end of the batch that was planned last
        self._glanced: dict[TopicPartition, int] = {}  # below it there is no message that is not in the mark
        self._moved_ms = self._clock.monotonic_ms()

    # Where it begins.

    def initial(self) -> Mark:
        """Resolved once: what is the latest offset must not depend on when Spark asks again."""
        if self._initial is None:
            place = self._options.starting or Everywhere(LATEST)
            selected = self._survey.select()
            self._initial = Mark(
                offsets=self._survey.resolve(place, selected.ats, is_start=True),
                ids=selected.ids,
                is_first=True,
                is_earliest=place == Everywhere(EARLIEST),
            )
        return self._initial

    def stop_at_present(self) -> None:
        """From now on nothing counts that is not there yet."""
        self._target = self._looking_again(lambda: self._survey.ends(self._survey.select_present()[0].ats))

    # How far it may read.

    def latest(self, start: Mark, *, most: int | None, least: int | None) -> Mark | None:
        """The next mark; None where there is nothing to read, or too little to begin."""
        if self._named is not None:
            self._named.move({at.partition: offset for at, offset in start.offsets.items()})
        found = self._looking_again(lambda: self._next(start, most=most, least=least))
        self._consumed = (found or start).offsets
        return found

    def end(self) -> Mark | None:
        """How far it could read when it was last asked."""
        return Mark(offsets=self._ends) if self._ends else None

    def report(self) -> dict[str, Any] | None:
        """The same for the query's progress."""
        if not self._ends:
            return None
        note = {"description": describe(self._options)} | behind_latest(self._consumed, self._ends)
        return write_positions(self._ends) | {NOTE: note}

    def _next(self, start: Mark, *, most: int | None, least: int | None) -> Mark | None:
        selected = self._same(start)
        step = self._step(start, selected)
        if self._target is None and not start.is_first and not any(step.waiting.values()):
            self._link.wait(step.tops, WAIT_MS)
            step = self._step(start, selected)
        if self._target is None and least is not None and self._is_too_little(step.waiting, least):
            return None
        count = sum(step.waiting.values())
        shares = fair_shares(step.waiting, count if most is None else most)
        # A partition that was never seen may have lost what it began with; a topic that is gone keeps its place.
        offsets = {at: offset for at, offset in start.offsets.items() if not _is_replaced(at.topic, start, selected)}
        offsets |= {at: offset + shares[at] for at, offset in step.begins.items()}
        offsets |= step.passed if not count else {}
        ids = {**start.ids, **selected.ids}
        # The same offsets of a topic that was made anew are other messages.
        if offsets == start.offsets and ids == start.ids and not start.is_first:
            return None
        self._moved_ms = self._clock.monotonic_ms()
        return Mark(
            offsets=offsets,
            ids=ids,
            skipped=_added(start.skipped, step.skipped),
            began=step.begins if start.is_first or _is_elsewhere(step.begins, start.offsets) else None,
        )

    def _step(self, start: Mark, selected: Selected) -> "_Step":
        ats = selected.ats
        # In this order: what comes after the tops are known ends the wait at them.
        tops = self._link.end_offsets(ats, committed=False)
        ends = self._survey.ends(ats)
        starts = self._survey.starts(ats)
        self._ends = ends
        if self._target is not None:
            ends = {at: min(ends[at], self._target.get(at, 0)) for at in ats}
        wanted = self._wanted(start, selected, starts)
        begins = self._begins(start, wanted, starts)
        for at in ats:
            self._check_end(at, begins[at], tops[at])
        waiting = {at: max(ends[at] - begins[at], 0) for at in ats}
        passed = self._pass_control(begins, ends, waiting) if self._skips_control else {}
        skipped = {} if start.is_first and start.is_earliest else _difference(begins, wanted)
        return _Step(tops=tops, begins=begins, waiting=waiting, passed=passed, skipped=skipped)

    def _wanted(self, start: Mark, selected: Selected, starts: Positions) -> dict[TopicPartition, int]:
        """Where each partition goes on: one that appeared since is read from its first message on."""
        wanted = {}
        for at in selected.ats:
            if _is_replaced(at.topic, start, selected):
                self._glanced.pop(at, None)
                wanted[at] = 0
            else:
                wanted[at] = start.offsets.get(at, 0)
        # What was seen to be no message may have gone unread.
        return {
            at: starts[at] if offset < starts[at] <= self._glanced.get(at, -1) else offset
            for at, offset in wanted.items()
        }

    def _begins(self, start: Mark, wanted: Positions, starts: Positions) -> dict[TopicPartition, int]:
        if start.is_first and start.is_earliest:
            return {at: max(offset, starts[at]) for at, offset in wanted.items()}
        return self._survey.kept(wanted, starts)

    def _check_end(self, at: TopicPartition, begin: int, top: int) -> None:
        if begin > top and self._options.fail_on_data_loss:
            raise DataLossError(
                f"{at} ends at offset {top}, and {begin} comes next: its messages were lost or deleted; "
                "begin with a new checkpoint, or say failOnDataLoss=false to wait until it has grown so far"
            )

    def _pass_control(self, begins: Positions, ends: Positions, waiting: dict[TopicPartition, int]) -> Positions:
        """Take out of `waiting` what has no message, and say what may be passed over if nothing else is there."""
        passed = {}
        for at in [at for at, count in waiting.items() if count]:
            position = max(begins[at], self._glanced.get(at, 0))
            first = self._link.first_message(at, position, ends[at]) if position < ends[at] else ends[at]
            self._glanced[at] = first
            if first >= ends[at]:
                waiting[at] = 0
                passed[at] = ends[at]
        stands_long = self._clock.monotonic_ms() - self._moved_ms >= STAND_MS_MAX
        return passed if stands_long and self._named is None else {}

    def _is_too_little(self, waiting: Positions, least: int) -> bool:
        stood_ms = self._clock.monotonic_ms() - self._moved_ms
        return sum(waiting.values()) < least and stood_ms < self._options.trigger_delay_ms_max

    # What became of its topics.

    def _looking_again(self, look: Callable[[], T]) -> T:
        """A topic may go, or another take its place, after it was found and before it is asked about. A second look
        finds what there is by then, and what is to be done about it is decided by that.
        """
        started_ms = self._clock.monotonic_ms()
        while True:
            try:
                return look()
            except (UnknownTopicError, OffsetOutOfRangeError):
                if self._clock.monotonic_ms() - started_ms >= self._options.client.deadline_ms:
                    raise

    def _same(self, start: Mark) -> Selected:
        """What is to be read now, once it is certain that the topics are those that the mark is about."""
        selected, missing = self._survey.select_present()
        if self._options.fail_on_data_loss:
            gone = [name for name in start.ids if name not in selected.ids]
            for name in [*missing, *gone]:
                raise DataLossError(
                    f"{name} was deleted, or is left out since the checkpoint was begun; "
                    "say failOnDataLoss=false to go on without it"
                )
            self._check_ids(start, selected)
        return selected

    def _check_ids(self, mark: Mark, selected: Selected) -> None:
        for name, id in mark.ids.items():
            if selected.ids.get(name, id) != id:
                raise DataLossError(
                    f"{name} was deleted and made anew while it was read; begin with a new checkpoint, "
                    "or say failOnDataLoss=false to read the new one from its start"
                )

    # What a batch reads.

    def ranges(self, start: Mark, end: Mark) -> list[Range]:
        """The offsets between two marks that there still are."""
        return self._looking_again(lambda: self._between(start, end))

    def _between(self, start: Mark, end: Mark) -> list[Range]:
        begins = start.offsets if end.began is None else end.began
        selected = self._same(end)
        wanted = {
            at: begins[at]
            for at, offset in end.offsets.items()
            if begins.get(at, offset) < offset and not _is_gone(at, end, selected)
        }
        kept = self._begins(start, wanted, self._survey.starts(wanted))
        ranges = [Range(at.topic, at.partition, kept[at], end.offsets[at]) for at in sorted(kept)]
        return [one for one in ranges if one.start < one.end]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Step:
    """What lies ahead of a mark, by partition."""

    tops: Positions  # the ends, transactions that are not over included
    begins: Positions
    waiting: Positions  # how many offsets could be read
    passed: Positions  # where to go on if there is nothing to read
    skipped: Positions  # how many offsets are gone


def _is_replaced(topic: str, mark: Mark, selected: Selected) -> bool:
    """Whether there is another topic in the place of the one that a mark is about."""
    return topic in mark.ids and topic in selected.ids and mark.ids[topic] != selected.ids[topic]


def _is_gone(at: TopicPartition, end: Mark, selected: Selected) -> bool:
    """Whether the topic that a mark is about is there no more, or another one in its place."""
    return at.topic not in selected.ids or _is_replaced(at.topic, end, selected)


def _is_elsewhere(begins: Positions, offsets: Positions) -> bool:
    return any(offsets.get(at) != offset for at, offset in begins.items())


def _difference(begins: Positions, wanted: Positions) -> dict[TopicPartition, int]:
    return {at: begins[at] - wanted[at] for at in begins if begins[at] > wanted[at]}


def _added(one: Positions, other: Positions) -> dict[TopicPartition, int]:
    return {at: one.get(at, 0) + other.get(at, 0) for at in {*one, *other}}
