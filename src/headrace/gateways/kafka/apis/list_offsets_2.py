"""ListOffsets (key 2), versions 1 to 10: where a log begins and ends, and which offset belongs to a time.

Special times: -1 the end for this reader (the high watermark, or the last stable offset under read_committed), -2 the
start, -3 (7+) the message with the largest timestamp, -4 (8+) the start on local disk, which is the start, -5 (9+) the
end of what was moved to other storage, which is nothing: offset -1 as Kafka without tiers says it.

A time after the last message answers offset -1 without error. `timeout_ms` (10+) is for reads from other storage, of
which there is none. A replica id does not matter: every caller is answered as a consumer. kafka-python 3.0.0 to 3.0.11
sends one.
"""

from headrace.gateways.kafka.context import Api, Context
from headrace.gateways.kafka.errors import ErrorCode, RefusedError, read_code_of
from headrace.gateways.kafka.port import PartitionPort
from headrace.model.ids import Epoch
from headrace.wire.kafka.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)

LATEST = -1
EARLIEST = -2
MAX_TIMESTAMP = -3
EARLIEST_LOCAL = -4
LATEST_TIERED = -5
_SPECIAL_FROM = {LATEST: 1, EARLIEST: 1, MAX_TIMESTAMP: 7, EARLIEST_LOCAL: 8, LATEST_TIERED: 9}
_READ_COMMITTED = 1


async def _handle(context: Context, request: ListOffsetsRequest, version: int) -> ListOffsetsResponse:
    committed = request.isolation_level == _READ_COMMITTED
    topics = []
    for topic in request.topics:
        partitions = [await _answer(context, topic.name, asked, version, committed) for asked in topic.partitions]
        topics.append(ListOffsetsTopicResponse(topic.name, tuple(partitions)))
    return ListOffsetsResponse(topics=tuple(topics))


async def _answer(
    context: Context, topic: str, asked: ListOffsetsPartition, version: int, committed: bool
) -> ListOffsetsPartitionResponse:
    index = asked.partition_index
    try:
        partition = context.broker.partition(topic, index)
        partition.check_epoch(Epoch(asked.current_leader_epoch))
        offset, timestamp_ms = await _find(partition, asked.timestamp, version, committed)
    except Exception as error:  # noqa: BLE001 - becomes this partition's error; the unexpected is logged
        code = read_code_of(context.explain(error))
        context.counters.count_error(code)
        return ListOffsetsPartitionResponse(index, code)
    # Versions before 4 have no place for the epoch, and an offset that was not found has none.
    epoch = partition.epoch if version >= 4 and offset >= 0 else -1
    return ListOffsetsPartitionResponse(index, 0, timestamp_ms, offset, epoch)


async def _find(partition: PartitionPort, timestamp_ms: int, version: int, committed: bool) -> tuple[int, int]:
    """Offset and timestamp, each -1 where there is none."""
    end = partition.last_stable_offset if committed else partition.high_watermark
    if timestamp_ms < 0:
        if version < _SPECIAL_FROM.get(timestamp_ms, version + 1):
            raise RefusedError(
                ErrorCode.UNSUPPORTED_VERSION, f"time {timestamp_ms} has no meaning in ListOffsets {version}"
            )
        if timestamp_ms == LATEST:
            return end, -1
        if timestamp_ms in (EARLIEST, EARLIEST_LOCAL):
            return partition.start_offset, -1
        if timestamp_ms == LATEST_TIERED:
            return -1, -1
        found: tuple[int, int] | None = await partition.max_timestamp(upto=end)
    else:
        found = await partition.offset_for_time(timestamp_ms)
    if found is None or not 0 <= found[0] < end:
        return -1, -1
    return found


def _refuse(request: ListOffsetsRequest, version: int, code: int, message: str) -> ListOffsetsResponse:
    return ListOffsetsResponse(
        topics=tuple(
            ListOffsetsTopicResponse(
                topic.name,
                tuple(ListOffsetsPartitionResponse(asked.partition_index, code) for asked in topic.partitions),
            )
            for topic in request.topics
        )
    )


API = Api(key=2, version_min=1, version_max=10, handle=_handle, refuse=_refuse)
