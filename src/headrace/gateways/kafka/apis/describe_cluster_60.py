"""DescribeCluster (key 60), versions 0 to 2: the cluster's id and nodes.

Only nodes are described (endpoint type 1): there is no controller that clients could reach apart from them.
"""

from headrace.gateways.kafka.authorized import CLUSTER_OPERATIONS, NOT_ASKED
from headrace.gateways.kafka.context import Api, Context
from headrace.gateways.kafka.errors import ErrorCode, RefusedError
from headrace.wire.kafka.messages.describe_cluster import (
    DescribeClusterBroker,
    DescribeClusterRequest,
    DescribeClusterResponse,
)

_BROKERS = 1
_CONTROLLERS = 2


def _handle(context: Context, request: DescribeClusterRequest, version: int) -> DescribeClusterResponse:
    if request.endpoint_type == _CONTROLLERS:
        raise RefusedError(ErrorCode.MISMATCHED_ENDPOINT_TYPE, "this is a node for clients; ask for brokers")
    if request.endpoint_type != _BROKERS:
        raise RefusedError(ErrorCode.UNSUPPORTED_ENDPOINT_TYPE, f"no endpoint of type {request.endpoint_type}")
    broker = context.broker
    return DescribeClusterResponse(
        cluster_id=broker.cluster_id,
        controller_id=broker.node_id,
        brokers=tuple(DescribeClusterBroker(n.node_id, n.host, n.port, n.rack) for n in broker.nodes()),
        cluster_authorized_operations=(
            CLUSTER_OPERATIONS if request.include_cluster_authorized_operations else NOT_ASKED
        ),
    )


def _refuse(request: DescribeClusterRequest, version: int, code: int, message: str) -> DescribeClusterResponse:
    return DescribeClusterResponse(error_code=code, error_message=message)


API = Api(key=60, version_min=0, version_max=2, handle=_handle, refuse=_refuse)
