"""ShareAcknowledge (key 79), versions 1 and 2: a share consumer says what became of messages that it holds.

Types: 0 there was none, 1 accept, 2 release, 3 reject, and in version 2, where the request announces it, 4 renew. What
is said of one partition is done as a whole or not at all, and is durable when the answer goes out.
"""

from uuid import UUID

from headrace.gateways.kafka.context import Api, Context
from headrace.gateways.kafka.errors import ErrorCode, RefusedError, message_of
from headrace.gateways.kafka.outcome import outcome_code
from headrace.gateways.kafka.share_request import acks_of, begin_acks, member_of, outcome_of
from headrace.gateways.kafka.share_session import CLOSING_EPOCH, OPENING_EPOCH
from headrace.wire.kafka.messages.share_acknowledge import (
    LeaderIdAndEpoch,
    PartitionData,
    ShareAcknowledgeRequest,
    ShareAcknowledgeResponse,
    ShareAcknowledgeTopicResponse,
)

_NO_LEADER = LeaderIdAndEpoch(-1, -1)


async def _handle(context: Context, request: ShareAcknowledgeRequest, version: int) -> ShareAcknowledgeResponse:
    member = member_of(request.group_id, request.member_id)
    acks = acks_of(request.topics, can_renew=request.is_renew_ack)
    sessions, epoch = context.share_sessions, request.share_session_epoch
    if epoch == OPENING_EPOCH:
        raise RefusedError(ErrorCode.INVALID_SHARE_SESSION_EPOCH, "a session is opened by a fetch")
    session = sessions.close(member) if epoch == CLOSING_EPOCH else sessions.go_on(member, epoch)
    promises = begin_acks(context, session, acks)
    if epoch == CLOSING_EPOCH:
        sessions.leave(session)
    topics: dict[UUID, list[PartitionData]] = {}
    for place, promise in promises.items():
        error = await outcome_of(promise)
        topics.setdefault(place.topic_id, []).append(
            PartitionData(
                partition_index=place.partition,
                error_code=outcome_code(context, error),
                error_message=None if error is None else message_of(error),
                current_leader=_NO_LEADER,
            )
        )
    return ShareAcknowledgeResponse(
        acquisition_lock_timeout_ms=context.shares.lease_ms(member.group_id, list(promises)),
        responses=tuple(
            ShareAcknowledgeTopicResponse(topic_id, tuple(partitions)) for topic_id, partitions in topics.items()
        ),
    )


def _refuse(request: ShareAcknowledgeRequest, version: int, code: int, message: str) -> ShareAcknowledgeResponse:
    return ShareAcknowledgeResponse(error_code=code, error_message=message)


API = Api(key=79, version_min=1, version_max=2, handle=_handle, refuse=_refuse)
