"""DeleteRecords (key 21), versions 0 to 2: move a log's start forward. Offset -1 means up to the high watermark.

`timeout_ms` is for other replicas, of which there are none: with 0, which some tools send, Kafka deletes from a topic
of one replica and answers success. Topics of headrace's own are left alone: what they hold is the state of groups and
transactions.
"""

from headrace.gateways.kafka.context import Api, Context
from headrace.gateways.kafka.errors import code_of
from headrace.model.errors import InvalidNameError
from headrace.model.ids import Offset
from headrace.model.names import INTERNAL_NAMES
from headrace.wire.kafka.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsPartitionResult,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopicResult,
)

_NO_OFFSET = -1
_WAIT_MS_MAX = 30_000


async def _handle(context: Context, request: DeleteRecordsRequest, version: int) -> DeleteRecordsResponse:
    topics = []
    for topic in request.topics:
        partitions = [await _delete(context, topic.name, asked) for asked in topic.partitions]
        topics.append(DeleteRecordsTopicResult(topic.name, tuple(partitions)))
    return DeleteRecordsResponse(topics=tuple(topics))


async def _delete(context: Context, topic: str, asked: DeleteRecordsPartition) -> DeleteRecordsPartitionResult:
    try:
        if topic in INTERNAL_NAMES:
            raise InvalidNameError(f"{topic} is a topic of headrace's own, and nothing is deleted from it for clients")
        partition = context.broker.partition(topic, asked.partition_index)
        start = await context.finish_within(_WAIT_MS_MAX, partition.delete_records(Offset(asked.offset)))
    except Exception as error:  # noqa: BLE001 - becomes this partition's error; the unexpected is logged
        code = code_of(context.explain(error))
        context.counters.count_error(code)
        return DeleteRecordsPartitionResult(asked.partition_index, _NO_OFFSET, code)
    return DeleteRecordsPartitionResult(asked.partition_index, start, 0)


def _refuse(request: DeleteRecordsRequest, version: int, code: int, message: str) -> DeleteRecordsResponse:
    return DeleteRecordsResponse(
        topics=tuple(
            DeleteRecordsTopicResult(
                topic.name,
                tuple(
                    DeleteRecordsPartitionResult(asked.partition_index, _NO_OFFSET, code) for asked in topic.partitions
                ),
            )
            for topic in request.topics
        )
    )


API = Api(key=21, version_min=0, version_max=2, handle=_handle, refuse=_refuse)
