"""What a queue refuses of what Kafka producers write: before it is appended, so that a refused batch is not stored."""

import asyncio

import pytest
from tests.broker.node import Node, batch, gathered, produced, run
from tests.broker.queue.world import NAME, QueueWorld
from tests.broker.transaction.world import World as TransactionWorld

from headrace.broker.partition import Partition
from headrace.broker.pending import Appended
from headrace.model.errors import BatchTooLargeError, OutOfOrderSequenceError, QueueFullError
from headrace.model.message import Message, Sent
from headrace.model.queue import Overflow, QueueConfig
from headrace.testing.clock import settle
from headrace.wire.kafka.stamp import stamp_transactional

GZIP, ZSTD = 1, 4
# Within what a topic takes, and more than a queue decompresses for it.
ZEROS = bytes(9 << 20)


def partition_of(world: QueueWorld, index: int = 0) -> Partition:
    partition: Partition = world.node.broker.partition(NAME, index)
    return partition


def test_a_full_queue_refuses_a_batch_before_it_is_stored_and_takes_it_once_there_is_room() -> None:
    async def main() -> None:
        world = await QueueWorld(Node()).start(messages_max=3)
        partition = partition_of(world)
        await gathered([partition.append(batch(b"1", b"2"))])
        end = partition.end_offset
        (refused,) = await gathered([partition.append(batch(b"3", b"4"))])
        assert isinstance(refused, QueueFullError)
        assert refused.retriable
        assert (partition.end_offset, world.counts().visible) == (end, 2)
        (taken,) = await gathered([partition.append(batch(b"3"))])
        assert isinstance(taken, Appended), "a smaller one fits"
        await world.acknowledge(*await world.receive(2))
        (again,) = await gathered([partition.append(batch(b"4", b"5"))])
        assert isinstance(again, Appended)
        assert await world.bodies() == [b"3", b"4", b"5"]
        await world.node.restart()
        assert world.counts().leased == 3

    run(main())


def test_a_batch_that_never_fits_is_refused_for_good() -> None:
    async def main() -> None:
        world = await QueueWorld(Node()).start(messages_max=3)
        (refused,) = await gathered([partition_of(world).append(batch(*[b"x"] * 10))])
        assert isinstance(refused, BatchTooLargeError)
        assert "10 messages never fits into queue orders, which holds at most 3" in str(refused)
        assert world.counts().visible == 0

    run(main())


def test_what_arrives_in_one_turn_is_counted_together_whoever_sends_it() -> None:
    async def main() -> None:
        world = await QueueWorld(Node()).start(messages_max=4)
        partition = partition_of(world)
        sent = world.queues.send(NAME, [Message(b"own"), Message(b"own")])
        outcomes = await gathered([partition.append(batch(b"1")) for _ in range(4)])
        assert [type(one) for one in outcomes] == [Appended, Appended, QueueFullError, QueueFullError]
        assert [type(one) for one in await sent] == [Sent, Sent]
        assert world.counts().visible == 4

    run(main())


def test_the_limit_is_over_all_partitions_for_kafka_producers_too() -> None:
    async def main() -> None:
        world = await QueueWorld(Node()).start(partitions=3, messages_max=4)
        outcomes = await gathered([partition_of(world, at % 3).append(batch(b"1", b"2")) for at in range(3)])
        assert sorted(type(one).__name__ for one in outcomes) == ["Appended", "Appended", "QueueFullError"]
        assert world.counts().visible == 4

    run(main())


def test_a_full_queue_answers_a_retry_of_what_it_has_and_keeps_a_producers_order() -> None:
    async def main() -> None:
        world = await QueueWorld(Node()).start(messages_max=2)
        partition = partition_of(world)
        first = produced(b"0", b"1", sequence=0)
        (stored,) = await gathered([partition.append(first)])
        end = partition.end_offset
        outcomes = await gathered(
            [
                partition.append(produced(b"0", b"1", sequence=0)),
                partition.append(produced(b"2", sequence=2)),
                partition.append(produced(b"3", sequence=3)),
            ]
        )
        assert outcomes[0] == stored, "what is stored is answered, though there is no room for it again"
        assert [type(one) for one in outcomes[1:]] == [QueueFullError, QueueFullError], "it is not called out of order"
        assert partition.end_offset == end
        await world.acknowledge(*await world.receive(1))
        outcomes = await gathered(
            [partition.append(produced(b"3", sequence=3)), partition.append(produced(b"2", sequence=2))]
        )
        assert [type(one) for one in outcomes] == [QueueFullError, Appended], "none passes an earlier one"
        (gap,) = await gathered([partition.append(produced(b"5", sequence=5))])
        assert isinstance(gap, OutOfOrderSequenceError)
        await world.acknowledge(*await world.receive(2))
        await gathered([partition.append(produced(b"3", sequence=3))])
        assert await world.bodies() == [b"3"]

    run(main())


def test_the_first_batches_of_a_producer_are_stored_in_their_order_by_a_full_queue() -> None:
    async def main() -> None:
        world = await QueueWorld(Node()).start(messages_max=3)
        partition = partition_of(world)
        await world.send(b"a", b"b")
        first, second = produced(b"0", b"1", sequence=0), produced(b"2", sequence=2)
        outcomes = await gathered([partition.append(first), partition.append(second)])
        assert [type(one) for one in outcomes] == [QueueFullError] * 2, "the second one fits, and is not the first"
        await world.acknowledge(*await world.receive(2))
        outcomes = await gathered([partition.append(second), partition.append(first), partition.append(second)])
        assert [type(one) for one in outcomes] == [QueueFullError, Appended, Appended]
        assert await world.bodies() == [b"0", b"1", b"2"]

    run(main())


def test_a_batch_whose_predecessor_was_given_up_is_out_of_order_after_a_while() -> None:
    async def main() -> None:
        world = await QueueWorld(Node()).start(messages_max=2)
        partition = partition_of(world)
        await gathered([partition.append(produced(b"0", b"1", sequence=0))])
        await gathered([partition.append(produced(b"2", sequence=2))])
        await world.acknowledge(*await world.receive(2))
        (refused,) = await gathered([partition.append(produced(b"3", sequence=3))])
        assert isinstance(refused, QueueFullError)
        await world.node.clock.elapse(31_000)
        (refused,) = await gathered([partition.append(produced(b"3", sequence=3))])
        assert isinstance(refused, OutOfOrderSequenceError)
        (taken,) = await gathered([partition.append(produced(b"2", epoch=1, sequence=0))])
        assert isinstance(taken, Appended), "a new epoch begins anew"

    run(main())


def test_a_record_set_of_several_batches_is_stored_whole_or_not_at_all() -> None:
    async def main() -> None:
        world = await QueueWorld(Node()).start(messages_max=3)
        partition = partition_of(world)
        both = memoryview(bytearray(bytes(batch(b"1", b"2")) + bytes(batch(b"3", b"4"))))
        (refused,) = await gathered([partition.append(both)])
        assert isinstance(refused, BatchTooLargeError)
        sequenced = bytes(produced(b"1", sequence=0)) + bytes(produced(b"2", b"3", sequence=1))
        await gathered([partition.append(batch(b"0"))])
        (refused,) = await gathered([partition.append(memoryview(bytearray(sequenced)))])
        assert isinstance(refused, QueueFullError)
        await world.acknowledge(*await world.receive(1))
        (stored,) = await gathered([partition.append(memoryview(bytearray(sequenced)))])
        assert isinstance(stored, Appended), "the producer's sequence is where it was"
        assert await world.bodies() == [b"1", b"2", b"3"]

    run(main())


def test_a_transaction_is_refused_where_there_is_no_room_and_goes_on_when_there_is() -> None:
    async def main() -> None:
        world = await TransactionWorld().start()
        await world.queues.create(NAME, QueueConfig(messages_max=2))
        producer = await world.begin()
        await world.coordinator.add(producer, partitions=[world.broker.partition(NAME, 0).id])
        await world.queues.send(NAME, [Message(b"0")])

        async def send(value: bytes, sequence: int) -> object:
            partition = world.broker.partition(NAME, 0)
            data = bytearray(produced(value, producer_id=producer.producer_id, epoch=producer.epoch, sequence=sequence))
            stamp_transactional(data, producer_id=producer.producer_id, epoch=producer.epoch, sequence=sequence)
            (outcome,) = await gathered([partition.append(memoryview(data), is_verified=True)])
            return type(outcome)

        assert await send(b"1", 0) is Appended
        assert await send(b"2", 1) is QueueFullError, "what is not decided takes room too"
        (message,) = await world.queues.receive(NAME, count_max=1).promise
        await world.queues.acknowledge(NAME, [message.receipt])
        assert await send(b"2", 1) is Appended
        await world.coordinator.end(producer, is_commit=True)
        await settle()
        assert await world.bodies(NAME) == [b"1", b"2"]

    run(main())


def test_a_transaction_over_http_goes_on_after_a_send_that_found_no_room() -> None:
    async def main() -> None:
        world = await TransactionWorld().start()
        await world.queues.create(NAME, QueueConfig(messages_max=2))
        begun = await world.transactions.begin()
        await world.transactions.send(begun.id, NAME, [Message(b"1")])
        sending = asyncio.ensure_future(world.transactions.send(begun.id, NAME, [Message(b"2")]))
        # A producer takes the room that was there when the send looked, before the send is written.
        (taken,) = await gathered([world.broker.partition(NAME, 0).append(batch(b"x"))])
        assert isinstance(taken, Appended)
        assert [type(one) for one in await sending] == [QueueFullError]
        (message,) = await world.queues.receive(NAME, count_max=1).promise
        await world.queues.acknowledge(NAME, [message.receipt])
        assert [type(one) for one in await world.transactions.send(begun.id, NAME, [Message(b"2")])] == [Sent]
        await world.transactions.commit(begun.id)
        assert await world.bodies(NAME) == [b"1", b"2"]

    run(main())


def test_a_full_queue_that_drops_its_oldest_takes_every_batch_whole() -> None:
    async def main() -> None:
        world = await QueueWorld(Node()).start(messages_max=3, overflow=Overflow.DROP_OLDEST)
        partition = partition_of(world)
        await gathered([partition.append(batch(b"1", b"2"))])
        await gathered([partition.append(batch(b"3", b"4"))])
        assert (world.counts().visible, world.counts().dropped) == (3, 1)
        await gathered([partition.append(batch(*[b"%d" % number for number in range(5, 10)]))])
        assert (world.counts().visible, world.counts().dropped) == (5, 4), "what is being sent is not dropped"
        await gathered([partition.append(batch(b"10"))])
        assert (world.counts().visible, world.counts().dropped) == (3, 7)
        await world.node.restart()
        assert (world.counts().visible, world.counts().dropped) == (3, 7), "in the log it is dropped after what came"
        assert await world.bodies() == [b"8", b"9", b"10"]

    run(main())


def test_a_full_queue_of_several_partitions_drops_its_oldest_for_a_batch_of_one_of_them() -> None:
    async def main() -> None:
        world = await QueueWorld(Node()).start(partitions=2, messages_max=3, overflow=Overflow.DROP_OLDEST)
        for at, body in enumerate((b"1", b"2", b"3", b"4")):
            await gathered([partition_of(world, at % 2).append(batch(body, timestamp_ms=1000 + at))])
        assert sorted(await world.bodies()) == [b"2", b"3", b"4"]

    run(main())


@pytest.mark.parametrize("codec", [GZIP, ZSTD])
@pytest.mark.parametrize("ordered", [False, True])
def test_a_batch_that_decompresses_to_too_much_is_refused_before_it_is_stored(codec: int, ordered: bool) -> None:
    async def main() -> None:
        world = await QueueWorld(Node()).start(ordered=ordered)
        partition = partition_of(world)
        await world.send(b"before")
        end = partition.end_offset
        outcomes = await gathered(
            [partition.append(batch(ZEROS, codec=ZSTD)), partition.append(batch(b"beside", codec=codec))]
        )
        assert [type(one) for one in outcomes] == [BatchTooLargeError, Appended]
        assert partition.end_offset == end + 1
        assert await world.bodies() == [b"before", b"beside"]
        await world.node.restart()
        assert world.counts().leased == 2

    run(main())


def test_a_topic_with_a_batch_that_decompresses_to_too_much_can_be_made_a_queue() -> None:
    async def main() -> None:
        world = QueueWorld(Node())
        await world.node.start()
        partition = await world.node.make(NAME)
        outcomes = await gathered([partition.append(batch(ZEROS, codec=ZSTD)), partition.append(batch(b"x"))])
        assert [type(one) for one in outcomes] == [Appended, Appended], "a stream hands it out as it is"
        await world.queues.create(NAME, QueueConfig(), convert=True)
        assert await world.bodies() == [b"x"]
        await world.node.restart()
        assert (world.counts().leased, world.counts().expired) == (1, 1)

    run(main())
