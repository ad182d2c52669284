"""ListConfigResources (key 74), versions 0 and 1: what has settings that DescribeConfigs tells.

These are topics, nodes, and groups for which something is set. Version 0 asks for subscriptions to client metrics only,
and there are none. A kind of resource that Kafka does not know is refused.
"""

from collections.abc import Iterator

from headrace.gateways.kafka.context import Api, Context
from headrace.gateways.kafka.errors import ErrorCode, RefusedError
from headrace.gateways.kafka.settings import ResourceType
from headrace.wire.kafka.messages.list_config_resources import (
    ConfigResource,
    ListConfigResourcesRequest,
    ListConfigResourcesResponse,
)

_CLIENT_METRICS = 16
_LISTED_FROM = 1
# Topics, nodes, loggers of nodes, client metrics, groups.
_KINDS = (2, 4, 8, _CLIENT_METRICS, 32)


def _handle(context: Context, request: ListConfigResourcesRequest, version: int) -> ListConfigResourcesResponse:
    asked = request.resource_types if version >= _LISTED_FROM else (_CLIENT_METRICS,)
    for kind in asked:
        if kind not in _KINDS:
            raise RefusedError(ErrorCode.UNSUPPORTED_VERSION, f"resources of type {kind} are not listed")
    return ListConfigResourcesResponse(
        config_resources=tuple(
            ConfigResource(name, kind) for kind in dict.fromkeys(asked or _KINDS) for name in _names(context, kind)
        )
    )


def _names(context: Context, kind: int) -> Iterator[str]:
    if kind == ResourceType.TOPIC:
        yield from context.broker.catalog.topics
    elif kind == ResourceType.BROKER:
        yield from (str(node.node_id) for node in context.broker.nodes())
    elif kind == ResourceType.GROUP and context.has_groups:
        yield from context.groups.configured()


def _refuse(request: ListConfigResourcesRequest, version: int, code: int, message: str) -> ListConfigResourcesResponse:
    return ListConfigResourcesResponse(error_code=code)


API = Api(key=74, version_min=0, version_max=1, handle=_handle, refuse=_refuse)
