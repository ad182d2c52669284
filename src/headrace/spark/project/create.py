"""Making a project: looking at the topics, and writing the files where there was nothing before."""

import asyncio
from collections.abc import Mapping, Sequence
from pathlib import Path

from headrace.client.stream import StreamClient
from headrace.client.values import TopicPartition
from headrace.model.names import check_topic_name
from headrace.spark.errors import OptionError
from headrace.spark.project.shape import Fields, shape_of_messages
from headrace.spark.project.template import project_files, table_names

# How many messages of each partition are looked at, counted from its end, and of how many partitions.
LOOK_COUNT = 100
LOOK_PARTITIONS_MAX = 8


def check_new_project(directory: Path, topics: Sequence[str]) -> None:
    """Refuse what cannot be made, before a node is asked anything."""
    if not topics:
        raise OptionError("--topics names none; give one or more, as --topics orders,payments")
    for topic in topics:
        check_topic_name(topic)
    if len(set(topics)) < len(topics):
        raise OptionError("--topics names a topic twice; name each once")
    table_names(topics)
    if directory.exists() and (not directory.is_dir() or any(directory.iterdir())):
        raise OptionError(f"{directory} is there already and is not overwritten; give a directory that is new or empty")


async def look_at_topics(client: StreamClient, topics: Sequence[str]) -> dict[str, Fields | None]:
    """The shape of each topic's latest messages; None where most are no JSON objects, or there are none."""
    found = await asyncio.gather(*(_look_at_topic(client, topic) for topic in topics))
    return dict(zip(topics, found, strict=True))


async def _look_at_topic(client: StreamClient, topic: str) -> Fields | None:
    ats = (await client.partitions(topic))[:LOOK_PARTITIONS_MAX]
    starts, ends = await asyncio.gather(client.start_offsets(ats), client.end_offsets(ats))
    places = {at: max(starts[at], ends[at] - LOOK_COUNT) for at in ats if ends[at] > starts[at]}
    return shape_of_messages(await _values(client, places)) if places else None


async def _values(client: StreamClient, places: Mapping[TopicPartition, int]) -> list[bytes | None]:
    fetched = await client.fetch(places, wait_ms=0)
    return [message.value for part in fetched for message in part.messages]


def write_project(directory: Path, servers: str, shapes: Mapping[str, Fields | None]) -> list[Path]:
    """Write the files, none over another; give their paths."""
    made = project_files(str(directory), directory.resolve().name, servers, shapes)
    paths = []
    for name, text in made.items():
        path = directory / name
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("x", encoding="utf-8") as file:
            file.write(text)
        paths.append(path)
    return paths
