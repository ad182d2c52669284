"""What must be known of a topic before rows can be made messages of it."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import NamedTuple

from headrace.client.errors import UnreachableError
from headrace.client.queue.client import AsyncClient
from headrace.client.settings import DEFAULT_HTTP
from headrace.client.stream import StreamClient
from headrace.model.errors import HeadraceError, UnknownQueueError, UnknownTopicError
from headrace.spark.errors import OptionError
from headrace.spark.link import no_answer
from headrace.spark.sink.option import SinkOptions


class Shape(NamedTuple):
    partition_count: int
    message_bytes_max: int  # of a whole batch


@asynccontextmanager
async def connected(options: SinkOptions) -> AsyncIterator[StreamClient]:
    client = StreamClient(options.servers, config=options.client)
    try:
        await client.connect()
    except UnreachableError:
        raise no_answer(options.servers) from None
    async with client:
        yield client


def find_shape(options: SinkOptions, topic: str) -> Shape:
    """Ask a node. A topic that is not there is made where the node's configuration allows it, a queue in any case."""
    return asyncio.run(_find_shape(options, topic))


async def _find_shape(options: SinkOptions, topic: str) -> Shape:
    async with connected(options) as client:
        try:
            shape = await _ask(client, topic)
        except UnknownTopicError:
            if not options.is_queue:
                raise
        else:
            if options.is_queue and options.http is not None:
                await _check_queue(options.http, topic)
            return shape
        await _make_queue(options.http or DEFAULT_HTTP, topic)
        return await _ask(client, topic)


async def _ask(client: StreamClient, topic: str) -> Shape:
    info = await client.admin.describe_topic(topic)
    config = {entry.name: entry.value for entry in await client.admin.describe_config(topic)}
    return Shape(len(info.partitions), int(config["max.message.bytes"] or 0))


# Kafka's protocol knows topics and not queues: for those HTTP is spoken.


async def _check_queue(http: str, name: str) -> None:
    try:
        async with AsyncClient(http) as client:
            await client.queue(name).describe()
    except UnknownQueueError:
        raise OptionError(
            f"{name} is a topic and not a queue; write to it by the option topic, or make it a queue first"
        ) from None
    except HeadraceError as error:
        raise OptionError(f"at {http}, the option http, nobody says whether {name} is a queue: {error}") from error


async def _make_queue(http: str, name: str) -> None:
    try:
        async with AsyncClient(http) as client:
            await client.queue(name).create()
    except HeadraceError as error:
        raise OptionError(
            f"there is no queue {name}, and it could not be made at {http}: {error}; "
            "create it, or say by the option http where a node listens for HTTP"
        ) from error
