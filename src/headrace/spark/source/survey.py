"""What there is now: which partitions a read is about, and which offsets its options mean in them."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import assert_never

from headrace.client.values import TopicInfo, TopicPartition
from headrace.model.errors import UnknownQueueError, UnknownTopicError
from headrace.spark.errors import DataLossError, OptionError
from headrace.spark.link import Link
from headrace.spark.option.kafka import READ_COMMITTED
from headrace.spark.option.place import EARLIEST, Everywhere, Offsets, Place, Time, Times
from headrace.spark.option.source import Assigned, Pattern, Queue, SourceOptions, Topics
from headrace.spark.source.mark import Positions, topics_of


@dataclass(frozen=True, slots=True)
class Selected:
    """The partitions to read, and the ids of their topics."""

    ats: tuple[TopicPartition, ...]
    ids: Mapping[str, str]


class Survey:
    def __init__(self, options: SourceOptions, link: Link) -> None:
        self._options = options
        self._link = link

    # Partitions.

    def select(self) -> Selected:
        """What the options name; an error where a name means nothing."""
        selected, missing = self.select_present()
        if missing:
            raise _unknown(self._options, missing[0])
        return selected

    def select_present(self) -> tuple[Selected, list[str]]:
        """What the options name and there is, and the topics that there are not."""
        chosen = self._options.selection
        match chosen:
            case Pattern(text):
                topics = {one.name: one for one in self._link.all_topics() if re.fullmatch(text, one.name)}
                return _selected(_all_partitions(topics.values()), topics), []
            case Topics(names):
                topics = self._link.topics(names)
                ats = _all_partitions(topics.values())
            case Queue(name):
                names = (name,)
                topics = self._link.topics(names)
                ats = _all_partitions(topics.values())
            case Assigned(partitions):
                names = tuple(topics_of(partitions))
                topics = self._link.topics(names)
                ats = [at for at in partitions if at.topic in topics]
                _check_partitions(ats, topics)
            case _:
                assert_never(chosen)
        return _selected(ats, topics), [name for name in names if name not in topics]

    # Offsets.

    def starts(self, ats: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        return self._link.start_offsets(ats)

    def ends(self, ats: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        return self._link.end_offsets(ats, committed=self._options.isolation == READ_COMMITTED)

    def resolve(self, place: Place, ats: Iterable[TopicPartition], *, is_start: bool) -> dict[TopicPartition, int]:
        """The offset that a place is in each partition."""
        ats = list(ats)
        match place:
            case Everywhere(word):
                return self.starts(ats) if word == EARLIEST else self.ends(ats)
            case Offsets(offsets, option):
                return self._resolve_offsets(_exactly(offsets, ats, option), option)
            case Time(timestamp_ms, option):
                return self._resolve_times(dict.fromkeys(ats, timestamp_ms), option, is_start=is_start)
            case Times(timestamps_ms, option):
                return self._resolve_times(_exactly(timestamps_ms, ats, option), option, is_start=is_start)

    def _resolve_offsets(self, offsets: Positions, option: str) -> dict[TopicPartition, int]:
        starts, ends = self.starts(offsets), self.ends(offsets)
        found = {}
        for at, offset in offsets.items():
            if offset > ends[at]:
                raise OptionError(f"the option {option} has {offset} for {at}, which ends at {ends[at]}; say less")
            found[at] = offset if offset >= 0 else starts[at] if offset == EARLIEST else ends[at]
        return found

    def _resolve_times(self, times_ms: Positions, option: str, *, is_start: bool) -> dict[TopicPartition, int]:
        found = self._link.offsets_for_times(times_ms)
        ends = self.ends(times_ms)
        for at, offset in found.items():
            if offset is None and is_start and not self._options.late_time_is_latest:
                raise OptionError(
                    f"{at} has no message at or after {times_ms[at]}, which the option {option} names; "
                    "say startingOffsetsByTimestampStrategy=latest to begin at its end"
                )
        return {at: ends[at] if offset is None else min(offset, ends[at]) for at, offset in found.items()}

    # What is gone.

    def kept(self, wanted: Positions, starts: Positions) -> dict[TopicPartition, int]:
        """Where to begin in each partition: where it is wanted, or behind what is gone if that is not to fail."""
        for at, offset in wanted.items():
            if offset < starts[at] and self._options.fail_on_data_loss:
                raise DataLossError(_gone(self._options, at, offset, starts[at]))
        return {at: max(offset, starts[at]) for at, offset in wanted.items()}


def _selected(ats: Iterable[TopicPartition], topics: Mapping[str, TopicInfo]) -> Selected:
    return Selected(tuple(sorted(ats)), {name: topic.id.hex for name, topic in topics.items()})


def _all_partitions(topics: Iterable[TopicInfo]) -> list[TopicPartition]:
    return [TopicPartition(topic.name, one.partition) for topic in topics for one in topic.partitions]


def _check_partitions(ats: Iterable[TopicPartition], topics: Mapping[str, TopicInfo]) -> None:
    for at in ats:
        count = len(topics[at.topic].partitions)
        if at.partition >= count:
            raise OptionError(f"the option assign names {at}, and {at.topic} has {count} partitions, counted from 0")


def _exactly(values: Positions, ats: list[TopicPartition], option: str) -> dict[TopicPartition, int]:
    """The same, once every partition that is read has a value and no other has."""
    for at in ats:
        if at not in values:
            words = "" if option.endswith("Timestamp") else ", -2 for the earliest, -1 for the latest"
            raise OptionError(f"the option {option} says nothing of {at}; name every partition{words}")
    for at in values:
        if at not in ats:
            raise OptionError(f"the option {option} names {at}, which is not read; leave it out")
    return {at: values[at] for at in ats}


def _unknown(options: SourceOptions, name: str) -> UnknownTopicError | UnknownQueueError:
    if isinstance(options.selection, Queue):
        return UnknownQueueError(f"there is no queue {name}; create it with `headrace queue create {name}`")
    return UnknownTopicError(f"there is no topic {name}; create it with `headrace topic create {name}`")


def _gone(options: SourceOptions, at: TopicPartition, offset: int, start: int) -> str:
    if isinstance(options.selection, Queue):
        return (
            f"queue {at} begins at offset {start}, and {offset} comes next: what lay there was done and cleaned away; "
            "name a reader (option reader) so that it is kept, or say failOnDataLoss=false to go on"
        )
    return (
        f"{at} begins at offset {start}, and {offset} comes next: retention removed {start - offset} offsets unread; "
        "keep messages for longer, or say failOnDataLoss=false to go on behind the gap"
    )
