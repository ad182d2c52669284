"""`headrace topic`: create, list, describe, alter and delete topics."""

import asyncio
from typing import Annotated, Any

import typer

from headrace.cli.name import TopicArgument, TopicsArgument
from headrace.cli.output import App, Group, JsonOption, emit_json, emit_table, notice, people
from headrace.cli.session import (
    DEFAULT_SERVER,
    DEFAULT_TIMEOUT,
    ServerOption,
    TimeoutOption,
    parse_pairs,
    with_client,
)
from headrace.cli.sure import YesOption, make_sure
from headrace.client.stream import StreamClient
from headrace.client.values import ConfigEntry, TopicInfo, TopicPartition
from headrace.model.errors import TopicExistsError
from headrace.model.topic import INT32_MAX

app = App(cls=Group, no_args_is_help=True, help="Create, list, describe, alter and delete topics.")

INT16_MAX = 2**15 - 1  # how Kafka's requests carry the number of replicas

SetOption = Annotated[
    list[str] | None,
    typer.Option("--set", "-s", metavar="KEY=VALUE", help="A setting of the topic; may be given several times."),
]


@app.command()
def create(
    name: TopicArgument,
    *,
    partitions: Annotated[
        int | None,
        typer.Option(
            "--partitions", "-p", min=1, max=INT32_MAX, help="How many partitions. [dim]default: the node's[/]"
        ),
    ] = None,
    replication: Annotated[
        int | None,
        typer.Option("--replication", "-r", min=1, max=INT16_MAX, help="Copies of each. [dim]default: the node's[/]"),
    ] = None,
    settings: SetOption = None,
    if_missing: Annotated[bool, typer.Option("--if-missing", help="Be content if the topic exists already.")] = False,
    server: ServerOption = DEFAULT_SERVER,
    timeout: TimeoutOption = DEFAULT_TIMEOUT,
    as_json: JsonOption = False,
) -> None:
    """Create a topic.

    [bold]Examples[/]

    [cyan]headrace topic create orders --partitions 12[/]

    [cyan]headrace topic create clicks -s headrace.durability=memory -s retention.ms=3600000[/]
    """
    config = dict(parse_pairs(settings or []))

    async def work(client: StreamClient) -> tuple[TopicInfo, bool]:
        try:
            topic = await client.admin.create_topic(
                name, partition_count=partitions or -1, replication_factor=replication or -1, config=config
            )
        except TopicExistsError:
            if not if_missing:
                raise
            return await client.admin.describe_topic(name), False
        assert topic is not None
        return topic, True

    topic, created = with_client(server, timeout, work)
    count = len(topic.partitions)
    if as_json:
        emit_json({"name": topic.name, "id": str(topic.id), "partitions": count, "created": created})
    else:
        verb = "Created" if created else "There already is"
        people().print(f"{verb} [bold]{topic.name}[/] with {count} partition{'s' * (count != 1)}.")


@app.command("list")
def list_topics(
    *,
    internal: Annotated[bool, typer.Option("--internal", help="Also those that headrace keeps for itself.")] = False,
    server: ServerOption = DEFAULT_SERVER,
    timeout: TimeoutOption = DEFAULT_TIMEOUT,
    as_json: JsonOption = False,
) -> None:
    """List the topics.

    [bold]Example[/]

    [cyan]headrace topic list --json[/]
    """
    found = with_client(server, timeout, lambda client: client.admin.list_topics())
    topics = [topic for topic in found if internal or not topic.is_internal]
    if as_json:
        emit_json([_topic_json(topic) for topic in topics])
    elif topics:
        rows = [(t.name, len(t.partitions), _replication(t), str(t.id)) for t in topics]
        emit_table(("topic", "partitions", "replicas", "id"), rows)
    else:
        notice("There are no topics yet; make one with [cyan]headrace topic create NAME[/].")


@app.command()
def describe(
    name: TopicArgument,
    *,
    server: ServerOption = DEFAULT_SERVER,
    timeout: TimeoutOption = DEFAULT_TIMEOUT,
    as_json: JsonOption = False,
) -> None:
    """Show a topic's partitions with their offsets, and its settings.

    [bold]Example[/]

    [cyan]headrace topic describe orders[/]
    """

    async def work(client: StreamClient) -> tuple[TopicInfo, dict[int, int], dict[int, int], list[ConfigEntry]]:
        topic = await client.admin.describe_topic(name)
        ats = [TopicPartition(name, partition.partition) for partition in topic.partitions]
        starts, ends, config = await asyncio.gather(
            client.start_offsets(ats), client.end_offsets(ats), client.admin.describe_config(name)
        )
        return (
            topic,
            {at.partition: offset for at, offset in starts.items()},
            {at.partition: offset for at, offset in ends.items()},
            config,
        )

    topic, starts, ends, config = with_client(server, timeout, work)
    if as_json:
        emit_json(_description_json(topic, starts, ends, config))
        return
    people().print(f"[bold]{topic.name}[/]  id {topic.id}")
    emit_table(
        ("partition", "leader", "replicas", "in sync", "start offset", "end offset", "offsets held"),
        [
            (p.partition, p.leader, _nodes(p.replicas), _nodes(p.in_sync), start, end, end - start)
            for p in topic.partitions
            for start, end in [(starts[p.partition], ends[p.partition])]
        ],
    )
    emit_table(
        ("setting", "value", "", "meaning"),
        [(e.name, e.value, "" if e.is_default else "set on this topic", e.documentation or "") for e in config],
    )


@app.command()
def alter(
    name: TopicArgument,
    *,
    partitions: Annotated[
        int | None,
        typer.Option("--partitions", "-p", min=1, max=INT32_MAX, help="Raise the number of partitions to this."),
    ] = None,
    settings: SetOption = None,
    unset: Annotated[
        list[str] | None, typer.Option("--unset", "-u", metavar="KEY", help="Return a setting to its default.")
    ] = None,
    server: ServerOption = DEFAULT_SERVER,
    timeout: TimeoutOption = DEFAULT_TIMEOUT,
    as_json: JsonOption = False,
) -> None:
    """Change a topic's settings, or give it more partitions. What is not named stays as it is.

    [bold]Examples[/]

    [cyan]headrace topic alter orders --set retention.ms=86400000 --unset retention.bytes[/]

    [cyan]headrace topic alter orders --partitions 24[/]
    """
    changes, removals = dict(parse_pairs(settings or [])), unset or []
    if not (changes or removals or partitions):
        raise typer.BadParameter("nothing to change; give --set, --unset or --partitions")

    async def work(client: StreamClient) -> tuple[TopicInfo, list[ConfigEntry]]:
        if changes or removals:
            await client.admin.alter_config(name, settings=changes, removals=removals)
        if partitions is not None:
            await client.admin.create_partitions(name, partitions)
        return await client.admin.describe_topic(name), await client.admin.describe_config(name)

    topic, config = with_client(server, timeout, work)
    own = {entry.name: entry.value for entry in config if not entry.is_default}
    if as_json:
        emit_json({"name": topic.name, "partitions": len(topic.partitions), "settings": own})
    else:
        shown = ", ".join(f"{key}={value}" for key, value in own.items()) or "defaults only"
        people().print(f"[bold]{topic.name}[/] has {len(topic.partitions)} partitions; settings: {shown}.")


@app.command()
def delete(
    names: TopicsArgument,
    *,
    yes: YesOption = False,
    server: ServerOption = DEFAULT_SERVER,
    timeout: TimeoutOption = DEFAULT_TIMEOUT,
    as_json: JsonOption = False,
) -> None:
    """Delete topics with everything in them.

    [bold]Example[/]

    [cyan]headrace topic delete orders clicks --yes[/]
    """
    names = list(dict.fromkeys(names))
    make_sure(f"Delete {', '.join(names)} with every message in it?", yes=yes)
    with_client(server, timeout, lambda client: client.admin.delete_topics(names))
    if as_json:
        emit_json({"deleted": names})
    else:
        people().print(f"Deleted {', '.join(names)}.")


def _nodes(ids: tuple[int, ...]) -> str:
    return ", ".join(map(str, ids)) or "-"


def _replication(topic: TopicInfo) -> int:
    return max((len(partition.replicas) for partition in topic.partitions), default=0)


def _topic_json(topic: TopicInfo) -> dict[str, Any]:
    return {
        "name": topic.name,
        "id": str(topic.id),
        "partitions": len(topic.partitions),
        "replicas": _replication(topic),
        "internal": topic.is_internal,
    }


def _description_json(
    topic: TopicInfo, starts: dict[int, int], ends: dict[int, int], config: list[ConfigEntry]
) -> dict[str, Any]:
    return {
        "name": topic.name,
        "id": str(topic.id),
        "partitions": [
            {
                **partition._asdict(),
                "start_offset": starts[partition.partition],
                "end_offset": ends[partition.partition],
            }
            for partition in topic.partitions
        ],
        "settings": [entry._asdict() for entry in config],
    }
