"""DescribeProducers (key 61), version 0: who has written to a partition lately, and whose transaction is open there.

How an administrator finds the transaction at which readers of committed messages stand.
"""

from headrace.gateways.kafka.context import Api, Context
from headrace.gateways.kafka.errors import code_of, message_of
from headrace.wire.kafka.messages.describe_producers import (
    DescribeProducersRequest,
    DescribeProducersResponse,
    PartitionResponse,
    ProducerState,
    TopicResponse,
)


def _handle(context: Context, request: DescribeProducersRequest, version: int) -> DescribeProducersResponse:
    return DescribeProducersResponse(
        topics=tuple(
            TopicResponse(topic.name, tuple(_describe(context, topic.name, index) for index in topic.partition_indexes))
            for topic in request.topics
        )
    )


def _describe(context: Context, topic: str, index: int) -> PartitionResponse:
    try:
        known = list(context.broker.partition(topic, index).producers())
    except Exception as error:  # noqa: BLE001 - becomes this partition's error; the unexpected is logged
        code = code_of(context.explain(error))
        context.counters.count_error(code)
        return PartitionResponse(index, code, message_of(error))
    producers = tuple(
        ProducerState(
            producer_id=producer_id,
            producer_epoch=state.epoch,
            last_sequence=state.batches[-1].last_sequence if state.batches else -1,
            last_timestamp=state.batches[-1].timestamp_ms if state.batches else -1,
            coordinator_epoch=state.coordinator_epoch,
            current_txn_start_offset=state.transaction_offset,
        )
        for producer_id, state in known
    )
    return PartitionResponse(index, 0, None, producers)


def _refuse(request: DescribeProducersRequest, version: int, code: int, message: str) -> DescribeProducersResponse:
    return DescribeProducersResponse(
        topics=tuple(
            TopicResponse(
                topic.name, tuple(PartitionResponse(index, code, message) for index in topic.partition_indexes)
            )
            for topic in request.topics
        )
    )


API = Api(key=61, version_min=0, version_max=0, handle=_handle, refuse=_refuse)
