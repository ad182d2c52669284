"""DescribeShareGroupOffsets (key 90), versions 0 and 1: where share groups stand in the queues that they work from.

The start is that of the queue, which all groups share: the first message that is not done. The lag, from version 1,
counts the messages that are not done. A queue that the group has not worked from has the start -1, as in Kafka.
"""

from headrace.broker.group.share_port import PartitionStart, TopicStarts
from headrace.gateways.kafka.context import Api, Context
from headrace.gateways.kafka.errors import message_of
from headrace.gateways.kafka.outcome import outcome_code
from headrace.wire.kafka.messages.describe_share_group_offsets import (
    DescribeShareGroupOffsetsRequest,
    DescribeShareGroupOffsetsRequestGroup,
    DescribeShareGroupOffsetsResponse,
    DescribeShareGroupOffsetsResponseGroup,
    DescribeShareGroupOffsetsResponsePartition,
    DescribeShareGroupOffsetsResponseTopic,
)
from headrace.wire.kafka.primitives import ZERO_UUID


async def _handle(
    context: Context, request: DescribeShareGroupOffsetsRequest, version: int
) -> DescribeShareGroupOffsetsResponse:
    return DescribeShareGroupOffsetsResponse(groups=tuple([await _describe(context, one) for one in request.groups]))


async def _describe(
    context: Context, asked: DescribeShareGroupOffsetsRequestGroup
) -> DescribeShareGroupOffsetsResponseGroup:
    topics = None if asked.topics is None else [(topic.topic_name, topic.partitions) for topic in asked.topics]
    try:
        found = await context.shares.offsets.describe(asked.group_id, topics)
    except Exception as error:  # noqa: BLE001 - becomes this group's error; the unexpected is logged
        return DescribeShareGroupOffsetsResponseGroup(
            group_id=asked.group_id, error_code=outcome_code(context, error), error_message=message_of(error)
        )
    return DescribeShareGroupOffsetsResponseGroup(
        group_id=asked.group_id, topics=tuple(_topic(context, one) for one in found)
    )


def _topic(context: Context, found: TopicStarts) -> DescribeShareGroupOffsetsResponseTopic:
    return DescribeShareGroupOffsetsResponseTopic(
        topic_name=found.topic,
        topic_id=found.topic_id or ZERO_UUID,
        partitions=tuple(_partition(context, one) for one in found.partitions),
    )


def _partition(context: Context, found: PartitionStart) -> DescribeShareGroupOffsetsResponsePartition:
    return DescribeShareGroupOffsetsResponsePartition(
        partition_index=found.partition,
        start_offset=found.offset,
        leader_epoch=found.epoch,
        lag=found.lag,
        error_code=outcome_code(context, found.error),
        error_message=None if found.error is None else message_of(found.error),
    )


def _refuse(
    request: DescribeShareGroupOffsetsRequest, version: int, code: int, message: str
) -> DescribeShareGroupOffsetsResponse:
    return DescribeShareGroupOffsetsResponse(
        groups=tuple(
            DescribeShareGroupOffsetsResponseGroup(group_id=one.group_id, error_code=code, error_message=message)
            for one in request.groups
        )
    )


API = Api(key=90, version_min=0, version_max=1, handle=_handle, refuse=_refuse)
