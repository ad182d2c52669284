"""The REST gateway, put together: a node's queues and transactions in, a router's routes and fallback out.

A message's way: `message` reads the request, makes one call of the broker and renders what its promise brings;
`transaction` does the same with coroutines. All else is an application in `queue`, reached through `asgi`. What they
take and give is in `form` and its siblings, checked by decoding; `decode` says what is wrong with a request, and
`openapi` describes it all from the same structs.
"""

from collections.abc import Callable, Iterable

from headrace.broker.queue.port import Queues
from headrace.broker.transaction.port import Transactions
from headrace.gateways.http.limits import HttpLimits
from headrace.gateways.http.router import Route, Router
from headrace.gateways.rest.asgi import AsgiFallback
from headrace.gateways.rest.describe import description_routes
from headrace.gateways.rest.message import WAIT_SECONDS_MAX, message_routes
from headrace.gateways.rest.queue import QueueRoutes
from headrace.gateways.rest.transaction import transaction_routes


def rest_router(
    queues: Queues,
    transactions: Transactions,
    *,
    limits: HttpLimits,
    admin_address: Callable[[], str],
    is_admin: bool = False,
    others: Iterable[Route] = (),
) -> Router:
    """What a listener serves: these other routes first, then REST's."""
    # An answer that is overdue would be given up; a wait that is over is answered.
    wait_seconds_max = min(WAIT_SECONDS_MAX, limits.answer_deadline_ms * 5 // 6 / 1_000)
    queue_routes = QueueRoutes(queues, is_admin=is_admin, admin_address=admin_address)
    application = queue_routes.application(*description_routes(wait_seconds_max=wait_seconds_max))
    messages = message_routes(queues, wait_seconds_max=wait_seconds_max)
    return Router(
        [*others, *messages, *transaction_routes(transactions)],
        fallback=AsgiFallback(application, size_of=queue_routes.answer_bytes),
    )
