"""What a full queue drops: its oldest messages, in whichever partition they lie.

Within a partition the order of offsets tells which is older. Between partitions only time does, that of the batch in
which a message was written. It is read where it stands, for the first batch of each partition, and kept until
something of another one is asked for: a fold has no room for a time for each message.
"""

from collections.abc import Iterator
from heapq import merge
from itertools import islice, takewhile
from typing import NamedTuple

from headrace.broker.queue.loader import Loader
from headrace.broker.queue.partition_queue import PartitionQueue
from headrace.broker.queue.partitions import QueuePartitions
from headrace.model.topic import INT64_MAX


class _Written(NamedTuple):
    """When the messages from one offset up to another were written."""

    start: int
    end: int
    time_ms: int


_NOTHING = _Written(0, 0, 0)


class Oldest:
    def __init__(self, partitions: QueuePartitions, loader: Loader) -> None:
        self._partitions = partitions
        self._loader = loader
        self._written: dict[int, _Written] = {}  # by partition

    def drop(self, count: int, *, spared: tuple[PartitionQueue, int] | None = None) -> None:
        """Drop so many messages that no consumer holds, if there are; none of a partition from a spared offset on."""
        at_work = list(self._partitions)
        if len(at_work) == 1:
            chosen = {0: list(islice(_free(at_work[0], spared), count))}
        else:
            chosen = {}
            by_age = merge(*(self._aged(place, partition, spared) for place, partition in enumerate(at_work)))
            for _, place, offset in islice(by_age, count):
                chosen.setdefault(place, []).append(offset)
        for place, offsets in chosen.items():
            if offsets:
                at_work[place].drop(offsets)

    def _aged(
        self, place: int, partition: PartitionQueue, spared: tuple[PartitionQueue, int] | None
    ) -> Iterator[tuple[int, int, int]]:
        """Time, place and offset of its messages, the oldest first."""
        for offset in _free(partition, spared):
            yield self._time_ms(partition, offset), place, offset

    def _time_ms(self, partition: PartitionQueue, offset: int) -> int:
        """When a message was written. What is on the device alone counts as older than anything else."""
        if offset >= partition.partition.high_watermark:
            return INT64_MAX
        known = self._written.get(partition.index, _NOTHING)
        if not known.start <= offset < known.end:
            header = self._loader.glance(partition, offset)
            if header is None:
                return 0
            known = _Written(header.base_offset, header.next_offset, header.base_timestamp_ms)
            self._written[partition.index] = known
        return known.time_ms


def _free(partition: PartitionQueue, spared: tuple[PartitionQueue, int] | None) -> Iterator[int]:
    """Messages of a partition that may be dropped, in order of offset."""
    offsets = partition.fold.free_offsets()
    return offsets if spared is None or spared[0] is not partition else takewhile(spared[1].__gt__, offsets)
