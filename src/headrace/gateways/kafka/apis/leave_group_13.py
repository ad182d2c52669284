"""LeaveGroup (key 13), versions 0 to 5: one member leaves (0 to 2), or several, by id or by instance id (3+)."""

from headrace.folds.group.request import Leaving
from headrace.gateways.kafka.context import Api, Context
from headrace.gateways.kafka.outcome import outcome_code
from headrace.wire.kafka.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse, MemberResponse

_SEVERAL_FROM = 3


async def _handle(context: Context, request: LeaveGroupRequest, version: int) -> LeaveGroupResponse:
    if version < _SEVERAL_FROM:
        (outcome,) = await context.groups.leave(request.group_id, [Leaving(request.member_id)])
        return LeaveGroupResponse(error_code=outcome_code(context, outcome))
    leaving = [Leaving(one.member_id, one.group_instance_id) for one in request.members]
    outcomes = await context.groups.leave(request.group_id, leaving)
    return LeaveGroupResponse(
        members=tuple(
            MemberResponse(one.member_id, one.instance_id, outcome_code(context, outcome))
            for one, outcome in zip(leaving, outcomes, strict=True)
        )
    )


def _refuse(request: LeaveGroupRequest, version: int, code: int, message: str) -> LeaveGroupResponse:
    return LeaveGroupResponse(error_code=code)


API = Api(key=13, version_min=0, version_max=5, handle=_handle, refuse=_refuse)
