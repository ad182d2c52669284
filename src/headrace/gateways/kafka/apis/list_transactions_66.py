"""ListTransactions (key 66), versions 0 and 1: the transactional ids, by state, producer and age (1+).

Version 2 filters by a regular expression of the client's, which could keep this process busy for as long as it likes;
it is not served.
"""

from headrace.folds.transaction.transaction import State
from headrace.gateways.kafka.context import Api, Context
from headrace.wire.kafka.messages.list_transactions import (
    ListTransactionsRequest,
    ListTransactionsResponse,
    TransactionState,
)

_STATES = frozenset(state.value for state in State)


def _handle(context: Context, request: ListTransactionsRequest, version: int) -> ListTransactionsResponse:
    states, producer_ids = frozenset(request.state_filters), frozenset(request.producer_id_filters)
    now_ms = context.clock.wall_ms()
    found = [
        TransactionState(known.id, known.producer_id, known.state.value)
        for known in context.transactions.transactions()
        if (not states or known.state.value in states)
        and (not producer_ids or known.producer_id in producer_ids)
        and (
            request.duration_filter < 0
            or (known.state is State.ONGOING and now_ms - known.started_ms > request.duration_filter)
        )
    ]
    return ListTransactionsResponse(
        unknown_state_filters=tuple(sorted(states - _STATES)),
        transaction_states=tuple(sorted(found, key=lambda one: one.transactional_id)),
    )


def _refuse(request: ListTransactionsRequest, version: int, code: int, message: str) -> ListTransactionsResponse:
    return ListTransactionsResponse(error_code=code)


API = Api(key=66, version_min=0, version_max=1, handle=_handle, refuse=_refuse)
