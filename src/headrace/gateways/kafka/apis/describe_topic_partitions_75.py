"""DescribeTopicPartitions (key 75), version 0: Metadata page by page, for clusters with very many partitions.

Topics come in the order of their names, those that are asked for or all. A page has as many partitions as the client
wants and at most PARTITIONS_MAX; the cursor says where the next page begins. Nothing is created by being asked for.
"""

from headrace.gateways.kafka.apis.metadata_3 import describe_partition
from headrace.gateways.kafka.authorized import TOPIC_OPERATIONS
from headrace.gateways.kafka.context import Api, Context
from headrace.gateways.kafka.errors import code_of
from headrace.model.errors import HeadraceError, InvalidRequestError, UnknownTopicError
from headrace.model.names import INTERNAL_NAMES, check_topic_name
from headrace.model.topic import Topic
from headrace.wire.kafka.messages.describe_topic_partitions import (
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
    DescribeTopicPartitionsResponsePartition,
    DescribeTopicPartitionsResponseTopic,
    ResponseCursor,
)

PARTITIONS_MAX = 2000


def _handle(context: Context, request: DescribeTopicPartitionsRequest, version: int) -> DescribeTopicPartitionsResponse:
    names = sorted({topic.name for topic in request.topics} or context.broker.catalog.topics)
    cursor, first = request.cursor, 0
    if cursor is not None:
        if cursor.partition_index < 0:
            raise InvalidRequestError(f"the cursor is at partition {cursor.partition_index}; begin at 0")
        names = [name for name in names if name >= cursor.topic_name]
        first = cursor.partition_index if names and names[0] == cursor.topic_name else 0
    left = max(1, min(request.response_partition_limit, PARTITIONS_MAX))
    topics: list[DescribeTopicPartitionsResponseTopic] = []
    for name in names:
        if left == 0:
            return DescribeTopicPartitionsResponse(topics=tuple(topics), next_cursor=ResponseCursor(name, 0))
        try:
            topic = _find(context, name)
        except HeadraceError as error:
            code = code_of(error)
            context.counters.count_error(code)
            topics.append(DescribeTopicPartitionsResponseTopic(code, name))
            continue
        end = min(topic.partition_count, first + left)
        topics.append(_describe(context, topic, range(first, end)))
        if end < topic.partition_count:
            return DescribeTopicPartitionsResponse(topics=tuple(topics), next_cursor=ResponseCursor(name, end))
        left -= max(0, end - first)
        first = 0
    return DescribeTopicPartitionsResponse(topics=tuple(topics))


def _find(context: Context, name: str) -> Topic:
    topic = context.broker.catalog.topics.get(name)
    if topic is None:
        check_topic_name(name)
        raise UnknownTopicError(f"no topic is called {name}")
    return topic


def _describe(context: Context, topic: Topic, indexes: range) -> DescribeTopicPartitionsResponseTopic:
    return DescribeTopicPartitionsResponseTopic(
        0,
        topic.name,
        topic.id,
        topic.name in INTERNAL_NAMES,
        tuple(_partition(context, topic, index) for index in indexes),
        TOPIC_OPERATIONS,
    )


def _partition(context: Context, topic: Topic, index: int) -> DescribeTopicPartitionsResponsePartition:
    found = describe_partition(context, topic.id, index)
    return DescribeTopicPartitionsResponsePartition(
        found.error_code,
        index,
        found.leader_id,
        found.leader_epoch,
        found.replica_nodes,
        found.isr_nodes,
        eligible_leader_replicas=(),  # empty and not null, which Java's admin client does not expect
        last_known_elr=(),
        offline_replicas=found.offline_replicas,
    )


def _refuse(
    request: DescribeTopicPartitionsRequest, version: int, code: int, message: str
) -> DescribeTopicPartitionsResponse:
    return DescribeTopicPartitionsResponse(
        topics=tuple(DescribeTopicPartitionsResponseTopic(code, topic.name) for topic in request.topics)
    )


API = Api(key=75, version_min=0, version_max=0, handle=_handle, refuse=_refuse)
