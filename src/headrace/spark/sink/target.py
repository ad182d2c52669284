"""What must be known of a topic before rows can be made messages of it."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import NamedTuple

from headrace.client.errors import UnreachableError
from headrace.client.queue.client import AsyncClient
from headrace.client.settings import DEFAULT_HTTP
from headrace.client.stream import StreamClient
from headrace.model.errors import HeadraceError, UnknownTopicError
from headrace.spark.errors import OptionError
from headrace.spark.link import no_answer
from headrace.spark.sink.option import SinkOptions


class Shape(NamedTuple):
    partition_count: int
    message_bytes_max: int  # of a whole batch


@asynccontextmanager
async def connected(options: SinkOptions, *, waits: bool) -> AsyncIterator[StreamClient]:
    """A client of the servers. Who has reached them before `waits` for a node that is away, as long as one may be."""
    client = StreamClient(options.servers, config=options.client)
    try:
        try:
            await client.connect(waits=waits)
        except UnreachableError:
            raise no_answer(options.servers) from None
        yield client
    finally:
        await client.close()


def check_reachable(options: SinkOptions, *, waits: bool) -> None:
    """For rows that say their topics themselves: until tasks look at them, there is nothing else to ask about."""

    async def reach() -> None:
        async with connected(options, waits=waits):
            pass

    asyncio.run(reach())


def find_shape(options: SinkOptions, topic: str, *, waits: bool = False) -> Shape:
    """Ask a node. A topic that is not there is made where the node's configuration allows it, a queue in any case."""
    return asyncio.run(_find_shape(options, topic, waits=waits))


async def _find_shape(options: SinkOptions, topic: str, *, waits: bool) -> Shape:
    async with connected(options, waits=waits) as client:
        try:
            return await _ask(client, topic, options)
        except UnknownTopicError:
            if not options.is_queue:
                raise
        await _make_queue(options.http or DEFAULT_HTTP, topic)
        return await _ask(client, topic, options)


async def _ask(client: StreamClient, topic: str, options: SinkOptions) -> Shape:
    info = await client.admin.describe_topic(topic)
    asked = ("max.message.bytes", "headrace.queue")
    config = {entry.name: entry.value for entry in await client.admin.describe_config(topic, asked)}
    if options.is_queue and config.get("headrace.queue") == "false":
        raise OptionError(
            f"{topic} is a topic and not a queue; write to it by the option topic, or convert it with "
            f"`headrace queue create {topic}`"
        )
    return Shape(len(info.partitions), int(config["max.message.bytes"] or 0))


# Kafka's protocol makes topics and no queues: for those HTTP is spoken.


async def _make_queue(http: str, name: str) -> None:
    try:
        async with AsyncClient(http) as client:
            await client.queue(name).create()
    except HeadraceError as error:
        raise OptionError(
            f"there is no queue {name}, and it could not be made at {http}: {error}; "
            "create it, or say by the option http where a node listens for HTTP"
        ) from error
