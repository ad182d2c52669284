"""OffsetDelete (key 47), version 0: forget offsets of a group for topics that its members do not read."""

from headrace.gateways.kafka.context import Api, Context
from headrace.gateways.kafka.outcome import outcome_code
from headrace.wire.kafka.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteResponse,
    OffsetDeleteResponsePartition,
    OffsetDeleteResponseTopic,
)


async def _handle(context: Context, request: OffsetDeleteRequest, version: int) -> OffsetDeleteResponse:
    asked = [(topic.name, one.partition_index) for topic in request.topics for one in topic.partitions]
    outcomes = iter(await context.groups.delete_offsets(request.group_id, asked))
    return OffsetDeleteResponse(
        topics=tuple(
            OffsetDeleteResponseTopic(
                topic.name,
                tuple(
                    OffsetDeleteResponsePartition(one.partition_index, outcome_code(context, next(outcomes)))
                    for one in topic.partitions
                ),
            )
            for topic in request.topics
        )
    )


def _refuse(request: OffsetDeleteRequest, version: int, code: int, message: str) -> OffsetDeleteResponse:
    return OffsetDeleteResponse(error_code=code)


API = Api(key=47, version_min=0, version_max=0, handle=_handle, refuse=_refuse)
