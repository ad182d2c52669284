"""DescribeGroups (key 15), versions 0 to 6: state and members of classic groups.

An unknown group, or one of another kind, is Dead; from 6 it is GROUP_ID_NOT_FOUND as well.
"""

from headrace.folds.group.kind import GroupKind
from headrace.gateways.kafka.authorized import GROUP_OPERATIONS, NOT_ASKED
from headrace.gateways.kafka.context import Api, Context
from headrace.gateways.kafka.errors import message_of
from headrace.gateways.kafka.outcome import outcome_code
from headrace.model.errors import UnknownGroupError
from headrace.wire.kafka.messages.describe_groups import (
    DescribedGroup,
    DescribedGroupMember,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
)

_NOT_FOUND_FROM = 6
_DEAD = "Dead"


async def _handle(context: Context, request: DescribeGroupsRequest, version: int) -> DescribeGroupsResponse:
    operations = GROUP_OPERATIONS if request.include_authorized_operations else NOT_ASKED
    return DescribeGroupsResponse(
        groups=tuple([await _describe(context, group_id, version, operations) for group_id in request.groups])
    )


async def _describe(context: Context, group_id: str, version: int, operations: int) -> DescribedGroup:
    try:
        group = await context.groups.describe(group_id)
        if group.kind is not GroupKind.CLASSIC:
            raise UnknownGroupError(f"group {group_id} is of kind {group.kind.value}, not classic")
    except UnknownGroupError as error:
        if version < _NOT_FOUND_FROM:
            return DescribedGroup(group_id=group_id, group_state=_DEAD)
        code = outcome_code(context, error)
        return DescribedGroup(error_code=code, error_message=str(error), group_id=group_id, group_state=_DEAD)
    except Exception as error:  # noqa: BLE001 - becomes this group's error; the unexpected is logged
        return DescribedGroup(
            error_code=outcome_code(context, error), error_message=message_of(error), group_id=group_id
        )
    return DescribedGroup(
        group_id=group_id,
        group_state=group.state,
        protocol_type=group.protocol_type,
        protocol_data=group.protocol_name,
        members=tuple(
            DescribedGroupMember(
                member.member_id,
                member.instance_id,
                member.client_id,
                member.client_host,
                member.metadata,
                member.assignment,
            )
            for member in group.members
        ),
        authorized_operations=operations,
    )


def _refuse(request: DescribeGroupsRequest, version: int, code: int, message: str) -> DescribeGroupsResponse:
    return DescribeGroupsResponse(
        groups=tuple(DescribedGroup(error_code=code, error_message=message, group_id=one) for one in request.groups)
    )


API = Api(key=15, version_min=0, version_max=6, handle=_handle, refuse=_refuse)
