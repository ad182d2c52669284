"""DescribeConfigs (key 32), versions 1 to 4: settings of topics and groups, and what a node tells about itself.

Settings of topics and groups are all writable. A caller that asks for `headrace.queue` by name learns whether a topic
is a queue. A node's settings come from its configuration file and are read-only here. Other resources (loggers, metrics
subscriptions) are refused.
"""

from collections.abc import Iterator
from itertools import chain

from headrace.gateways.kafka.context import Api, Context
from headrace.gateways.kafka.errors import ErrorCode, RefusedError, code_of, message_of
from headrace.gateways.kafka.node_settings import node_settings
from headrace.gateways.kafka.settings import (
    IS_QUEUE,
    ResourceType,
    Setting,
    Source,
    check_group,
    group_settings,
    queue_setting,
    topic_settings,
)
from headrace.model.errors import UnknownTopicError
from headrace.model.names import check_topic_name
from headrace.wire.kafka.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    DescribeConfigsResult,
    DescribeConfigsSynonym,
)


def _handle(context: Context, request: DescribeConfigsRequest, version: int) -> DescribeConfigsResponse:
    return DescribeConfigsResponse(
        results=tuple(_describe(context, resource, request) for resource in request.resources)
    )


def _describe(
    context: Context, resource: DescribeConfigsResource, request: DescribeConfigsRequest
) -> DescribeConfigsResult:
    try:
        settings = list(_settings(context, resource))
    except Exception as error:  # noqa: BLE001 - becomes this resource's error; the unexpected is logged
        code = code_of(context.explain(error))
        context.counters.count_error(code)
        return DescribeConfigsResult(code, message_of(error), resource.resource_type, resource.resource_name)
    wanted = resource.configuration_keys
    return DescribeConfigsResult(
        0,
        None,
        resource.resource_type,
        resource.resource_name,
        tuple(_show(setting, request) for setting in settings if not wanted or setting.name in wanted),
    )


def _settings(context: Context, resource: DescribeConfigsResource) -> Iterator[Setting]:
    if resource.resource_type == ResourceType.TOPIC:
        name = check_topic_name(resource.resource_name)
        topic = context.broker.catalog.topics.get(name)
        if topic is None:
            raise UnknownTopicError(f"no topic is called {name}")
        # Only by name: a tool that sets every setting that it was shown could not set this one.
        if IS_QUEUE in (resource.configuration_keys or ()):
            return chain(topic_settings(topic), [queue_setting(is_queue=name in context.broker.catalog.queues)])
        return topic_settings(topic)
    if resource.resource_type == ResourceType.BROKER:
        if not resource.resource_name:
            return iter(())  # settings for all nodes at once, of which there are none
        _check_node(context, resource.resource_name)
        return node_settings(context)
    if resource.resource_type == ResourceType.GROUP:
        return group_settings(*context.groups.settings(check_group(resource.resource_name)))
    raise RefusedError(ErrorCode.INVALID_REQUEST, f"resource type {resource.resource_type} has no settings here")


def _check_node(context: Context, name: str) -> None:
    if name != str(context.broker.node_id):
        raise RefusedError(
            ErrorCode.INVALID_REQUEST, f"this is node {context.broker.node_id}; ask node {name} about itself"
        )


def _show(setting: Setting, request: DescribeConfigsRequest) -> DescribeConfigsResourceResult:
    return DescribeConfigsResourceResult(
        name=setting.name,
        value=setting.value,
        read_only=setting.source == Source.STATIC_BROKER,
        config_source=setting.source,
        is_sensitive=False,
        synonyms=_synonyms(setting) if request.include_synonyms else (),
        config_type=setting.kind,
        documentation=setting.documentation if request.include_documentation else None,
    )


def _synonyms(setting: Setting) -> tuple[DescribeConfigsSynonym, ...]:
    """Where the value would come from, the strongest source first."""
    own = DescribeConfigsSynonym(setting.name, setting.value, setting.source)
    if setting.source not in (Source.TOPIC, Source.GROUP):
        return (own,)
    return own, DescribeConfigsSynonym(setting.name, setting.default, Source.DEFAULT)


def _refuse(request: DescribeConfigsRequest, version: int, code: int, message: str) -> DescribeConfigsResponse:
    return DescribeConfigsResponse(
        results=tuple(
            DescribeConfigsResult(code, message, resource.resource_type, resource.resource_name)
            for resource in request.resources
        )
    )


API = Api(key=32, version_min=1, version_max=4, handle=_handle, refuse=_refuse)
