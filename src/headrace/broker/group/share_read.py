"""Reading messages that were leased, as stored batches: a share consumer takes them apart itself.

A batch goes out as it is stored where most of it was leased, because that costs nothing. Where others have most of it,
only the leased messages go out, with their offsets as they were: a consumer that works beside many others would
otherwise be sent every batch as often as there are consumers.
"""

from bisect import bisect_left
from collections.abc import Sequence
from typing import NamedTuple

from headrace.broker.queue.partition_queue import PartitionQueue
from headrace.log.driver import LogStore
from headrace.log.keep import keep_records
from headrace.model.batch import BatchHeader, Buffer, read_header
from headrace.model.errors import OffsetOutOfRangeError
from headrace.model.ids import Offset

_READ_BYTES = 256 * 1024


class ReadBatches(NamedTuple):
    buffers: list[Buffer]
    lost: list[int]  # leased, and not in the log any more
    unread: Sequence[int]  # more than the answer may hold

    @property
    def size(self) -> int:
        return sum(map(len, self.buffers))


async def read_batches(
    store: LogStore, partition: PartitionQueue, offsets: Sequence[int], *, bytes_max: int | None
) -> ReadBatches:
    """The batches of these offsets, which are in order; at least one, and more up to so many bytes."""
    log = partition.partition.log
    buffers: list[Buffer] = []
    lost: list[int] = []
    at = size = 0
    while at < len(offsets):
        if bytes_max is not None and size >= bytes_max:
            break
        reads = log.read(Offset(offsets[at]), bytes_max=_READ_BYTES, upto=partition.partition.high_watermark)
        try:
            found = await store.read(reads)
        except (OffsetOutOfRangeError, FileNotFoundError):
            lost.append(offsets[at])  # retention was quicker
            at += 1
            continue
        data = memoryview(found.data)
        begin = at
        while data and at < len(offsets) and (bytes_max is None or size < bytes_max):
            header = read_header(data)
            batch, data = data[: header.size], data[header.size :]
            first = bisect_left(offsets, header.base_offset, at)
            lost += offsets[at:first]
            at = bisect_left(offsets, header.next_offset, first)
            if header.is_control:
                lost += offsets[first:at]
            elif at > first:
                buffers.append(_thinned(header, batch, offsets[first:at]))
                size += len(buffers[-1])
        if at == begin:
            lost.append(offsets[at])
            at += 1
    return ReadBatches(buffers, lost, offsets[at:])


def _thinned(header: BatchHeader, batch: memoryview, wanted: Sequence[int]) -> Buffer:
    return batch if len(wanted) * 2 >= header.record_count else keep_records(header, batch, frozenset(wanted))
