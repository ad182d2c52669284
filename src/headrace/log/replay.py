"""Walking a log's headers from an offset on, for folds that start from a snapshot. Blocks."""

from collections.abc import Callable, Iterator
from functools import partial
from typing import NamedTuple

from headrace.log.partition_log import PartitionLog
from headrace.log.walk import headers
from headrace.model.batch import BatchHeader
from headrace.model.ids import Offset


class Replayed(NamedTuple):
    """A batch that is met on the way. Its bytes are read only if they are asked for, before the next one."""

    header: BatchHeader
    read: Callable[[], bytes]


def replay_headers(log: PartitionLog, offset: Offset) -> Iterator[BatchHeader]:
    """Every batch header at or after an offset."""
    return (batch.header for batch in replay_batches(log, offset))


def replay_batches(log: PartitionLog, offset: Offset) -> Iterator[Replayed]:
    """Every batch at or after an offset."""
    for segment in log.segments:
        if segment.next_offset <= offset or segment.is_empty:
            continue
        log.load_index(segment)
        assert segment.index is not None
        entry = segment.index.floor(offset)
        position, start = (entry.position, entry.offset) if entry else (0, segment.first_offset)
        file = log.disk.open(segment.path)
        try:
            for header, at in headers(file, segment, position, segment.size, start):
                if header.base_offset >= offset:
                    yield Replayed(header, partial(file.pread, at, header.size))
        finally:
            file.close()
