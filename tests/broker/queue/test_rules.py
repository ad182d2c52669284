"""Rules of queues that stand apart from others: who is told what when it goes wrong, and what moved messages carry."""

import pytest
from tests.broker.node import Node, gathered, run
from tests.broker.queue.world import NAME, QueueWorld, bodies_of

from headrace.broker.queue.port import MessageState, Rejection
from headrace.model.batch import CRC_POSITION, CRC_START, HEADER_SIZE
from headrace.model.errors import InvalidRequestError, PartitionOfflineError
from headrace.model.message import ORIGIN_HEADER, Message, Received
from headrace.model.queue import Guarantee, QueueConfig
from headrace.testing.clock import settle
from headrace.testing.threads import HeldThreads
from headrace.wire.crc import crc32c
from headrace.wire.kafka.records import Record, encode_batch

DEAD = "orders-dead"


@pytest.mark.parametrize("guarantee", [Guarantee.EXACTLY_ONCE, Guarantee.AT_MOST_ONCE])
def test_a_receive_that_waits_for_a_commit_is_told_when_there_will_be_none(guarantee: Guarantee) -> None:
    async def main() -> None:
        world = await QueueWorld(Node()).start(guarantee=guarantee)
        await world.send(b"a")
        receive = world.queues.receive(NAME, count_max=10)
        world.node.broker.partition(NAME, 0).log.fail(OSError("the disk is gone"))
        await settle()
        assert receive.promise.done()
        assert isinstance(receive.promise.exception(), PartitionOfflineError)
        world.node.abandon()

    run(main())


async def send_nonsense(world: QueueWorld) -> None:
    """A producer's, under a checksum that is right."""
    nonsense = encode_batch([Record(world.node.clock.wall_ms(), None, b"unreadable" * 10)], codec=1)
    nonsense[HEADER_SIZE:] = bytes(len(nonsense) - HEADER_SIZE)
    nonsense[CRC_POSITION:CRC_START] = crc32c(memoryview(nonsense)[CRC_START:]).to_bytes(4, "big")
    await gathered([world.node.broker.partition(NAME, 0).append(memoryview(nonsense))])


def test_a_message_that_cannot_be_read_is_dropped_and_counted_and_its_neighbours_are_handed_out() -> None:
    async def main() -> None:
        world = await QueueWorld(Node()).start()
        await world.send(b"before")
        await send_nonsense(world)
        await world.send(b"after")
        assert await world.bodies() == [b"before", b"after"]
        assert (world.counts().leased, world.counts().expired, world.counts().sent) == (2, 1, 3)
        await world.node.restart()
        assert (world.counts().leased, world.counts().expired) == (2, 1)

    run(main())


@pytest.mark.parametrize("guarantee", list(Guarantee))
def test_who_waits_goes_on_waiting_when_what_comes_cannot_be_read(guarantee: Guarantee) -> None:
    async def main() -> None:
        world = await QueueWorld(Node()).start(guarantee=guarantee)
        waiting = [world.queues.receive(NAME, count_max=1, wait_ms=5_000) for _ in range(3)]
        await send_nonsense(world)
        await settle()
        assert not any(receive.promise.done() for receive in waiting)
        assert (world.counts().visible, world.counts().leased, world.counts().expired) == (0, 0, 1)
        await world.send(b"a", b"b")
        await settle()
        assert [bodies_of(receive.promise.result()) for receive in waiting[:2]] == [[b"a"], [b"b"]]
        await world.node.clock.elapse(4_900)
        assert not waiting[2].promise.done()
        await world.node.clock.elapse(200)
        assert waiting[2].promise.result() == []

    run(main())


def test_a_dead_letter_that_cannot_be_read_is_dropped_and_keeps_no_other_from_being_moved() -> None:
    async def main() -> None:
        world = await QueueWorld(Node()).start(ttl_ms=1000, dead_letter_expired=True)
        await send_nonsense(world)
        await world.send(b"a")
        await world.node.clock.elapse(2000)
        assert await world.bodies(queue=DEAD) == [b"a"]
        assert (world.counts().expired, world.counts().dead_lettered, world.counts().visible) == (1, 1, 0)

    run(main())


def test_a_message_is_handed_out_when_it_is_committed_and_no_sooner() -> None:
    async def main() -> None:
        world = await QueueWorld(Node()).start()
        held = world.node.logs.committer._threads = HeldThreads()
        sent = world.queues.send(NAME, [Message(b"a")])
        await settle()
        assert world.node.broker.partition(NAME, 0).end_offset == 1, "it is written, and not synced"
        assert await world.receive(1) == []
        waiting = world.queues.receive(NAME, count_max=1, wait_ms=1000)
        await settle()
        assert not waiting.promise.done()
        assert not sent.done()
        assert held.release() == 1
        assert bodies_of(await waiting.promise) == [b"a"]
        world.node.abandon()

    run(main())


def test_no_snapshot_is_taken_of_what_is_not_in_the_log() -> None:
    async def main() -> None:
        world = await QueueWorld(Node()).start()
        await world.send(b"a")
        await world.receive(1)
        partition = world.queues._live.find(NAME).partitions.at(0)
        assert partition.has_pending, "a lease is written behind its hand-out"
        assert partition.snapshot() is None
        await world.node.clock.elapse(1000)
        assert partition.snapshot() is not None

    run(main())


@pytest.mark.parametrize("positions", [{1: 0}, {-1: 0}, {0: 3}, {0: -1}])
def test_a_reader_is_refused_a_place_that_is_not_there(positions: dict[int, int]) -> None:
    async def main() -> None:
        world = await QueueWorld(Node()).start()
        await world.send(b"a", b"b")
        with pytest.raises(InvalidRequestError):
            await world.queues.move_reader(NAME, "mirror", positions)
        assert world.queues.readers(NAME) == []

    run(main())


def test_a_message_that_is_moved_twice_names_the_queue_that_it_was_first_sent_to() -> None:
    def origins(message: Received) -> list[bytes]:
        return [value for name, value in message.headers if name == ORIGIN_HEADER]

    async def main() -> None:
        world = await QueueWorld(Node()).start(max_deliveries=1)
        first = str(world.queues.find(NAME).id).encode()
        await world.queues.create(DEAD, QueueConfig(max_deliveries=1, dead_letter="grave"))
        # Somewhere else in each of the queues, so that an id that is drawn anew is another one.
        for queue, count in ((NAME, 1), (DEAD, 2)):
            await world.send(*[b"before"] * count, queue=queue)
            await world.acknowledge(*await world.receive(queue=queue), queue=queue)
        (sent,) = await world.send(b"a")
        for queue in (NAME, DEAD):
            (message,) = await world.receive(queue=queue)
            assert origins(message) == ([] if queue == NAME else [first])
            await world.queues.reject(queue, [Rejection(message.receipt, "no")])
            await world.node.clock.elapse(1000)
        (message,) = await world.receive(queue="grave")
        assert (message.body, message.id, origins(message)) == (b"a", sent.id, [first])

    run(main())


def test_pages_of_what_is_done_leave_out_nothing_between_them() -> None:
    async def main() -> None:
        world = await QueueWorld(Node()).start(history_ms=60_000)
        for number in range(24):  # a batch each, and nothing but messages between them
            await world.send(b"%02d" % number + bytes(900_000))
        await world.queues.purge(NAME)
        bodies: list[bytes] = []
        after = None
        while True:
            page = await world.queues.browse(NAME, state=MessageState.ACKNOWLEDGED, count_max=1000, after=after)
            bodies += [one.body[:2] for one in page.messages]
            after = page.next
            if after is None:
                break
        assert bodies == [b"%02d" % number for number in range(24)]

    run(main())
