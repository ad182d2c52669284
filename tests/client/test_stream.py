"""The client and a real node."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TypeVar

import pytest
from tests.cli.running import RunningNode, running_node

from headrace.client.partitioner import partition_for_key
from headrace.client.router import ClientConfig
from headrace.client.stream import StreamClient
from headrace.client.values import Message, Outgoing, TopicPartition
from headrace.model.errors import InvalidRequestError, OffsetOutOfRangeError, TopicExistsError, UnknownTopicError

T = TypeVar("T")


def run(node: RunningNode, work: Callable[[StreamClient], Awaitable[T]]) -> T:
    async def main() -> T:
        async with StreamClient(node.server, config=ClientConfig(deadline_ms=20_000, retry_pause_ms=10)) as client:
            return await work(client)

    return asyncio.run(main())


async def read_to_end(client: StreamClient, topic: str) -> list[Message]:
    ats = await client.partitions(topic)
    ends = await client.end_offsets(ats)
    positions = {at: start for at, start in (await client.start_offsets(ats)).items() if start < ends[at]}
    messages: list[Message] = []
    while positions:
        for fetched in await client.fetch(positions):
            messages += fetched.messages
            positions[fetched.at] = fetched.next_offset
            if fetched.next_offset >= ends[fetched.at]:
                del positions[fetched.at]
    return messages


def test_many_senders_at_once_store_each_message_once_and_in_order(node: RunningNode) -> None:
    async def work(client: StreamClient) -> None:
        await client.admin.create_topic("many", partition_count=4)

        async def send(sender: int) -> None:
            key = b"sender %d" % sender
            for start in range(0, 100, 10):
                await client.produce("many", [Outgoing(b"%d" % n, key=key) for n in range(start, start + 10)])

        await asyncio.gather(*(send(sender) for sender in range(8)))
        messages = await read_to_end(client, "many")
        for sender in range(8):
            key = b"sender %d" % sender
            own = [message for message in messages if message.key == key]
            assert [int(message.value or b"") for message in own] == list(range(100))
            assert {message.partition for message in own} == {partition_for_key(key, 4)}

    run(node, work)


def test_messages_larger_than_a_batch_go_out_in_several(node: RunningNode) -> None:
    async def work(client: StreamClient) -> None:
        await client.admin.create_topic("large")
        values = [bytes([65 + number]) * 200_000 for number in range(12)]
        produced = await client.produce("large", [Outgoing(value) for value in values], compression="lz4")
        assert len(produced) > 1
        assert [message.value for message in await read_to_end(client, "large")] == values

    run(node, work)


def test_a_reader_at_the_end_is_woken_by_a_sender(node: RunningNode) -> None:
    async def work(client: StreamClient) -> None:
        await client.admin.create_topic("woken")
        waiting = asyncio.ensure_future(client.fetch({TopicPartition("woken", 0): 0}, wait_ms=15_000))
        async with StreamClient(node.server) as other:
            await other.produce("woken", [Outgoing(b"good morning")])
        async with asyncio.timeout(10):
            (fetched,) = await waiting
        assert [message.value for message in fetched.messages] == [b"good morning"]
        assert fetched.high_watermark == 1

    run(node, work)


def test_an_empty_end_answers_after_the_wait_with_nothing(node: RunningNode) -> None:
    async def work(client: StreamClient) -> None:
        await client.admin.create_topic("empty")
        (fetched,) = await client.fetch({TopicPartition("empty", 0): 0}, wait_ms=20)
        assert (fetched.messages, fetched.next_offset, fetched.high_watermark) == ([], 0, 0)
        with pytest.raises(OffsetOutOfRangeError) as caught:
            await client.fetch({TopicPartition("empty", 0): 5})
        assert (caught.value.start, caught.value.end) == (0, 0)

    run(node, work)


@pytest.mark.parametrize("acks", [0, 1, -1])
def test_every_level_of_acknowledgement_stores(node: RunningNode, acks: int) -> None:
    async def work(client: StreamClient) -> None:
        topic = f"acks{acks}"
        await client.admin.create_topic(topic)
        await client.produce(topic, [Outgoing(b"tea")], acks=acks)
        (fetched,) = await client.fetch({TopicPartition(topic, 0): 0}, wait_ms=15_000)
        assert fetched.messages[0].value == b"tea"

    run(node, work)


def test_offsets_are_found_by_time(node: RunningNode) -> None:
    async def work(client: StreamClient) -> None:
        await client.admin.create_topic("timed", config={"retention.ms": "-1"})  # these times are long past
        at = TopicPartition("timed", 0)
        for number in range(5):
            await client.produce("timed", [Outgoing(b"%d" % number, timestamp_ms=1000 * number)])
        found = [await client.offsets_for_time([at], time_ms) for time_ms in (0, 1500, 4000, 4001)]
        assert [None if answer[at] is None else tuple(answer[at] or ()) for answer in found] == [
            (0, 0),
            (2, 2000),
            (4, 4000),
            None,
        ]
        with pytest.raises(InvalidRequestError):
            await client.offsets_for_time([at], -1)

    run(node, work)


def test_topics_are_only_made_on_first_use_by_a_client_that_may(node: RunningNode) -> None:
    async def main() -> None:
        async with StreamClient(node.server, config=ClientConfig(retry_pause_ms=1)) as client:
            with pytest.raises(UnknownTopicError):
                await client.produce("surprise", [Outgoing(b"tea")])
            config = ClientConfig(auto_create_topics=True)
            async with StreamClient(node.server, config=config) as other:
                await other.produce("surprise", [Outgoing(b"tea")])
            assert len(await read_to_end(client, "surprise")) == 1
            with pytest.raises(TopicExistsError):
                await client.admin.create_topic("surprise")

    asyncio.run(main())


def test_validation_makes_no_topic(node: RunningNode) -> None:
    async def work(client: StreamClient) -> None:
        assert await client.admin.create_topic("only-asked", partition_count=2, validate_only=True) is None
        assert "only-asked" not in {topic.name for topic in await client.admin.list_topics()}

    run(node, work)


def test_a_client_outlives_a_restart_of_its_node(tmp_path: Path) -> None:
    """A send and a read that meet a stopped node are retried until it is back, and nothing is stored twice."""
    data = tmp_path / "data"

    async def main() -> None:
        with running_node(data) as first:
            client = StreamClient(first.server, config=ClientConfig(deadline_ms=30_000, retry_pause_ms=10))
            await client.admin.create_topic("orders")
            await client.produce("orders", [Outgoing(b"before")])
            assert await asyncio.to_thread(first.stop) == 0
        sending = asyncio.ensure_future(client.produce("orders", [Outgoing(b"after")]))
        with running_node(data, "--kafka", first.server) as second:
            assert second.server == first.server
            await sending
            values = [message.value for message in await read_to_end(client, "orders")]
            assert values == [b"before", b"after"]
            await client.close()

    asyncio.run(main())
