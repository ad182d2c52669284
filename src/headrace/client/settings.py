"""How a queue client behaves. Every wait has a deadline, everything that is held a bound."""

import os
from math import inf

import msgspec

from headrace.model.errors import InvalidConfigError

DEFAULT_HTTP = "127.0.0.1:8080"
DEFAULT_SERVER = "127.0.0.1:9092"
MIB = 1024 * 1024
_MAY_BE_ZERO = ("linger_ms", "retry_pause_ms", "retry_pause_ms_max")


# The command line reads the same variables.


def http_servers() -> str:
    """Where a node listens for HTTP, for a program that says nothing."""
    return os.environ.get("HEADRACE_HTTP") or DEFAULT_HTTP


def kafka_servers() -> str:
    """Where a node listens for Kafka clients, for a program that says nothing."""
    return os.environ.get("HEADRACE_SERVER") or DEFAULT_SERVER


class QueueClientConfig(msgspec.Struct, frozen=True, kw_only=True):
    # For one call, all of its attempts included; a receive gets its wait on top. Time behind other calls of this client
    # does not count while the node answers those.
    deadline_ms: int = 30_000
    connect_timeout_ms: int = 5_000
    # Whether failed calls are repeated. A send then has an id, so that a repeated one is stored once.
    retries: bool = True
    retry_pause_ms: int = 50
    retry_pause_ms_max: int = 2_000
    # Connections for calls that are answered soon, and for receives that wait.
    connections_max: int = 16
    waiting_connections_max: int = 256
    # One request of messages or receipts.
    batch_count_max: int = 100
    batch_bytes_max: int = MIB
    # Requests of one queue and kind that are unanswered together, and how long single calls gather meanwhile.
    batches_in_flight_max: int = 8
    linger_ms: float = 2.0
    # Bodies that wait to be sent, for each queue; above it `send` waits before it takes more.
    pending_bytes_max: int = 64 * MIB
    answer_bytes_max: int = 64 * MIB

    def __post_init__(self) -> None:
        for field in msgspec.structs.fields(self):
            value: object = getattr(self, field.name)
            if not _can_be(field.name, value):
                raise InvalidConfigError(f"a client cannot have {field.name}={value!r}; the default is {field.default}")


def _can_be(name: str, value: object) -> bool:
    if name == "retries" or isinstance(value, bool):
        return name == "retries" and isinstance(value, bool)
    # With room for nothing, a call would wait for ever.
    least = 0 if name in _MAY_BE_ZERO else 1
    return isinstance(value, int | float) and least <= value < inf
