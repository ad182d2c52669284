"""AddPartitionsToTxn (key 24), versions 0 to 3: partitions join a producer's transaction.

All of them or none: if one does not exist, the others get OPERATION_NOT_ATTEMPTED. From 4 the call is one between
brokers, and is not served. A fenced producer gets PRODUCER_FENCED from 2, INVALID_PRODUCER_EPOCH before.
"""

from headrace.folds.transaction.fold import Producer
from headrace.gateways.kafka.context import Api, Context
from headrace.gateways.kafka.errors import ErrorCode, RefusedError, code_of
from headrace.model.ids import PartitionId
from headrace.model.names import INTERNAL_NAMES
from headrace.wire.kafka.messages.add_partitions_to_txn import (
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopicResult,
)

_FENCED_FROM = 2
_BATCHED_FROM = 4


async def _handle(context: Context, request: AddPartitionsToTxnRequest, version: int) -> AddPartitionsToTxnResponse:
    places: list[PartitionId] = []
    failed: dict[tuple[str, int], int] = {}
    for topic in request.v3_and_below_topics:
        for index in topic.partitions:
            try:
                places.append(_find(context, topic.name, index))
            except Exception as error:  # noqa: BLE001 - becomes this partition's error; the unexpected is logged
                code = failed[topic.name, index] = code_of(context.explain(error))
                context.counters.count_error(code)
    if failed:
        return _answer(request, failed, otherwise=int(ErrorCode.OPERATION_NOT_ATTEMPTED))
    producer = Producer(
        request.v3_and_below_transactional_id, request.v3_and_below_producer_id, request.v3_and_below_producer_epoch
    )
    await context.transactions.add(producer, partitions=places)
    return _answer(request, {}, otherwise=0)


def _find(context: Context, topic: str, index: int) -> PartitionId:
    if topic in INTERNAL_NAMES:
        raise RefusedError(ErrorCode.INVALID_TOPIC_EXCEPTION, f"{topic} is a topic of headrace's own")
    return context.broker.partition(topic, index).id


def _answer(
    request: AddPartitionsToTxnRequest, codes: dict[tuple[str, int], int], *, otherwise: int
) -> AddPartitionsToTxnResponse:
    return AddPartitionsToTxnResponse(
        results_by_topic_v3_and_below=tuple(
            AddPartitionsToTxnTopicResult(
                topic.name,
                tuple(
                    AddPartitionsToTxnPartitionResult(index, codes.get((topic.name, index), otherwise))
                    for index in topic.partitions
                ),
            )
            for topic in request.v3_and_below_topics
        )
    )


def _refuse(request: AddPartitionsToTxnRequest, version: int, code: int, message: str) -> AddPartitionsToTxnResponse:
    if code == ErrorCode.INVALID_PRODUCER_EPOCH and version >= _FENCED_FROM:
        code = int(ErrorCode.PRODUCER_FENCED)
    if version >= _BATCHED_FROM:
        return AddPartitionsToTxnResponse(error_code=code)
    return _answer(request, {}, otherwise=code)


API = Api(key=24, version_min=0, version_max=3, handle=_handle, refuse=_refuse)
