"""`headrace consume`: read messages from a place on and print them."""

from collections.abc import Callable
from contextlib import suppress
from typing import Annotated

import typer

from headrace.cli.moment import parse_moment, show_moment
from headrace.cli.name import TopicArgument
from headrace.cli.output import emit_bytes, notice
from headrace.cli.session import DEFAULT_SERVER, DEFAULT_TIMEOUT, ServerOption, TimeoutOption, session
from headrace.cli.text import compile_format, headers_text, message_to_json
from headrace.client.stream import StreamClient
from headrace.client.values import Message, TopicPartition
from headrace.model.errors import InvalidPartitionsError, OffsetOutOfRangeError
from headrace.model.topic import INT64_MAX

WAIT_MS = 500
OFFSET_DIGITS_MAX = len(str(INT64_MAX))


StartOption = Annotated[
    str,
    typer.Option(
        "--from", "-o", metavar="PLACE", help="beginning, end, or an offset.", rich_help_panel="Where to begin"
    ),
]
SinceOption = Annotated[
    str | None,
    typer.Option(
        "--since", metavar="TIME", help="A time: ISO 8601 or epoch milliseconds.", rich_help_panel="Where to begin"
    ),
]
LastOption = Annotated[
    int | None,
    typer.Option(
        "--last", "-n", metavar="N", min=0, help="The last N of each partition.", rich_help_panel="Where to begin"
    ),
]
PartitionsOption = Annotated[
    list[int] | None,
    typer.Option(
        "--partition", "-p", metavar="N", help="Only this one; may be given several times. [dim]default: all[/]"
    ),
]
UntilEndOption = Annotated[
    bool,
    typer.Option("--until-end", "-e", help="Stop at what was the end when it began.", rich_help_panel="Where to stop"),
]
CountOption = Annotated[
    int | None,
    typer.Option("--count", "-c", metavar="N", min=1, help="Stop after N messages.", rich_help_panel="Where to stop"),
]
KeysOption = Annotated[bool, typer.Option("--keys", help="Print the key.", rich_help_panel="What to print")]
HeadersOption = Annotated[bool, typer.Option("--headers", help="Print the headers.", rich_help_panel="What to print")]
TimestampsOption = Annotated[
    bool, typer.Option("--timestamps", help="Print the time.", rich_help_panel="What to print")
]
PlacesOption = Annotated[
    bool, typer.Option("--places", help="Print partition and offset.", rich_help_panel="What to print")
]
FormOption = Annotated[
    str | None,
    typer.Option(
        "--format",
        "-f",
        metavar="FORMAT",
        help=r"%s value %k key %o offset %p partition %t topic %T time %h headers %S %K sizes, \n \t.",
        rich_help_panel="What to print",
    ),
]
AsJsonOption = Annotated[
    bool, typer.Option("--json", "-J", help="One JSON object a line.", rich_help_panel="What to print")
]


def consume(
    topic: TopicArgument,
    *,
    start: StartOption = "beginning",
    since: SinceOption = None,
    last: LastOption = None,
    partitions: PartitionsOption = None,
    until_end: UntilEndOption = False,
    count: CountOption = None,
    keys: KeysOption = False,
    headers: HeadersOption = False,
    timestamps: TimestampsOption = False,
    places: PlacesOption = False,
    form: FormOption = None,
    as_json: AsJsonOption = False,
    server: ServerOption = DEFAULT_SERVER,
    timeout: TimeoutOption = DEFAULT_TIMEOUT,
) -> None:
    r"""Read messages and print them, one a line; at the end wait for more.

    It reads every partition, in order within each, and leaves no trace.

    [bold]Examples[/]

    [cyan]headrace consume orders[/]

    [cyan]headrace consume orders --last 10 --until-end --keys --timestamps[/]

    [cyan]headrace consume orders --since 2026-01-31T12:00:00Z --json[/]

    [cyan]headrace consume orders -p 0 -o 42 -c 1 -f '%k: %s\n'[/]
    """
    if (since is not None) + (last is not None) + (start != "beginning") > 1:
        raise typer.BadParameter("give one of --from, --since and --last")
    if as_json and form is not None:
        raise typer.BadParameter("give --json or --format, not both")
    render: Callable[[Message], bytes]
    if as_json:
        render = message_to_json
    elif form is not None:
        render = compile_format(form)
    else:
        render = _columns(keys=keys, headers=headers, timestamps=timestamps, places=places)
    begin = _beginning(start, since, last)
    with session(server, timeout) as opened:
        reading = Reading(opened.client, render, count_max=count, stop_at_end=until_end)
        # Ctrl-C is how a person ends an endless read; it is no failure.
        with suppress(KeyboardInterrupt):
            opened.run(reading.run(topic, partitions, begin))


def _columns(*, keys: bool, headers: bool, timestamps: bool, places: bool) -> Callable[[Message], bytes]:
    """The chosen columns, with tabs between."""
    fields: list[Callable[[Message], bytes]] = []
    if places:
        fields.append(lambda m: b"%d:%d" % (m.partition, m.offset))
    if timestamps:
        fields.append(lambda m: show_moment(m.timestamp_ms).encode())
    if headers:
        fields.append(lambda m: headers_text(m.headers))
    if keys:
        fields.append(lambda m: m.key or b"")
    fields.append(lambda m: m.value or b"")
    return lambda message: b"\t".join(field(message) for field in fields) + b"\n"


Positions = dict[TopicPartition, int]


class Place:
    """Where to begin: exactly one of a fixed offset, a distance from the end, a time, the start or the end."""

    def __init__(
        self, *, offset: int | None = None, last: int | None = None, since_ms: int | None = None, at_end: bool = False
    ) -> None:
        self.offset = offset
        self.last = last
        self.since_ms = since_ms
        self.at_end = at_end

    async def resolve(self, client: StreamClient, starts: Positions, ends: Positions) -> Positions:
        if self.offset is not None:
            return dict.fromkeys(starts, self.offset)
        if self.last is not None:
            return {at: max(starts[at], ends[at] - self.last) for at in starts}
        if self.since_ms is not None:
            found = await client.offsets_for_time(starts, self.since_ms)
            return {at: ends[at] if located is None else located.offset for at, located in found.items()}
        return dict(ends if self.at_end else starts)


def _beginning(start: str, since: str | None, last: int | None) -> Place:
    if since is not None:
        return Place(since_ms=parse_moment(since))
    if last is not None:
        return Place(last=last)
    if start in ("beginning", "end"):
        return Place(at_end=start == "end")
    if start.isascii() and start.isdigit() and len(start) <= OFFSET_DIGITS_MAX and int(start) <= INT64_MAX:
        return Place(offset=int(start))
    raise typer.BadParameter(f"{start!r} is no place; say beginning, end, or an offset", param_hint="--from")


class Reading:
    """One run of the command."""

    def __init__(
        self,
        client: StreamClient,
        render: Callable[[Message], bytes],
        *,
        count_max: int | None,
        stop_at_end: bool,
    ) -> None:
        self._client = client
        self._render = render
        self._left = count_max
        self._stop_at_end = stop_at_end

    async def run(self, topic: str, partitions: list[int] | None, place: Place) -> None:
        ats = await self._choose(topic, partitions)
        starts = await self._client.start_offsets(ats)
        ends = await self._client.end_offsets(ats)
        positions = await place.resolve(self._client, starts, ends)
        while True:
            if self._stop_at_end:
                positions = {at: offset for at, offset in positions.items() if offset < ends[at]}
            if not positions or self._left == 0:
                return
            await self._step(positions, ends)

    async def _choose(self, topic: str, partitions: list[int] | None) -> list[TopicPartition]:
        ats = await self._client.partitions(topic)
        if partitions is None:
            return ats
        absent = sorted(set(partitions) - {at.partition for at in ats})
        if absent:
            raise InvalidPartitionsError(f"{topic} has {len(ats)} partitions, numbered from 0; there is no {absent[0]}")
        return [at for at in ats if at.partition in partitions]

    async def _step(self, positions: Positions, ends: Positions) -> None:
        """Read once from every position, print, and move the positions on."""
        try:
            fetched = await self._client.fetch(positions, wait_ms=WAIT_MS)
        except OffsetOutOfRangeError as error:
            if error.start < 0 or min(positions.values()) >= error.start:
                raise
            await self._skip_deleted(positions)
            return
        for part in fetched:
            messages = part.messages
            if self._stop_at_end:
                messages = [message for message in messages if message.offset < ends[part.at]]
            if self._left is not None:
                messages = messages[: self._left]
                self._left -= len(messages)
            if messages:
                emit_bytes(b"".join(map(self._render, messages)))
            positions[part.at] = part.next_offset

    async def _skip_deleted(self, positions: Positions) -> None:
        """Retention passed us by: go on where the log begins now, and say so."""
        for at, first in (await self._client.start_offsets(positions)).items():
            if positions[at] < first:
                notice(f"{at}: offsets {positions[at]} to {first - 1} are deleted; going on at {first}")
                positions[at] = first
