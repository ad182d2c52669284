"""Transactions over REST: sends and acknowledgements that count together, or not at all.

A call that was read is carried out to its end, also where its client goes away meanwhile, as the HTTP server does with
every change: a commit that stopped half way would be decided and not told. Commit and abort may be repeated; what
stands between them may not, since a second send would be a second message.
"""

from headrace.broker.transaction.port import Transactions
from headrace.gateways.http.message import Request, Response
from headrace.gateways.http.router import Route
from headrace.gateways.rest.decode import Body, answer_form, invalid_field, read_query
from headrace.gateways.rest.form import milliseconds_or_none
from headrace.gateways.rest.message import encoded, read_acknowledgements, read_send, results, send_results, stored
from headrace.gateways.rest.transaction_form import BegunTransaction, NewTransaction
from headrace.model.errors import HeadraceError

TRANSACTIONS = "/transactions"
TRANSACTION = "/transactions/{transaction}"

_NEW = Body(NewTransaction)
_NO_FIELDS: frozenset[str] = frozenset()
_NO_CONTENT = Response(status=204)


def transaction_routes(transactions: Transactions) -> list[Route]:
    routes = TransactionRoutes(transactions)
    return [
        Route("POST", TRANSACTIONS, routes.begin),
        Route("POST", f"{TRANSACTION}/queues/{{queue}}/messages", routes.send),
        Route("POST", f"{TRANSACTION}/queues/{{queue}}/acknowledgements", routes.acknowledge),
        Route("POST", f"{TRANSACTION}/commit", routes.commit),
        Route("POST", f"{TRANSACTION}/abort", routes.abort),
    ]


class TransactionRoutes:
    def __init__(self, transactions: Transactions) -> None:
        self._transactions = transactions

    async def begin(self, request: Request) -> Response:
        read_query(request.query, _NO_FIELDS)
        content_type = request.headers.get("content-type") if request.body else None
        form: NewTransaction = _NEW.read(request.body or b"{}", content_type)
        begun = await self._transactions.begin(timeout_ms=milliseconds_or_none(form.timeout))
        return encoded(BegunTransaction(begun.id, begun.timeout_ms / 1_000), answer_form(request), status=201)

    async def send(self, request: Request) -> Response:
        transaction, queue = request.values
        messages, request_id, is_single = read_send(request)
        if request_id is not None:
            raise invalid_field("request_id", "a send in a transaction is not repeated; abort it and begin anew")
        outcomes = await self._transactions.send(transaction, queue, messages)
        shape = answer_form(request)
        if not is_single:
            return send_results(outcomes, shape)
        if isinstance(outcomes[0], HeadraceError):
            raise outcomes[0]
        return stored(shape, outcomes[0])

    async def acknowledge(self, request: Request) -> Response:
        transaction, queue = request.values
        receipts = read_acknowledgements(request)
        outcomes = await self._transactions.acknowledge(transaction, queue, receipts)
        return results(request)(outcomes)

    async def commit(self, request: Request) -> Response:
        read_query(request.query, _NO_FIELDS)
        await self._transactions.commit(request.values[0])
        return _NO_CONTENT

    async def abort(self, request: Request) -> Response:
        read_query(request.query, _NO_FIELDS)
        await self._transactions.abort(request.values[0])
        return _NO_CONTENT
