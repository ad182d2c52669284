"""`headrace send`: a text, or lines of standard input, become messages of a queue."""

import sys
from collections.abc import Iterable, Iterator
from typing import Annotated

import typer

from headrace.cli.name import QueueArgument
from headrace.cli.output import JsonOption, emit_json, fail, notice
from headrace.cli.produce import read_chunks
from headrace.cli.queue_session import HttpOption, parse_optional_span, queue_client
from headrace.cli.session import DEFAULT_TIMEOUT, TimeoutOption, parse_pairs
from headrace.cli.text import unescape
from headrace.client.errors import PartlySentError
from headrace.client.queue.outgoing import OutgoingMessage
from headrace.client.settings import DEFAULT_HTTP
from headrace.model.errors import HeadraceError
from headrace.model.message import Sent
from headrace.model.queue import PRIORITY_DEFAULT, PRIORITY_MAX

TextArgument = Annotated[
    str | None,
    typer.Argument(metavar="TEXT", help="What to send. [dim]default: lines of standard input[/]", show_default=False),
]
KeyOption = Annotated[
    str | None, typer.Option("--key", "-k", metavar="TEXT", help="One key for all; an ordered queue keeps its order.")
]
PriorityOption = Annotated[
    int, typer.Option("--priority", "-p", min=0, max=PRIORITY_MAX, help=f"{PRIORITY_MAX} comes first.")
]
DelayOption = Annotated[
    str | None, typer.Option("--delay", metavar="TIME", help="Not received before: 90, 15m, 12h. [dim]default: now[/]")
]
TtlOption = Annotated[str | None, typer.Option("--ttl", metavar="TIME", help="Dropped after: 90, 15m, 12h.")]
HeadersOption = Annotated[
    list[str] | None,
    typer.Option("--header", "-H", metavar="NAME=VALUE", help="A header for all messages; may be given several times."),
]
DeduplicationOption = Annotated[
    str | None,
    typer.Option("--deduplication-id", metavar="ID", help="A second message with this id is not stored, for a while."),
]
DelimiterOption = Annotated[
    str,
    typer.Option("--delimiter", "-D", metavar="TEXT", help=r"What ends a message in the input; \n, \t, \0 work."),
]


def send(
    queue: QueueArgument,
    text: TextArgument = None,
    *,
    key: KeyOption = None,
    priority: PriorityOption = PRIORITY_DEFAULT,
    delay: DelayOption = None,
    ttl: TtlOption = None,
    headers: HeadersOption = None,
    deduplication_id: DeduplicationOption = None,
    delimiter: DelimiterOption = r"\n",
    http: HttpOption = DEFAULT_HTTP,
    timeout: TimeoutOption = DEFAULT_TIMEOUT,
    as_json: JsonOption = False,
) -> None:
    r"""Send messages to a queue: one text, or one for each line of standard input.

    The queue is made on first use. Whatever has to be retried on the way, a message is stored once.

    [bold]Examples[/]

    [cyan]headrace send tasks 'one tea'[/]

    [cyan]headrace send tasks 'later' --delay 15m --priority 9 --key alice[/]

    [cyan]seq 1000 | headrace send tasks --json[/]
    """
    # Checked here as well: with nothing to send, no node would say it.
    if text is None and deduplication_id is not None:
        raise typer.BadParameter("one id for many lines would store the first alone; give the TEXT, too")
    template = OutgoingMessage(
        body=b"",
        key=key,
        priority=priority,
        delay=parse_optional_span(delay),
        ttl=parse_optional_span(ttl),
        headers=parse_pairs(headers or []),
        deduplication_id=deduplication_id,
    )
    count = 0
    last: Sent | None = None
    with queue_client(http, timeout) as client:
        for bodies in _bodies(text, unescape(delimiter)):
            try:
                places = client.queue(queue).send_many(_fill(template, bodies))
            except PartlySentError as error:
                if text is not None and isinstance(reason := error.outcomes[0], HeadraceError):
                    raise reason from None
                sent = count + sum(isinstance(outcome, Sent) for outcome in error.outcomes)
                fail(f"{error} ({sent} messages were sent)")
            count, last = count + len(places), places[-1]
            if as_json:
                for place in places:
                    emit_json({**place._asdict()})
    if not as_json:
        where = "" if last is None else f", the last as {last.id}" if count > 1 else f" as {last.id}"
        known = " (a duplicate: it was there already)" if count == 1 and last is not None and last.is_duplicate else ""
        notice(f"Sent {count} message{'s' * (count != 1)} to [bold]{queue}[/]{where}{known}.")


def _bodies(text: str | None, delimiter: bytes) -> Iterator[list[bytes]]:
    if text is not None:
        yield [text.encode()]
        return
    for lines, _ in read_chunks(sys.stdin.buffer, delimiter):
        yield lines


def _fill(template: OutgoingMessage, bodies: Iterable[bytes]) -> list[OutgoingMessage]:
    return [
        OutgoingMessage(
            body=body,
            key=template.key,
            priority=template.priority,
            delay=template.delay,
            ttl=template.ttl,
            headers=template.headers,
            deduplication_id=template.deduplication_id,
        )
        for body in bodies
    ]
