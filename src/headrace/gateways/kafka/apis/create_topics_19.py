"""CreateTopics (key 19), versions 2 to 7: each topic stands for itself, and one that fails hinders no other.

A name that stands twice is refused, and answered once, as in Kafka: clients look results up by name.

-1 for partitions or replicas means the node's defaults. A manual assignment has to name every partition from 0 on, with
nodes that exist and equally many for each; it then says how many partitions and replicas there are, and headrace's own
rules place them. From version 5 the answer has the topic's partitions, replicas and settings, from 7 its id.
"""

from collections import Counter
from collections.abc import Collection

from headrace.gateways.kafka.context import Api, Context
from headrace.gateways.kafka.errors import ErrorCode, RefusedError, code_of, message_of
from headrace.gateways.kafka.settings import topic_settings, whole_overrides
from headrace.model.errors import InvalidPartitionsError, InvalidReplicationError
from headrace.model.names import check_topic_name
from headrace.model.topic import Topic
from headrace.wire.kafka.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfigs,
    CreatableTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
)

_BY_DEFAULT = -1


async def _handle(context: Context, request: CreateTopicsRequest, version: int) -> CreateTopicsResponse:
    named = Counter(topic.name for topic in request.topics)
    results = []
    for asked in {topic.name: topic for topic in request.topics}.values():
        if named[asked.name] > 1:
            error = RefusedError(ErrorCode.INVALID_REQUEST, f"{asked.name} stands twice in one request")
            results.append(_failed(context, asked.name, error))
            continue
        results.append(await _create(context, asked, request, version))
    return CreateTopicsResponse(topics=tuple(results))


async def _create(
    context: Context, asked: CreatableTopic, request: CreateTopicsRequest, version: int
) -> CreatableTopicResult:
    try:
        check_topic_name(asked.name)
        partition_count, replication_factor = _shape(context, asked)
        topic = await context.finish_within(
            request.timeout_ms,
            context.broker.create_topic(
                asked.name,
                partition_count=partition_count,
                replication_factor=replication_factor,
                overrides=whole_overrides(asked.configs),
                validate_only=request.validate_only,
            ),
        )
    except Exception as error:  # noqa: BLE001 - becomes this topic's error; the unexpected is logged
        return _failed(context, asked.name, context.explain(error))
    return _created(topic)


def _shape(context: Context, asked: CreatableTopic) -> tuple[int, int]:
    """Partitions and replicas, said either by number or by assignment."""
    if asked.assignments:
        return _assigned_shape(context, asked)
    if asked.num_partitions < 1 and asked.num_partitions != _BY_DEFAULT:
        raise InvalidPartitionsError(f"{asked.num_partitions} partitions; give at least 1, or -1 for the default")
    if asked.replication_factor < 1 and asked.replication_factor != _BY_DEFAULT:
        raise InvalidReplicationError(f"{asked.replication_factor} replicas; give at least 1, or -1 for the default")
    return asked.num_partitions, asked.replication_factor


def _assigned_shape(context: Context, asked: CreatableTopic) -> tuple[int, int]:
    if asked.num_partitions != _BY_DEFAULT or asked.replication_factor != _BY_DEFAULT:
        raise RefusedError(
            ErrorCode.INVALID_REQUEST, "with an assignment, partitions and replication factor must both be -1"
        )
    indexes = sorted(assignment.partition_index for assignment in asked.assignments)
    if indexes != list(range(len(indexes))):
        raise RefusedError(
            ErrorCode.INVALID_REPLICA_ASSIGNMENT, f"partitions {indexes} are assigned; name each from 0 on, once"
        )
    nodes = {node.node_id for node in context.broker.nodes()}
    for assignment in asked.assignments:
        check_assignment(assignment.broker_ids, nodes, like=asked.assignments[0].broker_ids)
    return len(indexes), len(asked.assignments[0].broker_ids)


def check_assignment(node_ids: tuple[int, ...], nodes: Collection[int], *, like: tuple[int, ...]) -> None:
    """One partition's replicas: some, no node twice, all known, as many as every other partition has."""
    if not node_ids or len(set(node_ids)) != len(node_ids) or len(node_ids) != len(like):
        raise RefusedError(
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            f"replicas {list(node_ids)}; give distinct nodes, equally many for each",
        )
    unknown = [node_id for node_id in node_ids if node_id not in nodes]
    if unknown:
        raise RefusedError(
            ErrorCode.INVALID_REPLICA_ASSIGNMENT, f"no node has the id {unknown[0]}; there are {sorted(nodes)}"
        )


def _created(topic: Topic) -> CreatableTopicResult:
    return CreatableTopicResult(
        name=topic.name,
        topic_id=topic.id,
        error_code=0,
        error_message=None,
        num_partitions=topic.partition_count,
        replication_factor=topic.replication_factor,
        configs=tuple(
            CreatableTopicConfigs(setting.name, setting.value, False, setting.source, False)
            for setting in topic_settings(topic)
        ),
    )


def _failed(context: Context, name: str, error: BaseException) -> CreatableTopicResult:
    code = code_of(error)
    context.counters.count_error(code)
    return CreatableTopicResult(name=name, error_code=code, error_message=message_of(error))


def _refuse(request: CreateTopicsRequest, version: int, code: int, message: str) -> CreateTopicsResponse:
    return CreateTopicsResponse(
        topics=tuple(
            CreatableTopicResult(name=name, error_code=code, error_message=message)
            for name in dict.fromkeys(asked.name for asked in request.topics)
        )
    )


API = Api(key=19, version_min=2, version_max=7, handle=_handle, refuse=_refuse)
