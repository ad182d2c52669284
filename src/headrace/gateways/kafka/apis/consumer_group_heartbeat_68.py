"""ConsumerGroupHeartbeat (key 68), versions 0 and 1: join a consumer group, stay, move partitions, leave (KIP-848).

What a client leaves out is as before; what the answer leaves out too. From 1 a client chooses its member id itself and
may subscribe by an expression; before, a newcomer may leave its id empty and is given one. Served by hand for the
client's id, which stands in the request's header.
"""

from headrace.folds.group.consumer_member import of_topics
from headrace.folds.group.consumer_request import ConsumerHeartbeat
from headrace.gateways.kafka.answer import Answer, Reply
from headrace.gateways.kafka.body import read_body
from headrace.gateways.kafka.context import Context, PeerApi
from headrace.gateways.kafka.errors import message_of
from headrace.gateways.kafka.outcome import outcome_code
from headrace.wire.kafka.frame import RequestHeader, encode_response
from headrace.wire.kafka.messages.consumer_group_heartbeat import (
    Assignment,
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    ResponseTopicPartitions,
)

_OWN_ID_FROM = 1
_KEY = 68


def _serve(context: Context, header: RequestHeader, frame: bytearray, host: str) -> Reply:
    return _heartbeat(context, header, read_body(header, frame), host)


async def _heartbeat(
    context: Context, header: RequestHeader, request: ConsumerGroupHeartbeatRequest, host: str
) -> Answer:
    is_named_here = header.api_version < _OWN_ID_FROM
    try:
        heard = await context.groups.consumers.heartbeat(
            request.group_id, _heartbeat_of(header, request, host), is_named_here=is_named_here
        )
    except Exception as error:  # noqa: BLE001 - becomes an answer; the unexpected is logged
        return _refusal(header, outcome_code(context, error), message_of(error))
    assignment = None
    if heard.assignment is not None:
        assignment = Assignment(tuple(ResponseTopicPartitions(id, indexes) for id, indexes in heard.assignment))
    response = ConsumerGroupHeartbeatResponse(
        member_id=heard.member_id,
        member_epoch=heard.member_epoch,
        heartbeat_interval_ms=heard.heartbeat_interval_ms,
        assignment=assignment,
    )
    return [encode_response(_KEY, header.api_version, header.correlation_id, response)]


def _heartbeat_of(header: RequestHeader, request: ConsumerGroupHeartbeatRequest, host: str) -> ConsumerHeartbeat:
    owned = request.topic_partitions
    return ConsumerHeartbeat(
        member_id=request.member_id,
        member_epoch=request.member_epoch,
        instance_id=request.instance_id,
        rack_id=request.rack_id,
        rebalance_timeout_ms=request.rebalance_timeout_ms,
        topic_names=request.subscribed_topic_names,
        topic_regex=request.subscribed_topic_regex,
        assignor=request.server_assignor,
        owned=None if owned is None else of_topics((topic.topic_id, topic.partitions) for topic in owned),
        client_id=header.client_id or "",
        client_host=host,
    )


def _refusal(header: RequestHeader, code: int, message: str) -> Answer:
    response = ConsumerGroupHeartbeatResponse(error_code=code, error_message=message)
    return [encode_response(_KEY, header.api_version, header.correlation_id, response)]


def _refuse(context: Context, header: RequestHeader, frame: bytearray, code: int, message: str) -> Reply:
    return _refusal(header, code, message)


API = PeerApi(key=_KEY, version_min=0, version_max=1, serve=_serve, refuse=_refuse)
