"""SyncGroup (key 14), versions 0 to 5: the leader hands the assignment in, and every member asks for its own.

Answered when the leader has spoken and the assignment is durable. From 5 the member says which protocol it believes in.
"""

from headrace.broker.group.port import Caller, Sync
from headrace.gateways.kafka.context import Api, Context
from headrace.wire.kafka.messages.sync_group import SyncGroupRequest, SyncGroupResponse

_PROTOCOL_FROM = 5


async def _handle(context: Context, request: SyncGroupRequest, version: int) -> SyncGroupResponse:
    sync = Sync(
        caller=Caller(
            group_id=request.group_id,
            member_id=request.member_id,
            generation=request.generation_id,
            instance_id=request.group_instance_id,
        ),
        protocol_type=request.protocol_type,
        protocol_name=request.protocol_name,
        assignments=tuple((one.member_id, bytes(one.assignment)) for one in request.assignments),
    )
    synced = await context.groups.sync(sync)
    if version < _PROTOCOL_FROM:
        return SyncGroupResponse(assignment=synced.assignment)
    return SyncGroupResponse(
        protocol_type=synced.protocol_type, protocol_name=synced.protocol_name, assignment=synced.assignment
    )


def _refuse(request: SyncGroupRequest, version: int, code: int, message: str) -> SyncGroupResponse:
    return SyncGroupResponse(error_code=code)


API = Api(key=14, version_min=0, version_max=5, handle=_handle, refuse=_refuse, only_waits=True)
