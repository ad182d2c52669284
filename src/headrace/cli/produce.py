"""`headrace produce`: lines from standard input or a file become messages."""

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from enum import Enum
from functools import partial
from pathlib import Path
from typing import Annotated, Any, BinaryIO

import typer
from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn, TransferSpeedColumn

from headrace.cli.moment import parse_moment
from headrace.cli.name import TopicArgument
from headrace.cli.output import JsonOption, emit_json, notice
from headrace.cli.session import DEFAULT_SERVER, DEFAULT_TIMEOUT, ServerOption, TimeoutOption, parse_pairs, session
from headrace.cli.text import message_from_json, unescape
from headrace.client.producer import ACKS_ALL, ACKS_LEADER, ACKS_NONE
from headrace.client.values import Outgoing, Produced
from headrace.model.errors import InvalidRequestError

CHUNK_BYTES = 1024 * 1024
# A line longer than this is no message that any topic takes; it is refused before it fills the memory.
LINE_BYTES_MAX = 256 * 1024 * 1024


class Codec(Enum):
    NONE = "none"
    GZIP = "gzip"
    SNAPPY = "snappy"
    LZ4 = "lz4"
    ZSTD = "zstd"


class Acks(Enum):
    ALL = "all"
    LEADER = "1"
    NONE = "0"


class InputForm(Enum):
    LINES = "lines"
    JSON = "json"


_ACKS = {Acks.ALL: ACKS_ALL, Acks.LEADER: ACKS_LEADER, Acks.NONE: ACKS_NONE}


FileArgument = Annotated[
    Path | None,
    typer.Argument(metavar="FILE", help="What to send. [dim]default: standard input[/]", show_default=False),
]
KeyDelimiterOption = Annotated[
    str | None,
    typer.Option("--key-delimiter", "-K", metavar="TEXT", help="Split each line here into key and value."),
]
KeyOption = Annotated[str | None, typer.Option("--key", "-k", metavar="TEXT", help="One key for all messages.")]
HeadersOption = Annotated[
    list[str] | None,
    typer.Option("--header", "-H", metavar="NAME=VALUE", help="A header for all messages; may be given several times."),
]
PartitionOption = Annotated[
    int | None,
    typer.Option("--partition", "-p", min=0, help="Send to this partition. [dim]default: by key, or any[/]"),
]
TimestampOption = Annotated[
    str | None,
    typer.Option("--timestamp", metavar="TIME", help="ISO 8601 or epoch milliseconds. [dim]default: now[/]"),
]
CompressionOption = Annotated[Codec, typer.Option("--compression", "-z", help="Compress batches.")]
AcksOption = Annotated[Acks, typer.Option("--acks", "-a", help="Who must have a message before it counts as sent.")]
DelimiterOption = Annotated[
    str,
    typer.Option("--delimiter", "-D", metavar="TEXT", help=r"What ends a message in the input; \n, \t, \0 work."),
]
EmptyAsNullOption = Annotated[bool, typer.Option("--empty-as-null", "-Z", help="Send null for an empty value or key.")]
FormOption = Annotated[
    InputForm, typer.Option("--input", help="What the input holds: lines, or what `consume --json` prints.")
]


def produce(
    topic: TopicArgument,
    file: FileArgument = None,
    *,
    key_delimiter: KeyDelimiterOption = None,
    key: KeyOption = None,
    headers: HeadersOption = None,
    partition: PartitionOption = None,
    timestamp: TimestampOption = None,
    compression: CompressionOption = Codec.NONE,
    acks: AcksOption = Acks.ALL,
    delimiter: DelimiterOption = r"\n",
    empty_as_null: EmptyAsNullOption = False,
    form: FormOption = InputForm.LINES,
    server: ServerOption = DEFAULT_SERVER,
    timeout: TimeoutOption = DEFAULT_TIMEOUT,
    as_json: JsonOption = False,
) -> None:
    r"""Send messages, one for each line of standard input or of a file.

    With acks=all (the default) each message is stored once,
    whatever has to be retried on the way.

    [bold]Examples[/]

    [cyan]echo hello | headrace produce orders[/]

    [cyan]headrace produce orders orders.txt --key-delimiter : --compression zstd[/]

    [cyan]headrace consume orders --json --until-end | headrace produce copy --input json[/]
    """
    # Checked here as well: with nothing to send, no node would say it.
    if key is not None and key_delimiter is not None:
        raise typer.BadParameter("give --key or --key-delimiter, not both")
    template = Outgoing(
        value=None,
        key=None if key is None else key.encode(),
        headers=tuple((name, text.encode()) for name, text in parse_pairs(headers or [])),
        timestamp_ms=None if timestamp is None else parse_moment(timestamp),
        partition=partition,
    )
    parse: Callable[[bytes], Outgoing]
    if form is InputForm.JSON:
        parse = partial(message_from_json, template)
    else:
        split = None if key_delimiter is None else unescape(key_delimiter)
        parse = partial(message_from_line, template, split, empty_as_null)
    end = unescape(delimiter)
    total = Tally(topic)
    with (
        session(server, timeout, auto_create_topics=True) as opened,
        nullcontext(sys.stdin.buffer) if file is None else _open(file) as stream,
        _progress(stream) as advance,
    ):
        for lines, size in read_chunks(stream, end):
            messages = [parse(line) for line in lines]
            sent = opened.client.produce(topic, messages, compression=compression.value, acks=_ACKS[acks])
            total.add(opened.run(sent), sum(map(len, lines)))
            advance(size)
    if as_json:
        emit_json(total.as_json())
    else:
        notice(total.as_sentence())


def message_from_line(template: Outgoing, split: bytes | None, empty_as_null: bool, line: bytes) -> Outgoing:
    key, value = template.key, line
    if split is not None:
        before, found, after = line.partition(split)
        # A line without the delimiter has no key, as with kcat.
        key, value = (before, after) if found else (None, line)
    if empty_as_null:
        return template._replace(key=key or None, value=value or None)
    return template._replace(key=key, value=value)


def read_chunks(stream: BinaryIO, delimiter: bytes) -> Iterator[tuple[list[bytes], int]]:
    """Whole lines as they become available, with the bytes read for them; a last one may lack its delimiter.

    A read gives what is there and does not wait for more, so that a line typed at a terminal goes out at once.
    """
    rest = b""
    while True:
        data = os.read(stream.fileno(), CHUNK_BYTES) if _has_descriptor(stream) else stream.read(CHUNK_BYTES)
        if not data:
            break
        *lines, rest = (rest + data).split(delimiter)
        if len(rest) > LINE_BYTES_MAX:
            raise InvalidRequestError(
                f"a line of more than {LINE_BYTES_MAX} bytes; is {delimiter!r} the right delimiter?"
            )
        if lines:
            yield lines, len(data)
    if rest:
        yield [rest], 0


def _has_descriptor(stream: BinaryIO) -> bool:
    try:
        stream.fileno()
    except OSError:
        return False
    return True


def _open(file: Path) -> BinaryIO:
    try:
        return file.open("rb")
    except OSError as error:
        raise InvalidRequestError(f"{file} cannot be read: {error.strerror}") from error


class _Silent:
    def __enter__(self) -> Callable[[int], None]:
        return lambda size: None

    def __exit__(self, *exc: object) -> None:
        return None


class _Bar:
    """A progress bar on the terminal, by bytes of the input."""

    def __init__(self, console: Console, total: int | None) -> None:
        columns = (
            TextColumn("sending"),
            BarColumn(),
            DownloadColumn(),
            TransferSpeedColumn(),
            TimeRemainingColumn(),
        )
        self._progress = Progress(*columns, console=console, transient=True)
        self._total = total

    def __enter__(self) -> Callable[[int], None]:
        self._progress.start()
        task = self._progress.add_task("", total=self._total)
        return lambda size: self._progress.advance(task, size)

    def __exit__(self, *exc: object) -> None:
        self._progress.stop()


def _progress(stream: BinaryIO) -> _Silent | _Bar:
    """A bar for a person who waits; none for a pipe that looks at us, nor for a person who types."""
    console = Console(stderr=True)
    if not console.is_terminal or not _has_descriptor(stream) or stream.isatty():
        return _Silent()
    size = os.fstat(stream.fileno()).st_size
    return _Bar(console, size or None)


class Tally:
    """What was sent, for the summary."""

    def __init__(self, topic: str) -> None:
        self.topic = topic
        self.messages = 0
        self.bytes = 0
        self.batches = 0
        self.offsets: dict[int, tuple[int, int]] = {}

    def add(self, produced: list[Produced], size: int) -> None:
        self.bytes += size
        for batch in produced:
            self.messages += batch.message_count
            self.batches += 1
            if batch.base_offset >= 0:
                first, _ = self.offsets.get(batch.at.partition, (batch.base_offset, 0))
                self.offsets[batch.at.partition] = first, batch.base_offset + batch.message_count - 1

    def as_json(self) -> dict[str, Any]:
        return {
            "topic": self.topic,
            "messages": self.messages,
            "bytes": self.bytes,
            "batches": self.batches,
            "partitions": [
                {"partition": partition, "first_offset": first, "last_offset": last}
                for partition, (first, last) in sorted(self.offsets.items())
            ],
        }

    def as_sentence(self) -> str:
        places = ", ".join(
            f"partition {partition} offset {first}" + (f" to {last}" if last != first else "")
            for partition, (first, last) in sorted(self.offsets.items())
        )
        plural = "" if self.messages == 1 else "s"
        return f"Sent {self.messages} message{plural} to [bold]{self.topic}[/]" + (f": {places}." if places else ".")
