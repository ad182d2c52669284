"""What the commands about queues share: where the node is, a client for one command, lengths of time."""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated

import typer

from headrace.cli.output import WrongUseError
from headrace.client.queue.client import AsyncClient
from headrace.client.queue.sync import Client
from headrace.client.settings import DEFAULT_HTTP, QueueClientConfig
from headrace.model.errors import InvalidRequestError

DEFAULT_ADMIN = "127.0.0.1:8081"

HttpOption = Annotated[
    str,
    typer.Option(
        "--http",
        metavar="HOST:PORT[,...]",
        envvar="HEADRACE_HTTP",
        help=f"Where the node listens for HTTP clients. [dim]default: {DEFAULT_HTTP}[/]",
        show_default=False,
    ),
]
AdminOption = Annotated[
    str,
    typer.Option(
        "--admin",
        metavar="HOST:PORT[,...]",
        envvar="HEADRACE_ADMIN",
        help=f"Where the node listens for administrators. [dim]default: {DEFAULT_ADMIN}[/]",
        show_default=False,
    ),
]

_UNITS_S = {"": 1.0, "ms": 0.001, "s": 1.0, "m": 60.0, "h": 3_600.0, "d": 86_400.0, "w": 604_800.0}
_SPAN = re.compile(r"(\d+(?:\.\d+)?)\s*(ms|[smhdw]?)")


def check_http(http: str) -> None:
    """Refuse what is no list of addresses, before anything is tried with it."""
    try:
        AsyncClient(http)
    except InvalidRequestError as error:
        raise WrongUseError(str(error)) from None


@contextmanager
def queue_client(http: str, timeout_s: float) -> Iterator[Client]:
    """A connected client for the length of a command."""
    deadline_ms = int(timeout_s * 1000)
    config = QueueClientConfig(deadline_ms=deadline_ms, connect_timeout_ms=deadline_ms)
    check_http(http)
    with Client(http, config=config) as client:
        yield client


def parse_span(text: str) -> float:
    """Seconds from `90`, `500ms`, `15m`, `12h`, `7d`."""
    match = _SPAN.fullmatch(text.strip())
    if match is None:
        raise WrongUseError(f"{text!r} is no length of time; write 90, 500ms, 30s, 15m, 12h or 7d")
    return float(match[1]) * _UNITS_S[match[2]]


def parse_optional_span(text: str | None) -> float | None:
    return None if text is None else parse_span(text)


def show_span(seconds: float) -> str:
    """A length of time in the largest unit that it is a whole number of."""
    if seconds == 0:
        return "0s"
    for unit in ("d", "h", "m", "s"):
        if seconds % _UNITS_S[unit] == 0:
            return f"{seconds / _UNITS_S[unit]:.0f}{unit}"
    return f"{seconds * 1000:g}ms"
