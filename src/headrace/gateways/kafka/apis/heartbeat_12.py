"""Heartbeat (key 12), versions 0 to 4: a member is alive, and learns whether it has to join again."""

from headrace.broker.group.port import Caller
from headrace.gateways.kafka.context import Api, Context
from headrace.wire.kafka.messages.heartbeat import HeartbeatRequest, HeartbeatResponse


async def _handle(context: Context, request: HeartbeatRequest, version: int) -> HeartbeatResponse:
    await context.groups.heartbeat(
        Caller(
            group_id=request.group_id,
            member_id=request.member_id,
            generation=request.generation_id,
            instance_id=request.group_instance_id,
        )
    )
    return HeartbeatResponse()


def _refuse(request: HeartbeatRequest, version: int, code: int, message: str) -> HeartbeatResponse:
    return HeartbeatResponse(error_code=code)


API = Api(key=12, version_min=0, version_max=4, handle=_handle, refuse=_refuse)
