"""headrace: a distributed message queue over one append-only log.

    import headrace

    with headrace.Client() as client:
        client.queue("tasks").send("one tea")

The client's names are found when they are first used, so that importing headrace costs nothing by itself. Type checkers
read them in `__init__.pyi`.
"""

__version__ = "0.1.0"

_HOMES = {
    "AsyncClient": "headrace.client.queue.client",
    "AsyncMessage": "headrace.client.queue.message",
    "AsyncQueue": "headrace.client.queue.queue",
    "AsyncTransaction": "headrace.client.queue.transaction",
    "Client": "headrace.client.queue.sync",
    "ClientConfig": "headrace.client.router",
    "ClosedError": "headrace.client.errors",
    "HeadraceError": "headrace.model.errors",
    "InvalidConfigError": "headrace.model.errors",
    "InvalidNameError": "headrace.model.errors",
    "InvalidRequestError": "headrace.model.errors",
    "Message": "headrace.client.queue.sync",
    "NotAQueueError": "headrace.model.errors",
    "Outgoing": "headrace.client.values",
    "OutgoingMessage": "headrace.client.queue.outgoing",
    "PartlySentError": "headrace.client.errors",
    "Queue": "headrace.client.queue.sync",
    "QueueClientConfig": "headrace.client.settings",
    "QueueExistsError": "headrace.model.errors",
    "QueueFullError": "headrace.model.errors",
    "RedriveFilter": "headrace.client.queue.description",
    "Reject": "headrace.client.queue.message",
    "Retry": "headrace.client.queue.message",
    "Sent": "headrace.model.message",
    "StaleReceiptError": "headrace.model.errors",
    "Stop": "headrace.client.worker.runner",
    "StreamClient": "headrace.client.stream",
    "TimedOutError": "headrace.model.errors",
    "TopicExistsError": "headrace.model.errors",
    "TopicHasRecordsError": "headrace.model.errors",
    "TopicPartition": "headrace.client.values",
    "Transaction": "headrace.client.queue.sync_transaction",
    "TransactionStateError": "headrace.model.errors",
    "UnknownOutcomeError": "headrace.client.errors",
    "UnknownQueueError": "headrace.model.errors",
    "UnreachableError": "headrace.client.errors",
    "WorkerConfig": "headrace.client.worker.config",
    "worker": "headrace.client.worker.worker",
}

__all__ = ["__version__", *_HOMES]


def __getattr__(name: str) -> object:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module 'headrace' has no attribute {name!r}")
    from importlib import import_module

    value: object = getattr(import_module(home), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
