"""ListGroups (key 16), versions 0 to 5: every group, or those in certain states (4+) and of certain types (5+)."""

from headrace.gateways.kafka.context import Api, Context
from headrace.wire.kafka.messages.list_groups import ListedGroup, ListGroupsRequest, ListGroupsResponse


async def _handle(context: Context, request: ListGroupsRequest, version: int) -> ListGroupsResponse:
    states = {state.lower() for state in request.states_filter}
    types = {type_.lower() for type_ in request.types_filter}
    return ListGroupsResponse(
        groups=tuple(
            ListedGroup(group.group_id, group.protocol_type, group.state, group.kind.value)
            for group in await context.groups.list_groups()
            if (not states or group.state.lower() in states) and (not types or group.kind.value in types)
        )
    )


def _refuse(request: ListGroupsRequest, version: int, code: int, message: str) -> ListGroupsResponse:
    return ListGroupsResponse(error_code=code)


API = Api(key=16, version_min=0, version_max=5, handle=_handle, refuse=_refuse)
