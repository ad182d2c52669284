"""`headrace receive`: take messages from a queue, print them, and acknowledge what was printed."""

from contextlib import suppress
from typing import Annotated

import typer

from headrace.cli.name import QueueArgument
from headrace.cli.output import JsonOption, emit_bytes, emit_json, notice
from headrace.cli.queue_session import HttpOption, parse_optional_span, parse_span, queue_client
from headrace.cli.queue_text import message_to_json
from headrace.cli.session import DEFAULT_TIMEOUT, TimeoutOption
from headrace.client.queue.sync import Message, Queue
from headrace.client.settings import DEFAULT_HTTP

BATCH_MAX = 100
FOLLOW_WAIT_S = 20.0

CountOption = Annotated[
    int | None,
    typer.Option(
        "--count", "-c", metavar="N", min=1, help="How many at most. [dim]default: 1, with --follow no end[/]"
    ),
]
WaitOption = Annotated[str, typer.Option("--wait", "-w", metavar="TIME", help="How long to wait for the first.")]
LeaseOption = Annotated[
    str | None,
    typer.Option("--lease", metavar="TIME", help="For how long nobody else gets them. [dim]default: the queue's[/]"),
]
AckOption = Annotated[
    bool, typer.Option("--ack/--no-ack", help="Acknowledge what was printed, or leave it to its lease.")
]
FollowOption = Annotated[bool, typer.Option("--follow", "-f", help="Go on until Ctrl-C.")]
KeysOption = Annotated[bool, typer.Option("--keys", help="Print the key before the body, with a tab between.")]


def receive(
    queue: QueueArgument,
    *,
    count: CountOption = None,
    wait: WaitOption = "0s",
    lease: LeaseOption = None,
    ack: AckOption = True,
    follow: FollowOption = False,
    keys: KeysOption = False,
    http: HttpOption = DEFAULT_HTTP,
    timeout: TimeoutOption = DEFAULT_TIMEOUT,
    as_json: JsonOption = False,
) -> None:
    """Receive messages of a queue, print them one a line, and acknowledge them.

    A message is acknowledged after it was printed. To look without taking, use [cyan]headrace queue browse[/].

    [bold]Examples[/]

    [cyan]headrace receive tasks[/]

    [cyan]headrace receive tasks --count 100 --wait 5s --json[/]

    [cyan]headrace receive tasks --follow --keys[/]
    """
    left = count if count is not None or follow else 1
    wait_s = FOLLOW_WAIT_S if follow else parse_span(wait)
    lease_s = parse_optional_span(lease)
    seen = 0
    with queue_client(http, timeout) as client, suppress(KeyboardInterrupt):
        source = client.queue(queue)
        while left is None or left > 0:
            batch = source.receive(BATCH_MAX if left is None else min(left, BATCH_MAX), wait_s, lease_s)
            _hand_over(batch, source, ack=ack, keys=keys, as_json=as_json)
            seen += len(batch)
            if left is not None:
                left -= len(batch)
            if not follow:
                # Only the first is waited for: what is there is there.
                wait_s = 0.0
                if not batch:
                    break
    if not seen and not follow:
        notice(f"There is nothing to receive from [bold]{queue}[/] now; wait for it with --wait 20s or --follow.")


def _hand_over(batch: list[Message], source: Queue, *, ack: bool, keys: bool, as_json: bool) -> None:
    count = 0
    try:
        for message in batch:
            if as_json:
                emit_json(message_to_json(message))
            else:
                emit_bytes(((message.key or b"") + b"\t" if keys else b"") + message.body + b"\n")
            count += 1
    finally:
        # Also where the reader of a pipe went away, or at Ctrl-C: what was not printed is for others, and at once.
        source.release_all(batch[count:])
        if ack:
            source.acknowledge_all(batch[:count])
