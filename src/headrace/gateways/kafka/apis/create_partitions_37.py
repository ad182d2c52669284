"""CreatePartitions (key 37), versions 0 to 3: raise a topic's number of partitions.

An assignment is checked as in CreateTopics and then left to headrace's own placement. A name that stands twice is
refused, and answered once.
"""

from collections import Counter

from headrace.gateways.kafka.apis.create_topics_19 import check_assignment
from headrace.gateways.kafka.context import Api, Context
from headrace.gateways.kafka.errors import ErrorCode, RefusedError, code_of, message_of
from headrace.wire.kafka.messages.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
    CreatePartitionsTopicResult,
)


async def _handle(context: Context, request: CreatePartitionsRequest, version: int) -> CreatePartitionsResponse:
    named = Counter(topic.name for topic in request.topics)
    results = []
    for asked in {asked.name: asked for asked in request.topics}.values():
        try:
            if named[asked.name] > 1:
                raise RefusedError(ErrorCode.INVALID_REQUEST, f"{asked.name} stands twice in one request")
            _check_assignments(context, asked)
            await context.finish_within(
                request.timeout_ms,
                context.broker.create_partitions(asked.name, asked.count, validate_only=request.validate_only),
            )
        except Exception as error:  # noqa: BLE001 - becomes this topic's error; the unexpected is logged
            code = code_of(context.explain(error))
            context.counters.count_error(code)
            results.append(CreatePartitionsTopicResult(asked.name, code, message_of(error)))
        else:
            results.append(CreatePartitionsTopicResult(asked.name, 0, None))
    return CreatePartitionsResponse(results=tuple(results))


def _check_assignments(context: Context, asked: CreatePartitionsTopic) -> None:
    if not asked.assignments:
        return
    topic = context.broker.catalog.topics.get(asked.name)
    if topic is not None and len(asked.assignments) != asked.count - topic.partition_count:
        raise RefusedError(
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            f"{len(asked.assignments)} assignments for {asked.count - topic.partition_count} new partitions",
        )
    nodes = {node.node_id for node in context.broker.nodes()}
    for assignment in asked.assignments:
        check_assignment(assignment.broker_ids, nodes, like=asked.assignments[0].broker_ids)


def _refuse(request: CreatePartitionsRequest, version: int, code: int, message: str) -> CreatePartitionsResponse:
    return CreatePartitionsResponse(
        results=tuple(
            CreatePartitionsTopicResult(name, code, message)
            for name in dict.fromkeys(asked.name for asked in request.topics)
        )
    )


API = Api(key=37, version_min=0, version_max=3, handle=_handle, refuse=_refuse)
