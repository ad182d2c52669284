"""DeleteShareGroupOffsets (key 92), version 0: forget that a share group without members worked from queues.

No message is touched: the queue has them, for whichever group comes next.
"""

from headrace.gateways.kafka.context import Api, Context
from headrace.gateways.kafka.errors import message_of
from headrace.gateways.kafka.outcome import outcome_code
from headrace.wire.kafka.messages.delete_share_group_offsets import (
    DeleteShareGroupOffsetsRequest,
    DeleteShareGroupOffsetsResponse,
    DeleteShareGroupOffsetsResponseTopic,
)
from headrace.wire.kafka.primitives import ZERO_UUID


async def _handle(
    context: Context, request: DeleteShareGroupOffsetsRequest, version: int
) -> DeleteShareGroupOffsetsResponse:
    outcomes = await context.shares.offsets.delete(request.group_id, [topic.topic_name for topic in request.topics])
    return DeleteShareGroupOffsetsResponse(
        responses=tuple(
            DeleteShareGroupOffsetsResponseTopic(
                topic_name=one.topic,
                topic_id=one.topic_id or ZERO_UUID,
                error_code=outcome_code(context, one.error),
                error_message=None if one.error is None else message_of(one.error),
            )
            for one in outcomes
        )
    )


def _refuse(
    request: DeleteShareGroupOffsetsRequest, version: int, code: int, message: str
) -> DeleteShareGroupOffsetsResponse:
    return DeleteShareGroupOffsetsResponse(error_code=code, error_message=message)


API = Api(key=92, version_min=0, version_max=0, handle=_handle, refuse=_refuse)
