"""`headrace group reset`: say where a group goes on.

Offsets are set for a group without members only. What is asked for is resolved against what each partition holds, and
kept within it; the table shows from where to where, also where nothing is changed (`--dry-run`).
"""

from typing import Annotated, NamedTuple

import typer

from headrace.cli.moment import parse_moment
from headrace.cli.name import GroupArgument
from headrace.cli.output import JsonOption, WrongUseError, emit_json, emit_table, notice, people
from headrace.cli.session import DEFAULT_SERVER, DEFAULT_TIMEOUT, ServerOption, TimeoutOption, with_client
from headrace.client.group import SHARE
from headrace.client.stream import StreamClient
from headrace.client.values import TopicPartition
from headrace.model.errors import (
    GroupNotEmptyError,
    InvalidPartitionsError,
    UnknownGroupError,
    UnsupportedError,
)
from headrace.model.names import check_topic_name

# More digits than any offset or partition has; Python itself reads no number without an end.
OFFSET_DIGITS_MAX, PARTITION_DIGITS_MAX = 19, 10


class Aim(NamedTuple):
    """Where to: exactly one of these."""

    earliest: bool = False
    latest: bool = False
    offset: int | None = None
    time_ms: int | None = None
    by: int | None = None


class Move(NamedTuple):
    at: TopicPartition
    before: int | None  # None: nothing was committed
    after: int
    wanted: int  # before it was kept within the log


def reset(
    name: GroupArgument,
    *,
    to: Annotated[str | None, typer.Option("--to", metavar="PLACE", help="To earliest, latest or an offset.")] = None,
    to_time: Annotated[
        str | None, typer.Option("--to-time", metavar="TIME", help="To the first message at or after a time.")
    ] = None,
    by: Annotated[
        int | None, typer.Option("--by", metavar="N", help="So many forward, or backward where it is negative.")
    ] = None,
    topics: Annotated[
        list[str] | None,
        typer.Option(
            "--topic",
            "-t",
            metavar="TOPIC[:PARTITION]",
            help="Only there; may be given several times. [dim]default: wherever the group has committed[/]",
        ),
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", "-n", help="Show it and change nothing.")] = False,
    server: ServerOption = DEFAULT_SERVER,
    timeout: TimeoutOption = DEFAULT_TIMEOUT,
    as_json: JsonOption = False,
) -> None:
    """Say where a group goes on. It must have no members: stop its consumers first.

    [bold]Examples[/]

    [cyan]headrace group reset billing --to earliest --topic orders --dry-run[/]

    [cyan]headrace group reset billing --to-time 2026-01-31T12:00:00Z[/]

    [cyan]headrace group reset billing --by -100 --topic orders:3[/]
    """
    aim = _aim(to, to_time, by)
    chosen = [_parse_place(text) for text in topics or []]

    async def work(client: StreamClient) -> list[Move]:
        moves = await _plan(client, name, aim, chosen)
        if not dry_run and moves:
            await client.groups.set_offsets(name, {move.at: move.after for move in moves})
        return moves

    moves = with_client(server, timeout, work)
    for move in moves:
        if move.wanted != move.after:
            notice(f"{move.at}: there is no offset {move.wanted}; the nearest is {move.after}")
    if as_json:
        emit_json(
            {
                "group": name,
                "changed": not dry_run,
                "partitions": [
                    {"topic": m.at.topic, "partition": m.at.partition, "from": m.before, "to": m.after} for m in moves
                ],
            }
        )
        return
    if not moves:
        notice(f"[bold]{name}[/] has committed nothing yet; say where with --topic.")
        return
    emit_table(("topic", "partition", "from", "to"), [(*m.at, m.before, m.after) for m in moves])
    people().print("Nothing is changed yet; leave out --dry-run." if dry_run else f"[bold]{name}[/] goes on there.")


def _aim(to: str | None, to_time: str | None, by: int | None) -> Aim:
    if (to is not None) + (to_time is not None) + (by is not None) != 1:
        raise typer.BadParameter("give one of --to, --to-time and --by")
    if to_time is not None:
        return Aim(time_ms=parse_moment(to_time))
    if to is None:
        return Aim(by=by)
    if to in ("earliest", "latest"):
        return Aim(earliest=to == "earliest", latest=to == "latest")
    if to.isascii() and to.isdigit() and len(to) <= OFFSET_DIGITS_MAX:
        return Aim(offset=int(to))
    raise typer.BadParameter(f"{to!r} is no place; say earliest, latest, or an offset", param_hint="--to")


def _parse_place(text: str) -> tuple[str, int | None]:
    topic, colon, index = text.partition(":")
    check_topic_name(topic)
    if not colon:
        return topic, None
    if not (index.isascii() and index.isdigit() and len(index) <= PARTITION_DIGITS_MAX):
        raise WrongUseError(f"{text!r} is no TOPIC:PARTITION; write orders:3")
    return topic, int(index)


async def _plan(client: StreamClient, name: str, aim: Aim, topics: list[tuple[str, int | None]]) -> list[Move]:
    await _check_idle(client, name, may_be_new=bool(topics))
    committed = await client.groups.offsets(name)
    ats = await _chosen(client, topics) if topics else list(committed)
    if not ats:
        return []
    starts, ends = await client.start_offsets(ats), await client.end_offsets(ats)
    wanted = await _wanted(client, aim, ats, committed, starts, ends)
    return [Move(at, committed.get(at), min(max(wanted[at], starts[at]), ends[at]), wanted[at]) for at in sorted(ats)]


async def _check_idle(client: StreamClient, name: str, *, may_be_new: bool) -> None:
    try:
        group = await client.groups.describe(name)
    except UnknownGroupError:
        # With topics named, a group may be told where to begin before its first consumer comes.
        if may_be_new:
            return
        raise
    if group.kind == SHARE:
        raise UnsupportedError(f"{name} is a share group, whose messages are done one by one: it has no offsets to set")
    if group.members:
        count = len(group.members)
        raise GroupNotEmptyError(
            f"group {name} has {count} member{'s' * (count != 1)} ({group.state}), which would not notice; stop its "
            "consumers first"
        )


async def _chosen(client: StreamClient, topics: list[tuple[str, int | None]]) -> list[TopicPartition]:
    chosen: set[TopicPartition] = set()
    for topic, index in topics:
        ats = await client.partitions(topic)
        if index is not None:
            at = TopicPartition(topic, index)
            if at not in ats:
                raise InvalidPartitionsError(f"{topic} has {len(ats)} partitions, numbered from 0; there is no {index}")
            ats = [at]
        chosen.update(ats)
    return sorted(chosen)


async def _wanted(
    client: StreamClient,
    aim: Aim,
    ats: list[TopicPartition],
    committed: dict[TopicPartition, int],
    starts: dict[TopicPartition, int],
    ends: dict[TopicPartition, int],
) -> dict[TopicPartition, int]:
    if aim.earliest:
        return starts
    if aim.latest:
        return ends
    if aim.offset is not None:
        return dict.fromkeys(ats, aim.offset)
    if aim.time_ms is not None:
        found = await client.offsets_for_time(ats, aim.time_ms)
        return {at: ends[at] if located is None else located.offset for at, located in found.items()}
    assert aim.by is not None
    # From where it would begin, where nothing is committed: Kafka's consumers begin at the end unless told otherwise.
    return {at: committed.get(at, ends[at]) + aim.by for at in ats}
