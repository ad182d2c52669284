"""Order by key begins in a queue that is empty: nobody has looked at the keys of what came before."""

import asyncio

import pytest
from tests.broker.node import Node, batch, gathered, run
from tests.broker.queue.world import NAME, QueueWorld

from headrace.model.errors import InvalidConfigError, InvalidPartitionsError
from headrace.model.queue import QueueConfig
from headrace.testing.clock import settle

ORDERED = QueueConfig(ordered=True)


async def check_in_order(world: QueueWorld, *bodies: bytes) -> None:
    """These are there, of one key: each is handed out when the one before it is done."""
    for body in bodies:
        (message,) = await world.receive(1)
        assert message.body == body
        assert await world.receive(1) == []
        await world.acknowledge(message)
    assert await world.receive() == []


@pytest.mark.parametrize("partitions", [1, 3])
@pytest.mark.parametrize("state", ["visible", "delayed", "leased"])
def test_a_queue_that_holds_a_message_is_not_made_ordered(state: str, partitions: int) -> None:
    async def main() -> None:
        world = await QueueWorld(Node()).start(partitions=partitions)
        await world.send(b"1", key=b"k", delay_ms=1000 if state == "delayed" else None)
        if state == "leased":
            await world.receive()
        with pytest.raises(InvalidConfigError, match=r"queue orders holds 1 messages.*purge them"):
            await world.queues.update(NAME, ORDERED)
        assert not world.queues.find(NAME).config.ordered
        await world.queues.purge(NAME)
        await world.queues.update(NAME, ORDERED)
        await world.send(b"2", b"3", key=b"k")
        await check_in_order(world, b"2", b"3")

    run(main())


def test_what_is_sent_while_a_queue_is_made_ordered_is_in_order() -> None:
    async def main() -> None:
        world = await QueueWorld(Node()).start()
        update = asyncio.ensure_future(world.queues.update(NAME, ORDERED))
        await asyncio.sleep(0)
        assert not update.done()
        sent: list[bytes] = []
        while not update.done():
            sent.append(b"%d" % len(sent))
            await world.send(sent[-1], key=b"k")
        sent.append(b"last")
        await world.send(sent[-1], key=b"k")
        assert len(sent) > 1
        await world.node.restart()
        await check_in_order(world, *sent)

    run(main())


def test_an_ordered_queue_that_holds_messages_can_be_changed() -> None:
    async def main() -> None:
        world = await QueueWorld(Node()).start(ordered=True)
        await world.send(b"1", b"2", key=b"k")
        await world.queues.update(NAME, QueueConfig(ordered=True, lease_ms=1000))
        await check_in_order(world, b"1", b"2")

    run(main())


def test_an_ordered_queue_gets_no_more_partitions_because_a_key_would_be_in_two() -> None:
    async def main() -> None:
        world = await QueueWorld(Node()).start(ordered=True)
        for is_trial in (True, False):
            with pytest.raises(InvalidPartitionsError, match="ordered to false first"):
                await world.node.broker.create_partitions(NAME, 3, validate_only=is_trial)
        assert world.queues.describe(NAME).partition_count == 1
        await world.queues.update(NAME, QueueConfig())
        await world.node.broker.create_partitions(NAME, 3)
        await settle()
        await world.queues.update(NAME, ORDERED)
        assert world.queues.describe(NAME).partition_count == 3

    run(main())


def test_a_topic_that_holds_records_is_not_made_an_ordered_queue() -> None:
    async def main() -> None:
        node = await Node().start()
        for name in ("empty", "full"):
            await node.make(name, partitions=2)
        await gathered([node.broker.partition("full", 1).append(batch(b"x"))])
        with pytest.raises(InvalidConfigError, match=r"topic full holds records.*leave out ordered"):
            await node.queues.create("full", ORDERED)
        assert node.queues.names() == []
        await node.queues.create("empty", ORDERED)
        await node.queues.create("full", convert=True)
        assert node.queues.names() == ["empty", "full"]

    run(main())
