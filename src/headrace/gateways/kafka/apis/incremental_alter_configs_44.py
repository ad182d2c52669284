"""IncrementalAlterConfigs (key 44), versions 0 and 1: set or take back single settings of a topic or group.

Appending and subtracting are for lists, such as cleanup.policy.
"""

from collections import Counter
from enum import IntEnum

from headrace.gateways.kafka.apis.alter_configs_33 import Altered, find_altered
from headrace.gateways.kafka.context import Api, Context
from headrace.gateways.kafka.errors import ErrorCode, RefusedError, code_of, message_of
from headrace.model.errors import InvalidConfigError
from headrace.model.setting import find, show_value
from headrace.wire.kafka.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    AlterConfigsResourceResponse,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)


class Operation(IntEnum):
    SET = 0
    DELETE = 1
    APPEND = 2
    SUBTRACT = 3


async def _handle(
    context: Context, request: IncrementalAlterConfigsRequest, version: int
) -> IncrementalAlterConfigsResponse:
    asked = Counter((resource.resource_type, resource.resource_name) for resource in request.resources)
    responses = []
    for resource in {(one.resource_type, one.resource_name): one for one in request.resources}.values():
        try:
            async with context.altering:
                altered = find_altered(context, resource.resource_type, resource.resource_name, asked)
                await altered.replace(_apply(altered, resource), validate_only=request.validate_only)
        except Exception as error:  # noqa: BLE001 - becomes this resource's error; the unexpected is logged
            code = code_of(context.explain(error))
            context.counters.count_error(code)
            responses.append(_result(resource, code, message_of(error)))
        else:
            responses.append(_result(resource, 0, None))
    return IncrementalAlterConfigsResponse(responses=tuple(responses))


def _apply(altered: Altered, resource: AlterConfigsResource) -> dict[str, str]:
    """The settings with the changes made."""
    overrides = dict(altered.overrides)
    changed: set[str] = set()
    for config in resource.configs:
        if config.name in changed:
            raise RefusedError(ErrorCode.INVALID_REQUEST, f"{config.name} is changed twice")
        changed.add(config.name)
        if config.config_operation == Operation.DELETE:
            # A name that was never a setting is a mistake of the caller, who would believe to have changed something.
            find(altered.keys, config.name)
            overrides.pop(config.name, None)
        elif config.config_operation == Operation.SET:
            if config.value is None:
                raise InvalidConfigError(f"{config.name} has no value; delete it to follow the default")
            overrides[config.name] = config.value
        elif config.config_operation in (Operation.APPEND, Operation.SUBTRACT):
            overrides[config.name] = _change_list(altered, config)
        else:
            raise RefusedError(ErrorCode.INVALID_REQUEST, f"no operation has the number {config.config_operation}")
    return overrides


def _change_list(altered: Altered, config: AlterableConfig) -> str:
    key = find(altered.keys, config.name)
    if key.kind != "list" or config.value is None:
        raise InvalidConfigError(f"{config.name} is no list, or nothing is to be changed in it; set it instead")
    parts = [part for part in show_value(key, altered.overrides).split(",") if part]
    changes = [part.strip() for part in config.value.split(",")]
    if config.config_operation == Operation.APPEND:
        return ",".join([*parts, *(part for part in changes if part not in parts)])
    return ",".join(part for part in parts if part not in changes)


def _result(resource: AlterConfigsResource, code: int, message: str | None) -> AlterConfigsResourceResponse:
    return AlterConfigsResourceResponse(code, message, resource.resource_type, resource.resource_name)


def _refuse(
    request: IncrementalAlterConfigsRequest, version: int, code: int, message: str
) -> IncrementalAlterConfigsResponse:
    return IncrementalAlterConfigsResponse(
        responses=tuple(_result(resource, code, message) for resource in request.resources)
    )


API = Api(key=44, version_min=0, version_max=1, handle=_handle, refuse=_refuse)
