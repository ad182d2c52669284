"""What is asked of a node, and what can be said against addresses and paths, before a session is started.

A session takes ten seconds or more to start. Whoever has mistyped a name or an address should not wait for that.
"""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from headrace.client.errors import UnreachableError
from headrace.client.queue.sync import Client
from headrace.client.router import ClientConfig
from headrace.client.values import TopicInfo
from headrace.model.address import parse_address
from headrace.model.errors import InvalidRequestError, UnknownTopicError
from headrace.spark.errors import OptionError
from headrace.spark.link import Link


def check_servers(servers: str) -> None:
    for one in servers.split(","):
        try:
            parse_address(one)
        except ValueError as error:
            raise OptionError(f"--server: {error}") from None


def check_http(http: str) -> None:
    try:
        Client(http).close()  # it connects with its first question
    except InvalidRequestError as error:
        raise OptionError(f"--http: {error}") from None


def check_report(path: Path | None) -> None:
    """A report is written when all work is done: a place that cannot be one is refused before."""
    if path is not None and (not path.name or path.is_dir()):
        raise OptionError(f"--report {path} is a directory; name a file, as {path / 'report.html'}")


@contextmanager
def reached(servers: str, config: ClientConfig | None = None) -> Iterator[Link]:
    """A link to a node that answers, with advice for who has given a command."""
    link = Link(servers, config or ClientConfig())
    try:
        try:
            link.connect()
        except UnreachableError:
            raise UnreachableError(
                f"no node answers at {servers}; start one with `headrace up`, or say where it is with --server"
            ) from None
        yield link
    finally:
        link.close()


def found_topics(link: Link, names: Iterable[str]) -> dict[str, TopicInfo]:
    """All of these topics; the first that there is not is named."""
    wanted = list(names)
    found = link.topics(wanted)
    for name in wanted:
        if name not in found:
            raise UnknownTopicError(f"there is no topic {name}; create it with `headrace topic create {name}`")
    return found


def check_queues(http: str, names: Iterable[str]) -> None:
    """A node answers at this address, and these are queues of it."""
    with Client(http) as client:
        for name in names:
            client.queue(name).describe()
