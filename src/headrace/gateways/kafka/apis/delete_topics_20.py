"""DeleteTopics (key 20), versions 1 to 6: by name, and from 6 by name or id."""

from uuid import UUID

from headrace.gateways.kafka.context import Api, Context
from headrace.gateways.kafka.errors import ErrorCode, RefusedError, code_of, message_of
from headrace.wire.kafka.messages.delete_topics import (
    DeletableTopicResult,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    DeleteTopicState,
)
from headrace.wire.kafka.primitives import ZERO_UUID

_STATES_FROM = 6


async def _handle(context: Context, request: DeleteTopicsRequest, version: int) -> DeleteTopicsResponse:
    results = [await _delete(context, asked, request.timeout_ms) for asked in _asked(request, version)]
    return DeleteTopicsResponse(responses=tuple(results))


def _asked(request: DeleteTopicsRequest, version: int) -> tuple[DeleteTopicState, ...]:
    if version >= _STATES_FROM:
        return request.topics
    return tuple(DeleteTopicState(name, ZERO_UUID) for name in request.topic_names)


async def _delete(context: Context, asked: DeleteTopicState, timeout_ms: int) -> DeletableTopicResult:
    try:
        topic = await context.finish_within(timeout_ms, context.broker.delete_topic(_which(asked)))
    except Exception as error:  # noqa: BLE001 - becomes this topic's error; the unexpected is logged
        code = code_of(context.explain(error))
        context.counters.count_error(code)
        return DeletableTopicResult(asked.name, asked.topic_id, code, message_of(error))
    return DeletableTopicResult(topic.name, topic.id, 0, None)


def _which(asked: DeleteTopicState) -> str | UUID:
    if asked.name is not None and asked.topic_id != ZERO_UUID:
        raise RefusedError(ErrorCode.INVALID_REQUEST, "a topic is named by name or by id, not by both")
    if asked.name is not None:
        return asked.name
    if asked.topic_id == ZERO_UUID:
        raise RefusedError(ErrorCode.INVALID_REQUEST, "a topic was given with neither name nor id")
    return asked.topic_id


def _refuse(request: DeleteTopicsRequest, version: int, code: int, message: str) -> DeleteTopicsResponse:
    return DeleteTopicsResponse(
        responses=tuple(
            DeletableTopicResult(asked.name, asked.topic_id, code, message) for asked in _asked(request, version)
        )
    )


API = Api(key=20, version_min=1, version_max=6, handle=_handle, refuse=_refuse)
