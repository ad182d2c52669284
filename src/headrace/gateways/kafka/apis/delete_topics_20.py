"""DeleteTopics (key 20), versions 1 to 6: by name, and from 6 by name or id.

A topic that stands twice, be it once by its name and once by its id, is not deleted, and is answered once, as in Kafka.
"""

from collections import Counter
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
    asked = _asked(request, version)
    ids = [_id_of(context, one) for one in asked]
    named = Counter(ids)
    results = []
    for one, id in zip(asked, ids, strict=True):
        if id is None or named[id] == 1:
            results.append(await _delete(context, one, request.timeout_ms))
        elif named.pop(id, 0):
            error = RefusedError(ErrorCode.INVALID_REQUEST, f"{one.name or one.topic_id} stands twice in one request")
            results.append(_failed(context, one, error))
    return DeleteTopicsResponse(responses=tuple(results))


def _id_of(context: Context, asked: DeleteTopicState) -> str | UUID | None:
    """What tells a topic from others: its id, or the name of one that does not exist. None where nothing was given."""
    if asked.name is None:
        return asked.topic_id if asked.topic_id != ZERO_UUID else None
    topic = context.broker.catalog.topics.get(asked.name)
    return asked.name if topic is None else topic.id


def _asked(request: DeleteTopicsRequest, version: int) -> tuple[DeleteTopicState, ...]:
    if version >= _STATES_FROM:
        return request.topics
    return tuple(DeleteTopicState(name, ZERO_UUID) for name in request.topic_names)


async def _delete(context: Context, asked: DeleteTopicState, timeout_ms: int) -> DeletableTopicResult:
    try:
        topic = await context.finish_within(timeout_ms, context.broker.delete_topic(_which(asked)))
    except Exception as error:  # noqa: BLE001 - becomes this topic's error; the unexpected is logged
        return _failed(context, asked, context.explain(error))
    return DeletableTopicResult(topic.name, topic.id, 0, None)


def _failed(context: Context, asked: DeleteTopicState, error: BaseException) -> DeletableTopicResult:
    code = code_of(error)
    context.counters.count_error(code)
    return DeletableTopicResult(asked.name, asked.topic_id, code, message_of(error))


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
