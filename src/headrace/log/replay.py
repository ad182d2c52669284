"""Walking a log's headers from an offset on, for folds that start from a snapshot. Blocks."""

from collections.abc import Iterator

from headrace.log.partition_log import PartitionLog
from headrace.log.walk import headers
from headrace.model.batch import BatchHeader
from headrace.model.ids import Offset


def replay_headers(log: PartitionLog, offset: Offset) -> Iterator[BatchHeader]:
    """Every batch header at or after an offset."""
    for segment in log.segments:
        if segment.next_offset <= offset or segment.is_empty:
            continue
        log.load_index(segment)
        assert segment.index is not None
        entry = segment.index.floor(offset)
        position, start = (entry.position, entry.offset) if entry else (0, segment.first_offset)
        file = log.disk.open(segment.path)
        try:
            for header, _ in headers(file, segment, position, segment.size, start):
                if header.base_offset >= offset:
                    yield header
        finally:
            file.close()
