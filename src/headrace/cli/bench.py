"""`headrace bench`: put a bounded load on a node and say what came of it. What loads are is in `load.py`."""

from typing import Annotated, Any

import msgspec
import typer

from headrace.cli.load import (
    STAMP,
    Measured,
    Percentiles,
    ProduceLoad,
    Target,
    client_library,
    create_topics,
)
from headrace.cli.name import TopicArgument
from headrace.cli.output import App, Group, JsonOption, emit_json, emit_table, fail
from headrace.cli.produce import Acks, Codec
from headrace.cli.receiver import consume as run_consume
from headrace.cli.sender import produce as run_produce
from headrace.cli.session import DEFAULT_SERVER, ServerOption, check_servers, parse_pairs
from headrace.model.topic import INT32_MAX

app = App(cls=Group, no_args_is_help=True, help="Put a load on a node and measure it.")

SECONDS_MAX = 24 * 3600.0
DEFAULT_SECONDS = 10.0
RATE_MAX = 10_000_000.0
TOPICS_MAX = 10_000
# Where librdkafka has its own limits.
LINGER_MS_MAX, BATCH_MESSAGES_MAX = 900_000.0, 1_000_000
DEFAULT_LATENCY_RATE = 1000.0

MessagesOption = Annotated[
    int | None, typer.Option("--messages", "-n", min=1, help="Stop after so many messages.", show_default=False)
]
SecondsOption = Annotated[
    float | None,
    typer.Option(
        "--seconds",
        "-t",
        min=0.001,
        max=SECONDS_MAX,
        help=f"Stop after so long. [dim]default: {DEFAULT_SECONDS:.0f}, without --messages[/]",
        show_default=False,
    ),
]
WarmupOption = Annotated[
    float, typer.Option("--warmup", metavar="SECONDS", min=0.0, max=3600.0, help="Run so long before measuring.")
]
SizeOption = Annotated[int, typer.Option("--size", min=1, max=100_000_000, help="Bytes of each message.")]
RateOption = Annotated[float | None, typer.Option("--rate", "-r", min=0.1, max=RATE_MAX, help="Messages a second.")]
AcksOption = Annotated[Acks, typer.Option("--acks", "-a", help="Who must have a message before it counts as sent.")]
IdempotentOption = Annotated[bool, typer.Option("--idempotent", help="Number the messages, so that none is doubled.")]
LingerOption = Annotated[
    float,
    typer.Option(
        "--linger", metavar="MS", min=0.0, max=LINGER_MS_MAX, help="How long the client waits to fill a batch."
    ),
]
BatchBytesOption = Annotated[int, typer.Option("--batch-bytes", min=1, max=INT32_MAX, help="Most bytes in a batch.")]
BatchMessagesOption = Annotated[
    int, typer.Option("--batch-messages", min=1, max=BATCH_MESSAGES_MAX, help="Most messages in a batch.")
]
CompressionOption = Annotated[Codec, typer.Option("--compression", "-z", help="Compress batches.")]
PartitionsOption = Annotated[
    int | None,
    typer.Option(
        "--partitions", "-p", min=1, max=INT32_MAX, help="Make the topic with so many partitions, if there is none."
    ),
]
TopicsOption = Annotated[
    int, typer.Option("--topics", min=1, max=TOPICS_MAX, help="Spread over so many topics, named TOPIC-0, TOPIC-1, ...")
]
SetOption = Annotated[
    list[str] | None,
    typer.Option("--set", "-s", metavar="KEY=VALUE", help="A setting of the topic that is made; may be repeated."),
]
OneByOneOption = Annotated[
    bool,
    typer.Option(
        "--one-by-one",
        help="Make a call for each message, as most programs do, instead of one for a thousand. Without --rate.",
    ),
]
ClientPartitionerOption = Annotated[
    bool,
    typer.Option("--client-partitioner", help="Let the client choose partitions, instead of going round all of them."),
]


@app.command()
def produce(
    topic: TopicArgument,
    *,
    messages: MessagesOption = None,
    seconds: SecondsOption = None,
    warmup: WarmupOption = 0.0,
    size: SizeOption = 1024,
    rate: RateOption = None,
    acks: AcksOption = Acks.ALL,
    idempotent: IdempotentOption = False,
    linger: LingerOption = 5.0,
    batch_bytes: BatchBytesOption = 1_000_000,
    batch_messages: BatchMessagesOption = 10_000,
    compression: CompressionOption = Codec.NONE,
    partitions: PartitionsOption = None,
    topics: TopicsOption = 1,
    settings: SetOption = None,
    client_partitioner: ClientPartitionerOption = False,
    one_by_one: OneByOneOption = False,
    server: ServerOption = DEFAULT_SERVER,
    as_json: JsonOption = False,
) -> None:
    """Send messages, as fast as the client can or at a rate, and print how fast and how soon acknowledged.

    With --rate the load is open-loop: a latency counts from when its message was due, not from when a busy client
    came round to sending it.

    [bold]Examples[/]

    [cyan]headrace bench produce load --partitions 1 -s headrace.durability=memory --seconds 10[/]

    [cyan]headrace bench produce load --rate 10000 --linger 1 --size 1024[/]
    """
    target = _target(server, topic, topics, partitions, settings)
    load = ProduceLoad(
        size_bytes=size if rate is None else max(size, STAMP.size),
        messages=messages,
        seconds=_seconds(messages, seconds),
        warmup_s=warmup,
        rate=rate,
        acks=acks.value,
        is_idempotent=idempotent,
        linger_ms=linger,
        batch_bytes=batch_bytes,
        batch_messages=batch_messages,
        compression=compression.value,
        client_partitioner=client_partitioner,
        one_by_one=one_by_one,
    )
    measured = run_produce(target, load)
    _print(measured, as_json=as_json)
    _check_failures(measured)


@app.command()
def consume(
    topic: TopicArgument,
    *,
    messages: MessagesOption = None,
    seconds: SecondsOption = None,
    warmup: WarmupOption = 0.0,
    topics: TopicsOption = 1,
    server: ServerOption = DEFAULT_SERVER,
    as_json: JsonOption = False,
) -> None:
    """Read from the beginning, as fast as the client can, and print how fast that was.

    Messages of the warm-up count for --messages, but not for the figures.

    [bold]Example[/]

    [cyan]headrace bench consume load --messages 1000000[/]
    """
    check_servers(server)
    target = Target(server=server, topic=topic, topics=topics)
    measured = run_consume(target, messages=messages, seconds=_seconds(messages, seconds), warmup_s=warmup)
    _print(measured, as_json=as_json)


@app.command()
def latency(
    topic: TopicArgument,
    *,
    messages: MessagesOption = None,
    seconds: SecondsOption = None,
    warmup: WarmupOption = 1.0,
    size: SizeOption = 1024,
    rate: Annotated[
        float, typer.Option("--rate", "-r", min=0.1, max=RATE_MAX, help="Messages a second.")
    ] = DEFAULT_LATENCY_RATE,
    acks: AcksOption = Acks.ALL,
    idempotent: IdempotentOption = False,
    linger: LingerOption = 0.0,
    compression: CompressionOption = Codec.NONE,
    partitions: PartitionsOption = None,
    settings: SetOption = None,
    server: ServerOption = DEFAULT_SERVER,
    as_json: JsonOption = False,
) -> None:
    """Send at a rate, receive in another process, and print the time between.

    The load is open-loop: a latency counts from when its message was due to be sent.

    [bold]Example[/]

    [cyan]headrace bench latency load --partitions 1 --rate 10000 --seconds 20[/]
    """
    from headrace.cli.end_to_end import measure

    target = _target(server, topic, 1, partitions, settings)
    load = ProduceLoad(
        size_bytes=max(size, STAMP.size),
        messages=messages,
        seconds=_seconds(messages, seconds),
        warmup_s=warmup,
        rate=rate,
        acks=acks.value,
        is_idempotent=idempotent,
        linger_ms=linger,
        compression=compression.value,
    )
    result = measure(target, load)
    if as_json:
        document = _document(result.sent)
        document["acknowledged_ms"] = document.pop("latency_ms")
        emit_json(document | {"received": result.received, "latency_ms": msgspec.to_builtins(result.latency_ms)})
    else:
        _print_rate(result.sent)
        rows = [_latency_row("acknowledged", result.sent.latency_ms), _latency_row("received", result.latency_ms)]
        emit_table(("latency in ms", *LATENCY_COLUMNS), rows)
    _check_failures(result.sent)
    missing = result.sent.messages_total - result.received
    if missing > 0:
        fail(f"{missing} messages were acknowledged and not received")


def _target(server: str, topic: str, topics: int, partitions: int | None, settings: list[str] | None) -> Target:
    check_servers(server)
    client_library()
    target = Target(server=server, topic=topic, topics=topics)
    if partitions is not None:
        create_topics(target, partitions=partitions, settings=dict(parse_pairs(settings or [])))
    elif settings:
        raise typer.BadParameter("--set is for a topic that is made, so it needs --partitions")
    return target


def _seconds(messages: int | None, seconds: float | None) -> float | None:
    """How long, unless it is said how many."""
    if messages is not None and seconds is not None:
        raise typer.BadParameter("give --messages or --seconds, not both")
    return DEFAULT_SECONDS if messages is None and seconds is None else seconds


LATENCY_COLUMNS = ("p50", "p90", "p99", "p99.9", "max")


def _latency_row(name: str, found: Percentiles | None) -> list[str]:
    if found is None:
        return [name, *("-" for _ in LATENCY_COLUMNS)]
    return [name, *(f"{value:.2f}" for value in (found.p50, found.p90, found.p99, found.p999, found.max))]


def _document(measured: Measured) -> dict[str, Any]:
    document: dict[str, Any] = msgspec.to_builtins(measured)
    document["messages_per_s"] = measured.messages_per_s
    document["megabytes_per_s"] = measured.megabytes_per_s
    return document


def _print(measured: Measured, *, as_json: bool) -> None:
    if as_json:
        emit_json(_document(measured))
        return
    _print_rate(measured)
    if measured.latency_ms is not None:
        emit_table(("latency in ms", *LATENCY_COLUMNS), [_latency_row("acknowledged", measured.latency_ms)])


def _print_rate(measured: Measured) -> None:
    row = (
        f"{measured.messages:,}",
        f"{measured.seconds:.2f}",
        f"{measured.messages_per_s:,.0f}",
        f"{measured.megabytes_per_s:,.1f}",
    )
    emit_table(("messages", "seconds", "messages/s", "MB/s"), [row])


def _check_failures(measured: Measured) -> None:
    if measured.failed:
        fail(f"{measured.failed} messages were not acknowledged; the first error: {measured.first_error}")
