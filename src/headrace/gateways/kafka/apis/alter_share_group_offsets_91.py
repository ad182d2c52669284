"""AlterShareGroupOffsets (key 91), version 0: move the start of a share group that has no members.

The start is the queue's, so moving it forward drops what lies below it for everybody who works from the queue. An
offset below it is refused where messages are done: a queue does not deliver them again.
"""

from headrace.gateways.kafka.context import Api, Context
from headrace.gateways.kafka.errors import message_of
from headrace.gateways.kafka.outcome import outcome_code
from headrace.wire.kafka.messages.alter_share_group_offsets import (
    AlterShareGroupOffsetsRequest,
    AlterShareGroupOffsetsResponse,
    AlterShareGroupOffsetsResponsePartition,
    AlterShareGroupOffsetsResponseTopic,
)
from headrace.wire.kafka.primitives import ZERO_UUID


async def _handle(
    context: Context, request: AlterShareGroupOffsetsRequest, version: int
) -> AlterShareGroupOffsetsResponse:
    wanted = [
        (topic.topic_name, [(one.partition_index, one.start_offset) for one in topic.partitions])
        for topic in request.topics
    ]
    changed = await context.shares.offsets.alter(request.group_id, wanted)
    return AlterShareGroupOffsetsResponse(
        responses=tuple(
            AlterShareGroupOffsetsResponseTopic(
                topic_name=topic.topic,
                topic_id=topic.topic_id or ZERO_UUID,
                partitions=tuple(
                    AlterShareGroupOffsetsResponsePartition(
                        partition_index=one.partition,
                        error_code=outcome_code(context, one.error),
                        error_message=None if one.error is None else message_of(one.error),
                    )
                    for one in topic.partitions
                ),
            )
            for topic in changed
        )
    )


def _refuse(
    request: AlterShareGroupOffsetsRequest, version: int, code: int, message: str
) -> AlterShareGroupOffsetsResponse:
    return AlterShareGroupOffsetsResponse(error_code=code, error_message=message)


API = Api(key=91, version_min=0, version_max=0, handle=_handle, refuse=_refuse)
