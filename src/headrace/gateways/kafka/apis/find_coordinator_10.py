"""FindCoordinator (key 10), versions 0 to 6: who coordinates a group or a transactional id.

This node answers itself for every key: it is the only one. From version 4 several keys are asked at once. Key types: 0
group, 1 transaction, 2 share group (6+).
"""

from headrace.gateways.kafka.context import Api, Context
from headrace.gateways.kafka.errors import ErrorCode, RefusedError
from headrace.wire.kafka.messages.find_coordinator import Coordinator, FindCoordinatorRequest, FindCoordinatorResponse

_BATCHED_FROM = 4
_KEY_TYPES = {0, 1, 2}


def _handle(context: Context, request: FindCoordinatorRequest, version: int) -> FindCoordinatorResponse:
    if request.key_type not in _KEY_TYPES:
        raise RefusedError(ErrorCode.INVALID_REQUEST, f"no coordinator for key type {request.key_type}")
    node = context.this_node()
    if version >= _BATCHED_FROM:
        return FindCoordinatorResponse(
            coordinators=tuple(
                Coordinator(key, node.node_id, node.host, node.port, 0, None) for key in request.coordinator_keys
            )
        )
    return FindCoordinatorResponse(error_message=None, node_id=node.node_id, host=node.host, port=node.port)


def _refuse(request: FindCoordinatorRequest, version: int, code: int, message: str) -> FindCoordinatorResponse:
    if version >= _BATCHED_FROM:
        return FindCoordinatorResponse(
            coordinators=tuple(Coordinator(key, -1, "", -1, code, message) for key in request.coordinator_keys)
        )
    return FindCoordinatorResponse(error_code=code, error_message=message, node_id=-1, host="", port=-1)


API = Api(key=10, version_min=0, version_max=6, handle=_handle, refuse=_refuse)
