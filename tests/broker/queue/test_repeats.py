"""One id is one message of a queue over several partitions, whichever door its copies come through."""

import asyncio
import random

import pytest
from tests.broker.node import Node, gathered, run
from tests.broker.queue.test_dead_letters import reborn
from tests.broker.queue.world import NAME, QueueWorld
from tests.broker.transaction.world import World

from headrace.model.errors import HeadraceError, PartitionOfflineError
from headrace.model.message import DEDUPLICATION_HEADER, Message, Sent
from headrace.model.queue import QueueConfig
from headrace.testing.clock import settle
from headrace.testing.disk import SimulatedDisk
from headrace.testing.threads import HeldThreads
from headrace.wire.kafka.records import Record, encode_batch

KEYS = (b"a", b"b", b"c")


def copy_of(world: QueueWorld, id: str, body: bytes) -> memoryview:
    headers = ((DEDUPLICATION_HEADER, id.encode()),)
    return memoryview(encode_batch([Record(world.node.clock.wall_ms(), None, body, headers)]))


async def write(world: QueueWorld, partition: int, id: str, body: bytes) -> None:
    """As a Kafka producer does, to a partition of its choice."""
    await gathered([world.node.broker.partition(NAME, partition).append(copy_of(world, id, body))])


def test_what_a_kafka_producer_writes_to_another_partition_again_is_withdrawn() -> None:
    async def main() -> None:
        world = await QueueWorld(Node()).start(partitions=3)
        for partition in (1, 0, 2, 1):
            await write(world, partition, "x", b"%d" % partition)
        await write(world, 0, "y", b"other")
        assert sorted(await world.bodies()) == [b"1", b"other"]
        assert (world.counts().sent, world.counts().withdrawn) == (4, 2)
        await world.node.restart()
        assert (world.counts().leased, world.counts().visible, world.counts().withdrawn) == (2, 0, 2)
        await write(world, 2, "x", b"2")
        assert await world.bodies() == []

    run(main())


@pytest.mark.parametrize("is_acknowledged", [False, True])
def test_a_copy_of_what_was_sent_through_another_door_is_withdrawn(is_acknowledged: bool) -> None:
    async def main() -> None:
        world = await QueueWorld(Node()).start(partitions=2)
        (sent,) = await world.send(b"sent", deduplication_id="x")
        if is_acknowledged:
            await world.acknowledge(*await world.receive())
        await write(world, 1 - sent.partition, "x", b"copy")
        assert await world.bodies() == ([] if is_acknowledged else [b"sent"])
        await write(world, 1, "y", b"copy")
        (known,) = await world.send(b"sent", deduplication_id="y", key=b"elsewhere")
        assert (known.partition, known.is_duplicate) == (1, True)

    run(main())


def test_a_copy_that_overtakes_a_send_on_its_way_is_withdrawn() -> None:
    async def main() -> None:
        world = await QueueWorld(Node()).start(partitions=2)
        partition = (await world.queues.live(NAME)).sending._route(Message(b"", deduplication_id="x")).index
        sending = world.queues.send(NAME, [Message(b"sent", deduplication_id="x")])
        written = world.node.broker.partition(NAME, 1 - partition).append(copy_of(world, "x", b"copy"))
        world.node.broker.partition(NAME, 1 - partition).write_now()
        await gathered([written])
        assert await world.bodies() == [b"sent"]
        assert not isinstance((await sending)[0], HeadraceError)

    run(main())


def test_a_copy_stays_if_what_it_repeats_is_not_stored_after_all() -> None:
    async def main() -> None:
        world = await QueueWorld(Node()).start(partitions=2)
        home = (await world.queues.live(NAME)).sending._route(Message(b"", deduplication_id="x")).index
        sending = world.queues.send(NAME, [Message(b"sent", deduplication_id="x")])
        other = world.node.broker.partition(NAME, 1 - home)
        written = other.append(copy_of(world, "x", b"copy"))
        other.write_now()
        world.node.broker.partition(NAME, home).take_offline(PartitionOfflineError("its disk failed"))
        await gathered([written])
        (refused,) = await sending
        assert isinstance(refused, HeadraceError)
        assert await world.bodies() == [b"copy"], "whoever wrote it was told that it is stored"

    run(main())


def test_a_copy_is_not_withdrawn_before_what_it_repeats_is_durable() -> None:
    """The first one is synced with its own file, being large."""

    async def main() -> None:
        threads = HeldThreads()
        starting = asyncio.ensure_future(QueueWorld(Node(sync_threads=threads)).start(partitions=2))
        while not starting.done():
            await settle()
            threads.release()
        world = await starting
        broker = world.node.broker
        first = broker.partition(NAME, 0).append(copy_of(world, "x", b"x" * 3000))
        await settle()
        second = broker.partition(NAME, 1).append(copy_of(world, "x", b"copy"))
        await settle()
        assert (world.counts().withdrawn, first.done(), second.done()) == (0, False, False)
        while not (first.done() and second.done()):
            threads.release()
            await settle()
        assert world.counts().withdrawn == 1
        assert len(await world.bodies()) == 1

    run(main())


def test_a_copy_that_comes_when_the_window_is_over_or_after_a_purge_is_a_message() -> None:
    async def main() -> None:
        world = await QueueWorld(Node()).start(partitions=2, deduplication_window_ms=60_000)
        await write(world, 0, "x", b"first")
        await world.node.clock.elapse(61_000)
        await write(world, 1, "x", b"late")
        assert sorted(await world.bodies()) == [b"first", b"late"]
        await world.queues.purge(NAME)
        await write(world, 0, "x", b"again")
        assert await world.bodies() == [b"again"]

    run(main())


def test_what_is_sent_in_transactions_with_other_keys_counts_once() -> None:
    async def main() -> None:
        world = await World().start()
        await world.queues.create(NAME, QueueConfig(), partition_count=4)
        for transaction_keys in (KEYS[:2], KEYS[2:]):
            begun = await world.transactions.begin()
            copies = [Message(key, key, deduplication_id="x") for key in transaction_keys]
            assert not any(
                isinstance(one, HeadraceError) for one in await world.transactions.send(begun.id, NAME, copies)
            )
            await world.transactions.commit(begun.id)
            await settle()
        assert len(await world.bodies(NAME, count=10)) == 1
        assert world.queues.describe(NAME).counts.withdrawn == 2

    run(main())


def test_a_transaction_that_aborts_takes_no_place() -> None:
    async def main() -> None:
        world = await World().start()
        await world.queues.create(NAME, QueueConfig(), partition_count=4)
        begun = await world.transactions.begin()
        await world.transactions.send(begun.id, NAME, [Message(b"in", KEYS[0], deduplication_id="x")])
        (sent,) = await world.queues.send(NAME, [Message(b"out", KEYS[1], deduplication_id="x")])
        assert isinstance(sent, Sent)
        assert not sent.is_duplicate
        await world.transactions.abort(begun.id)
        assert await world.bodies(NAME, count=10) == [b"out"]

    run(main())


def test_a_crash_between_a_copy_and_its_entry_leaves_one_message() -> None:
    """At every disk call of two producers' writes; of what was answered before a crash, one is left after it."""

    async def main() -> None:
        world = await QueueWorld(Node()).start(partitions=2, deduplication_window_ms=600_000)
        moments: list[tuple[SimulatedDisk, bool]] = []
        is_answered = False
        disk = world.node.disk
        disk.on_call = lambda *_: moments.append((disk.copy(), is_answered))
        await write(world, 1, "x", b"1")
        is_answered = True
        await write(world, 0, "x", b"0")
        await world.node.clock.elapse(1000)
        disk.on_call = None
        moments.append((disk.copy(), True))
        both = 0
        for at, (moment, was_answered) in enumerate(moments):
            heir = await reborn(world, moment, random.Random(at))
            both += heir.counts().sent == 2
            bodies = await heir.bodies()
            assert len(bodies) <= 1, f"after a crash at call {at}"
            assert bodies or not was_answered, f"after a crash at call {at}"
            heir.node.abandon()
        assert both > 1, "no crash was after the second copy and before its entry"

    run(main())


def test_a_topic_that_becomes_a_queue_has_each_id_once() -> None:
    async def main() -> None:
        node = await Node().start()
        await node.make(NAME, partitions=3)
        world = QueueWorld(node)
        for partition in (2, 0, 1):
            await write(world, partition, "x", b"%d" % partition)
        await node.queues.create(NAME, convert=True)
        assert len(await world.bodies()) == 1
        assert world.counts().withdrawn == 2

    run(main())
