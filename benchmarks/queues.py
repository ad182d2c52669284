"""(g): sends, receives and acknowledgements a second through every door of a queue, each sync'ed before it is answered.

Node and bare protocol take turns, with the same bytes of requests over as many connections; a ratio is taken within a
turn, and the median of the turns is reported. moto's server gets the SQS requests too, over as many connections as it
is quickest with.
"""

from statistics import median
from typing import NamedTuple

import msgspec

from benchmarks import boto_load, client_load
from benchmarks.boto_load import MeasuredBoto
from benchmarks.client_load import MeasuredClient
from benchmarks.door import Door, MsgpackDoor, RestDoor, SqsDoor, create_queue, create_sqs_queue
from benchmarks.http_load import MeasuredHttp, Repeat, load
from benchmarks.http_round import Load, measure_round, several
from benchmarks.process import Server, running_module, running_node
from benchmarks.report import Goal, Report, amount
from benchmarks.settings import Settings

NAME = "queues"
BODY = "x" * 1024
GOAL_RATIO = 0.4
GOAL_CLIENT_PER_S = 100_000
GOAL_CLIENT_BATCH = 100
CLIENT_BATCHES = (1, 10, 100)
MOTO_CONNECTIONS = 2
TURNS = 3
TURNS_SINGLE = 9  # what has a target is measured more often: three medians of one machine differ by a tenth
WORKS = ("send", "receive", "acknowledge")


class Turn(NamedTuple):
    node: MeasuredHttp
    node_cpu_share: float
    bare: MeasuredHttp


class Line(msgspec.Struct, frozen=True, kw_only=True):
    """One row: medians over the turns."""

    door: str
    batch: int
    work: str
    messages_per_s: float
    requests_per_s: float
    failed: int
    ratio: float | None = None  # of requests, to the bare protocol
    ratios: list[float] = []
    moto_ratio: float | None = None  # of messages, to moto's server
    p50_ms: float | None = None
    p99_ms: float | None = None
    node_cpu_share: float | None = None
    node_cpu_us: float | None = None  # for each message
    client_cpu_share: float | None = None


def run(settings: Settings) -> Report:
    lines: list[Line] = []
    with running_module("bare_http", settings.directory) as bare:
        for kind in (RestDoor, MsgpackDoor, SqsDoor):
            for batch in kind.batch_sizes:
                with running_node(settings.directory / "queues") as node:
                    lines += _measure_door(settings, node, bare, kind, batch)
    with running_node(settings.directory / "queues") as node:
        for batch in CLIENT_BATCHES:
            lines += _measure_client(settings, node, batch)
        boto = {"boto3, to headrace": _measure_boto(settings, node.http, _node_url(node, "boto"))}
    with running_module("moto_node", settings.directory) as moto:
        lines = _beside_moto(settings, moto, lines)
        boto["boto3, to moto"] = _measure_boto(settings, moto.http, create_sqs_queue(moto.http, "boto"))
    return report(lines, boto)


def _node_url(node: Server, queue: str) -> str:
    create_queue(node.http, queue)
    return f"http://{node.http}/000000000000/{queue}"


def _door(kind: type[RestDoor | MsgpackDoor | SqsDoor], node: Server, queue: str) -> Door:
    if issubclass(kind, SqsDoor):
        return kind(node.http, _node_url(node, queue))
    create_queue(node.http, queue)
    return kind(node.http, queue)


def _measure_door(
    settings: Settings, node: Server, bare: Server, kind: type[RestDoor | MsgpackDoor | SqsDoor], batch: int
) -> list[Line]:
    how = Load(settings.either(1.5, 0.5), settings.either(0.5, 0.2))
    turns: dict[str, list[Turn]] = {work: [] for work in WORKS}
    for number in range(int(settings.either(TURNS_SINGLE if batch == 1 else TURNS, 1))):
        door = _door(kind, node, f"turn-{number}")
        found = measure_round(node, door, BODY, batch, how)
        requests = _requests(door, batch)
        for work, part, alike in zip(WORKS, found, requests, strict=True):
            beside = load(bare.http, Repeat(alike), seconds=how.seconds / 2, warmup_s=how.warmup_s / 2)
            turns[work].append(Turn(*part, beside))
    return [_line(kind.name, batch, work, taken) for work, taken in turns.items()]


def _requests(door: Door, batch: int) -> list[list[bytes]]:
    """What the bare protocol gets, in the order of WORKS."""
    return [
        several(lambda: door.send(BODY, batch)),
        several(lambda: door.receive(batch)),
        several(lambda: door.acknowledge(["r" * 60] * batch)),
    ]


def _line(door: str, batch: int, work: str, turns: list[Turn]) -> Line:
    ratios = [turn.node.requests_per_s / turn.bare.requests_per_s for turn in turns]
    latencies = [turn.node.latency_ms for turn in turns if turn.node.latency_ms is not None]
    return Line(
        door=door,
        batch=batch,
        work=work,
        messages_per_s=median(turn.node.messages_per_s for turn in turns),
        requests_per_s=median(turn.node.requests_per_s for turn in turns),
        failed=sum(turn.node.failed for turn in turns),
        ratio=median(ratios),
        ratios=ratios,
        p50_ms=median(found.p50 for found in latencies),
        p99_ms=median(found.p99 for found in latencies),
        node_cpu_share=median(turn.node_cpu_share for turn in turns),
        node_cpu_us=median(turn.node_cpu_share / turn.node.messages_per_s * 1e6 for turn in turns),
        client_cpu_share=median(turn.node.client_cpu_share for turn in turns),
    )


def _measure_client(settings: Settings, node: Server, batch: int) -> list[Line]:
    taken: list[MeasuredClient] = []
    for number in range(int(settings.either(3, 1))):
        queue = f"client-{batch}-{number}"
        create_queue(node.http, queue)
        seconds = settings.either(2.0, 1.0)
        taken.append(client_load.measure(node.http, queue, batch=batch, size_bytes=len(BODY), seconds=seconds))
    parts = {
        "send": [found.sends for found in taken],
        "receive": [found.receives for found in taken],
        "acknowledge": [found.acknowledgements for found in taken],
    }
    return [
        Line(
            door="Python client",
            batch=batch,
            work=work,
            messages_per_s=median(rate.messages_per_s for rate in rates),
            requests_per_s=0.0,
            failed=0,
            client_cpu_share=median(rate.cpu_share for rate in rates),
        )
        for work, rates in parts.items()
    ]


def _measure_boto(settings: Settings, address: str, url: str) -> MeasuredBoto:
    return boto_load.measure(address, url, BODY, seconds=settings.either(3.0, 0.5))


def _beside_moto(settings: Settings, moto: Server, lines: list[Line]) -> list[Line]:
    """The lines of SQS with their ratios to moto's server."""
    found: dict[tuple[int, str], float] = {}
    how = Load(settings.either(3.0, 0.5), connections=MOTO_CONNECTIONS)
    for batch in SqsDoor.batch_sizes:
        door = SqsDoor(moto.http, create_sqs_queue(moto.http, f"batch-{batch}"))
        for work, part in zip(WORKS, measure_round(moto, door, BODY, batch, how), strict=True):
            found[batch, work] = part.found.messages_per_s
    return [
        msgspec.structs.replace(line, moto_ratio=line.messages_per_s / found[line.batch, line.work])
        if line.door == SqsDoor.name and found[line.batch, line.work]
        else line
        for line in lines
    ]


def report(lines: list[Line], boto: dict[str, MeasuredBoto]) -> Report:
    goals = []
    for line in lines:
        if line.work == "send" and line.batch == 1 and line.ratio is not None and line.door != MsgpackDoor.name:
            text = f"{line.door}, single sends: at least 0.4 of the bare protocol's requests"
            goals.append(Goal.at_least(text, GOAL_RATIO, line.ratio))
        if line.work == "send" and line.batch == GOAL_CLIENT_BATCH and line.door == "Python client":
            text = "Python client, batches of 100: at least 100,000 sends/s"
            goals.append(Goal.at_least(text, GOAL_CLIENT_PER_S, line.messages_per_s))
    failed = sum(line.failed for line in lines)
    calls = [
        f"{name}: {amount(found.sends_per_s)} sends/s, {amount(found.receives_per_s)} receives/s, "
        f"{amount(found.acknowledgements_per_s)} acknowledgements/s, one call after another."
        for name, found in boto.items()
    ]
    return Report(
        name=NAME,
        title="(g) Messages of 1 KB through a queue, fsync, 64 connections: messages a second",
        columns=[
            "door",
            "batch",
            "work",
            "messages/s",
            "of bare",
            "of moto",
            "p50 ms",
            "p99 ms",
            "node CPU",
            "us/message",
            "client CPU",
        ],
        rows=[_row(line) for line in lines],
        figures={"lines": msgspec.to_builtins(lines), "boto3": msgspec.to_builtins(boto)},
        goals=goals,
        notes=[
            "Requests are bytes made beforehand, because boto3 and curl would be the limit; boto3 itself is below.",
            "CPU in shares of one core; us/message: microseconds of the node's, in all threads, for each message.",
            f"of bare: requests a second beside a bare httptools protocol. {failed} requests failed.",
            f"of moto: over {MOTO_CONNECTIONS} connections, with which it is quickest.",
            "Python client, batch 1: 64 tasks that each wait for their message; the client gathers what is under way.",
            *calls,
        ],
    )


def _row(line: Line) -> list[str]:
    def shown(value: float | None, form: str = "{:.2f}") -> str:
        return "" if value is None else form.format(value)

    return [
        line.door,
        str(line.batch),
        line.work,
        amount(line.messages_per_s),
        shown(line.ratio),
        shown(line.moto_ratio, "{:,.0f}"),
        shown(line.p50_ms),
        shown(line.p99_ms),
        shown(line.node_cpu_share),
        shown(line.node_cpu_us, "{:.1f}"),
        shown(line.client_cpu_share),
    ]
