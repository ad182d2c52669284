"""AlterConfigs (key 33), versions 0 to 2: all settings of a topic or group. What is not named follows the default.

A node's settings are in its configuration file and are not altered here. A resource that is named twice is refused, and
answered once.
"""

from collections import Counter
from collections.abc import Awaitable, Mapping
from functools import partial
from typing import NamedTuple, Protocol

from headrace.gateways.kafka.context import Api, Context
from headrace.gateways.kafka.errors import ErrorCode, RefusedError, code_of, message_of
from headrace.gateways.kafka.settings import ResourceType, check_group, whole_overrides
from headrace.model.errors import UnknownTopicError
from headrace.model.group_setting import GROUP_KEYS
from headrace.model.setting import Keys
from headrace.model.topic_setting import CONFIG_KEYS
from headrace.wire.kafka.messages.alter_configs import (
    AlterConfigsRequest,
    AlterConfigsResource,
    AlterConfigsResourceResponse,
    AlterConfigsResponse,
)


async def _handle(context: Context, request: AlterConfigsRequest, version: int) -> AlterConfigsResponse:
    asked = Counter((resource.resource_type, resource.resource_name) for resource in request.resources)
    responses = []
    for resource in {(one.resource_type, one.resource_name): one for one in request.resources}.values():
        try:
            altered = find_altered(context, resource.resource_type, resource.resource_name, asked)
            async with context.altering:
                await altered.replace(whole_overrides(resource.configs), validate_only=request.validate_only)
        except Exception as error:  # noqa: BLE001 - becomes this resource's error; the unexpected is logged
            code = code_of(context.explain(error))
            context.counters.count_error(code)
            responses.append(_result(resource, code, message_of(error)))
        else:
            responses.append(_result(resource, 0, None))
    return AlterConfigsResponse(responses=tuple(responses))


class Replace(Protocol):
    def __call__(self, overrides: Mapping[str, str], *, validate_only: bool) -> Awaitable[object]: ...


class Altered(NamedTuple):
    """What is to be altered: the settings that it knows, those that are set, and how to set others."""

    keys: Keys
    overrides: Mapping[str, str]
    replace: Replace


def find_altered(context: Context, kind: int, name: str, asked: "Counter[tuple[int, str]]") -> Altered:
    """The topic or group that is to be altered, for both forms of the request."""
    if kind not in (ResourceType.TOPIC, ResourceType.GROUP):
        raise RefusedError(
            ErrorCode.INVALID_REQUEST,
            "only topics and groups are altered here; a node's settings are in its configuration file",
        )
    if asked[kind, name] > 1:
        raise RefusedError(ErrorCode.INVALID_REQUEST, f"{name} stands twice in one request")
    if kind == ResourceType.GROUP:
        check_group(name)
        overrides = context.groups.settings(name).overrides
        return Altered(GROUP_KEYS, overrides, partial(context.groups.configure, name))
    topic = context.broker.catalog.topics.get(name)
    if topic is None:
        raise UnknownTopicError(f"no topic is called {name}")
    return Altered(CONFIG_KEYS, topic.overrides, partial(context.broker.alter_config, name))


def _result(resource: AlterConfigsResource, code: int, message: str | None) -> AlterConfigsResourceResponse:
    return AlterConfigsResourceResponse(code, message, resource.resource_type, resource.resource_name)


def _refuse(request: AlterConfigsRequest, version: int, code: int, message: str) -> AlterConfigsResponse:
    return AlterConfigsResponse(responses=tuple(_result(resource, code, message) for resource in request.resources))


API = Api(key=33, version_min=0, version_max=2, handle=_handle, refuse=_refuse)
