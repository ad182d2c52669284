"""DescribeTransactions (key 65), version 0: what is known of transactional ids, and which partitions take part."""

from headrace.folds.transaction.transaction import Transaction
from headrace.gateways.kafka.context import Api, Context
from headrace.gateways.kafka.errors import code_of
from headrace.wire.kafka.messages.describe_transactions import (
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
    TopicData,
    TransactionState,
)


def _handle(context: Context, request: DescribeTransactionsRequest, version: int) -> DescribeTransactionsResponse:
    return DescribeTransactionsResponse(
        transaction_states=tuple(_describe(context, id) for id in request.transactional_ids)
    )


def _describe(context: Context, id: str) -> TransactionState:
    try:
        known = context.transactions.describe(id)
    except Exception as error:  # noqa: BLE001 - becomes this id's error; the unexpected is logged
        code = code_of(context.explain(error))
        context.counters.count_error(code)
        return TransactionState(code, id)
    return TransactionState(
        error_code=0,
        transactional_id=id,
        transaction_state=known.state.value,
        transaction_timeout_ms=known.timeout_ms,
        transaction_start_time_ms=known.started_ms,
        producer_id=known.producer_id,
        producer_epoch=known.epoch,
        topics=_topics(context, known),
    )


def _topics(context: Context, known: Transaction) -> tuple[TopicData, ...]:
    """Topics that were deleted meanwhile have no name any more, and nothing of the transaction either."""
    indexes: dict[str, list[int]] = {}
    for place in known.partitions:
        topic = context.broker.catalog.topics_by_id.get(place.topic_id)
        if topic is not None:
            indexes.setdefault(topic.name, []).append(place.partition)
    return tuple(TopicData(name, tuple(found)) for name, found in sorted(indexes.items()))


def _refuse(
    request: DescribeTransactionsRequest, version: int, code: int, message: str
) -> DescribeTransactionsResponse:
    return DescribeTransactionsResponse(
        transaction_states=tuple(TransactionState(code, id) for id in request.transactional_ids)
    )


API = Api(key=65, version_min=0, version_max=0, handle=_handle, refuse=_refuse)
