"""What the client commands share: where the server is, and a client for the length of one command."""

import asyncio
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from typing import Annotated, Any, TypeVar

import typer
import uvloop

from headrace.cli.output import WrongUseError
from headrace.client.router import ClientConfig
from headrace.client.settings import DEFAULT_SERVER as DEFAULT_SERVER
from headrace.client.stream import StreamClient
from headrace.model.address import parse_address

T = TypeVar("T")

ServerOption = Annotated[
    str,
    typer.Option(
        "--server",
        "-b",
        metavar="HOST:PORT[,...]",
        envvar="HEADRACE_SERVER",
        help=f"Where the node listens for Kafka clients. [dim]default: {DEFAULT_SERVER}[/]",
        show_default=False,
    ),
]
# Kafka's requests carry time-outs as 32 bits of milliseconds: 24 days.
TIMEOUT_S_MAX = 2_000_000.0
TimeoutOption = Annotated[
    float,
    typer.Option("--timeout", metavar="SECONDS", min=0.1, max=TIMEOUT_S_MAX, help="How long to try before giving up."),
]
DEFAULT_TIMEOUT = 10.0


class Session:
    """A client and the loop it lives on. The loop runs only inside `run`, so reading a terminal may block between."""

    def __init__(self, runner: asyncio.Runner, client: StreamClient) -> None:
        self._runner = runner
        self.client = client

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        return self._runner.run(work)


@contextmanager
def session(server: str, timeout_s: float, *, auto_create_topics: bool = False) -> Iterator[Session]:
    """A connected client for the length of a command."""
    check_servers(server)
    deadline_ms = int(timeout_s * 1000)
    config = ClientConfig(
        client_id="headrace-cli",
        connect_timeout_ms=min(deadline_ms, 5_000),
        deadline_ms=deadline_ms,
        auto_create_topics=auto_create_topics,
    )
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        client = StreamClient(server, config=config)
        try:
            runner.run(client.connect())
            yield Session(runner, client)
        finally:
            runner.run(client.close())


def with_client(server: str, timeout_s: float, work: Callable[[StreamClient], Coroutine[Any, Any, T]]) -> T:
    """Run one piece of work with a connected client."""
    with session(server, timeout_s) as opened:
        return opened.run(work(opened.client))


def check_servers(server: str) -> None:
    """Refuse what is no list of addresses, before anything is tried with it."""
    for one in server.split(","):
        try:
            parse_address(one)
        except ValueError as error:
            raise WrongUseError(f"--server: {error}") from None


def parse_pairs(texts: list[str]) -> list[tuple[str, str]]:
    """Read `key=value` arguments."""
    pairs = []
    for text in texts:
        key, equals, value = text.partition("=")
        if not equals or not key:
            raise typer.BadParameter(f"{text!r} is not of the form KEY=VALUE")
        pairs.append((key.strip(), value))
    return pairs
