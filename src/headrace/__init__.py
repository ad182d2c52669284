"""headrace: a distributed message queue over one append-only log.

    import headrace

    with headrace.Client() as client:
        client.queue("orders").send("one tea")

The client's names are found when they are first used, so that importing headrace costs nothing by itself.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from headrace.client.queue.client import AsyncClient
    from headrace.client.queue.message import AsyncMessage, Reject, Retry
    from headrace.client.queue.outgoing import OutgoingMessage
    from headrace.client.queue.queue import AsyncQueue
    from headrace.client.queue.sync import Client, Message, Queue
    from headrace.client.settings import QueueClientConfig
    from headrace.client.worker.worker import worker
    from headrace.model.errors import HeadraceError

__version__ = "0.1.0"

__all__ = [
    "AsyncClient",
    "AsyncMessage",
    "AsyncQueue",
    "Client",
    "HeadraceError",
    "Message",
    "OutgoingMessage",
    "Queue",
    "QueueClientConfig",
    "Reject",
    "Retry",
    "__version__",
    "worker",
]

_HOMES = {
    "AsyncClient": "headrace.client.queue.client",
    "AsyncMessage": "headrace.client.queue.message",
    "AsyncQueue": "headrace.client.queue.queue",
    "Client": "headrace.client.queue.sync",
    "HeadraceError": "headrace.model.errors",
    "Message": "headrace.client.queue.sync",
    "OutgoingMessage": "headrace.client.queue.outgoing",
    "Queue": "headrace.client.queue.sync",
    "QueueClientConfig": "headrace.client.settings",
    "Reject": "headrace.client.queue.message",
    "Retry": "headrace.client.queue.message",
    "worker": "headrace.client.worker.worker",
}


def __getattr__(name: str) -> Any:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module 'headrace' has no attribute {name!r}")
    value = getattr(import_module(home), name)
    globals()[name] = value
    return value
