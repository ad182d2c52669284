"""ShareGroupHeartbeat (key 76), version 1: a member of a share group is here, and learns what it works from.

Epoch 0 joins, -1 leaves. The assignment is in the answer when the member has not got the latest one. Served by hand for
the client's id, which stands in the request's header.
"""

from headrace.folds.group.share import ShareHeartbeat
from headrace.gateways.kafka.answer import Answer, Reply
from headrace.gateways.kafka.body import read_body
from headrace.gateways.kafka.context import Context, PeerApi
from headrace.gateways.kafka.errors import message_of
from headrace.gateways.kafka.outcome import outcome_code
from headrace.wire.kafka.frame import RequestHeader, encode_response
from headrace.wire.kafka.messages.share_group_heartbeat import (
    Assignment,
    ShareGroupHeartbeatRequest,
    ShareGroupHeartbeatResponse,
    TopicPartitions,
)

_KEY = 76


def _serve(context: Context, header: RequestHeader, frame: bytearray, host: str) -> Reply:
    return _heartbeat(context, header, read_body(header, frame), host)


async def _heartbeat(context: Context, header: RequestHeader, request: ShareGroupHeartbeatRequest, host: str) -> Answer:
    heartbeat = ShareHeartbeat(
        member_id=request.member_id,
        member_epoch=request.member_epoch,
        topics=request.subscribed_topic_names,
        rack_id=request.rack_id,
        client_id=header.client_id or "",
        client_host=host,
    )
    try:
        answer = await context.shares.heartbeat(request.group_id, heartbeat)
    except Exception as error:  # noqa: BLE001 - becomes an answer; the unexpected is logged
        return _encode(header, _refusal(outcome_code(context, error), message_of(error)))
    assignment = None
    if answer.assignment is not None:
        assignment = Assignment(
            tuple(TopicPartitions(topic.topic_id, tuple(range(topic.partition_count))) for topic in answer.assignment)
        )
    response = ShareGroupHeartbeatResponse(
        member_id=request.member_id,
        member_epoch=answer.member_epoch,
        heartbeat_interval_ms=context.shares.heartbeat_interval_ms(request.group_id),
        assignment=assignment,
    )
    return _encode(header, response)


def _refusal(code: int, message: str) -> ShareGroupHeartbeatResponse:
    return ShareGroupHeartbeatResponse(error_code=code, error_message=message)


def _encode(header: RequestHeader, response: ShareGroupHeartbeatResponse) -> Answer:
    return [encode_response(_KEY, header.api_version, header.correlation_id, response)]


def _refuse(context: Context, header: RequestHeader, frame: bytearray, code: int, message: str) -> Reply:
    return _encode(header, _refusal(code, message))


API = PeerApi(key=_KEY, version_min=1, version_max=1, serve=_serve, refuse=_refuse)
