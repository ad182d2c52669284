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
            shape = await _ask(client, topic)
        except UnknownTopicError:
            if not options.is_queue:
                raise
        else:
            if options.is_queue:
                await _check_queue(options.http, topic)
            return shape
        await _make_queue(options.http or DEFAULT_HTTP, topic)
        return await _ask(client, topic)


async def _ask(client: StreamClient, topic: str) -> Shape:
    info = await client.admin.describe_topic(topic)
    config = {entry.name: entry.value for entry in await client.admin.describe_config(topic)}
    return Shape(len(info.partitions), int(config["max.message.bytes"] or 0))


# Kafka's protocol knows topics and not queues: for those HTTP is spoken.


async def _check_queue(http: str | None, name: str) -> None:
    """Where no address is given and no node listens at the default one, the user's word is taken."""
    address = http or DEFAULT_HTTP
    try:
        async with AsyncClient(address) as client:
            await client.queue(name).describe()
    except UnknownQueueError:
        raise OptionError(
            f"{name} is a topic and not a queue; write to it by the option topic, or make it a queue first "
            f"(asked at {address}, the option http)"
        ) from None
    except HeadraceError as error:
        if http is None and isinstance(error, UnreachableError):
            return
        raise OptionError(f"at {address}, the option http, no node says whether {name} is a queue: {error}") from error


async def _make_queue(http: str, name: str) -> None:
    try:
        async with AsyncClient(http) as client:
            await client.queue(name).create()
    except HeadraceError as error:
        raise OptionError(
            f"there is no queue {name}, and it could not be made at {http}: {error}; "
            "create it, or say by the option http where a node listens for HTTP"
        ) from error
