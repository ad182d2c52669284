"""DeleteGroups (key 42), versions 0 to 2: groups without members, with all of their offsets."""

from headrace.gateways.kafka.context import Api, Context
from headrace.gateways.kafka.outcome import outcome_code
from headrace.wire.kafka.messages.delete_groups import DeletableGroupResult, DeleteGroupsRequest, DeleteGroupsResponse


async def _handle(context: Context, request: DeleteGroupsRequest, version: int) -> DeleteGroupsResponse:
    return DeleteGroupsResponse(results=tuple([await _delete(context, group_id) for group_id in request.groups_names]))


async def _delete(context: Context, group_id: str) -> DeletableGroupResult:
    try:
        await context.groups.delete(group_id)
    except Exception as error:  # noqa: BLE001 - becomes this group's error; the unexpected is logged
        return DeletableGroupResult(group_id, outcome_code(context, error))
    return DeletableGroupResult(group_id, 0)


def _refuse(request: DeleteGroupsRequest, version: int, code: int, message: str) -> DeleteGroupsResponse:
    return DeleteGroupsResponse(results=tuple(DeletableGroupResult(one, code) for one in request.groups_names))


API = Api(key=42, version_min=0, version_max=2, handle=_handle, refuse=_refuse)
