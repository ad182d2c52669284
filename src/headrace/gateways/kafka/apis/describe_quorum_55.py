"""DescribeQuorum (key 55), versions 0 to 2: who keeps the metadata.

In Kafka metadata is a log, which clients know as partition 0 of `__cluster_metadata`. Here a node keeps it in a store
of its own: the node is the only voter and leads, and the store's revision stands for the log's end. Any other partition
is unknown.
"""

from headrace.gateways.kafka.context import Api, Context
from headrace.gateways.kafka.errors import ErrorCode
from headrace.wire.kafka.messages.describe_quorum import (
    DescribeQuorumRequest,
    DescribeQuorumResponse,
    Listener,
    Node,
    ReplicaState,
    ResponsePartitionData,
    ResponseTopicData,
)

_METADATA = "__cluster_metadata"
_EPOCH = 1  # there was never another leader
_UNKNOWN = -1
_NODES_FROM = 2


def _handle(context: Context, request: DescribeQuorumRequest, version: int) -> DescribeQuorumResponse:
    here = context.this_node()
    listener = Listener("PLAINTEXT", here.host, here.port)
    return DescribeQuorumResponse(
        error_message=None,
        topics=tuple(
            ResponseTopicData(
                topic.topic_name,
                tuple(_describe(context, topic.topic_name, asked.partition_index) for asked in topic.partitions),
            )
            for topic in request.topics
        ),
        nodes=(Node(here.node_id, (listener,)),) if version >= _NODES_FROM else (),
    )


def _describe(context: Context, topic: str, index: int) -> ResponsePartitionData:
    if (topic, index) != (_METADATA, 0):
        code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        context.counters.count_error(code)
        return _failed(index, code, f"only partition 0 of {_METADATA} has a quorum")
    node_id, end = context.broker.node_id, context.broker.catalog.revision
    now_ms = context.clock.wall_ms()
    voter = ReplicaState(node_id, log_end_offset=end, last_fetch_timestamp=now_ms, last_caught_up_timestamp=now_ms)
    return ResponsePartitionData(0, 0, None, node_id, _EPOCH, end, (voter,))


def _failed(index: int, code: int, message: str) -> ResponsePartitionData:
    return ResponsePartitionData(index, code, message, _UNKNOWN, _UNKNOWN, _UNKNOWN)


def _refuse(request: DescribeQuorumRequest, version: int, code: int, message: str) -> DescribeQuorumResponse:
    return DescribeQuorumResponse(error_code=code, error_message=message)


API = Api(key=55, version_min=0, version_max=2, handle=_handle, refuse=_refuse)
