"""OffsetForLeaderEpoch (key 23), versions 2 to 4: where an epoch of leadership ended in this log.

Consumers ask it after a change of leader, to find out whether what they read was cut off. An epoch that the log does
not know answers epoch -1, offset -1. A replica id does not matter, as in ListOffsets.
"""

from headrace.gateways.kafka.context import Api, Context
from headrace.gateways.kafka.errors import read_code_of
from headrace.model.ids import Epoch
from headrace.wire.kafka.messages.offset_for_leader_epoch import (
    EpochEndOffset,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderPartition,
    OffsetForLeaderTopicResult,
)


def _handle(context: Context, request: OffsetForLeaderEpochRequest, version: int) -> OffsetForLeaderEpochResponse:
    return OffsetForLeaderEpochResponse(
        topics=tuple(
            OffsetForLeaderTopicResult(
                topic.topic, tuple(_answer(context, topic.topic, asked) for asked in topic.partitions)
            )
            for topic in request.topics
        )
    )


def _answer(context: Context, topic: str, asked: OffsetForLeaderPartition) -> EpochEndOffset:
    try:
        partition = context.broker.partition(topic, asked.partition)
        partition.check_epoch(Epoch(asked.current_leader_epoch))
        epoch, end_offset = partition.epoch_end(Epoch(asked.leader_epoch))
    except Exception as error:  # noqa: BLE001 - becomes this partition's error; the unexpected is logged
        code = read_code_of(context.explain(error))
        context.counters.count_error(code)
        return EpochEndOffset(code, asked.partition)
    return EpochEndOffset(0, asked.partition, epoch, end_offset)


def _refuse(
    request: OffsetForLeaderEpochRequest, version: int, code: int, message: str
) -> OffsetForLeaderEpochResponse:
    return OffsetForLeaderEpochResponse(
        topics=tuple(
            OffsetForLeaderTopicResult(
                topic.topic, tuple(EpochEndOffset(code, asked.partition) for asked in topic.partitions)
            )
            for topic in request.topics
        )
    )


API = Api(key=23, version_min=2, version_max=4, handle=_handle, refuse=_refuse)
