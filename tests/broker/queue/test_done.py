"""Looking at messages that are done, and since when the others are where they are."""

import pytest
from tests.broker.node import Node, run
from tests.broker.queue.world import NAME, QueueWorld
from tests.broker.transaction.world import World as TransactionWorld

from headrace.broker.queue.port import BrowsePage, MessageState, Rejection
from headrace.model.errors import UnknownMessageError
from headrace.model.message import Message
from headrace.model.queue import QueueConfig
from headrace.testing.clock import settle

DONE = MessageState.ACKNOWLEDGED


async def pages(world: QueueWorld, count_max: int) -> list[BrowsePage]:
    """All pages of what is done."""
    found = [await world.queues.browse(NAME, state=DONE, count_max=count_max)]
    while found[-1].next is not None:
        found.append(await world.queues.browse(NAME, state=DONE, count_max=count_max, after=found[-1].next))
    return found


async def with_every_second_done(world: QueueWorld) -> list[bytes]:
    """The bodies of those that are done, in the order of their places."""
    await world.send(*(b"%d" % number for number in range(10)))
    taken = await world.receive()
    finished = [message for message in taken if int(message.body) % 2]
    assert await world.acknowledge(*finished) == [None] * 5
    return [message.body for message in sorted(finished, key=lambda one: (one.partition, one.offset))]


@pytest.mark.parametrize("partitions", [1, 3])
@pytest.mark.parametrize("count_max", [1, 2, 5, 100])
def test_what_is_done_is_shown_page_by_page_as_far_as_the_log_has_it(partitions: int, count_max: int) -> None:
    async def main() -> None:
        world = await QueueWorld(Node()).start(partitions=partitions, history_ms=60_000)
        bodies = await with_every_second_done(world)
        found = await pages(world, count_max)
        assert [one.body for page in found for one in page.messages] == bodies
        assert {(one.state, one.attempt) for page in found for one in page.messages} == {(DONE, None)}
        for page in found:
            assert len(page.messages) <= count_max
            for one in page.messages:
                assert (await world.queues.explain(NAME, id=one.id)).state is DONE

    run(main())


def test_a_page_reads_a_bounded_part_of_the_log_and_says_where_to_go_on() -> None:
    async def main() -> None:
        world = await QueueWorld(Node()).start(history_ms=60_000)
        for number in range(12):
            await world.send(b"%02d" % number + bytes(900_000))
            await world.acknowledge(*await world.receive())
        found = await pages(world, 1000)
        assert [len(page.messages) for page in found] == [10, 2]
        assert [one.body[:2] for page in found for one in page.messages] == [b"%02d" % number for number in range(12)]

    run(main())


def test_a_place_that_holds_an_entry_of_the_queue_is_no_message() -> None:
    async def main() -> None:
        world = await QueueWorld(Node()).start(history_ms=60_000)
        (first,) = await world.send(b"tea")
        (message,) = await world.receive()
        await world.acknowledge(message)
        (second,) = await world.send(b"coffee")
        assert second.offset > first.offset + 1, "the lease and the acknowledgement lie between them"
        for offset in range(first.offset + 1, second.offset):
            with pytest.raises(UnknownMessageError, match="cleaned away"):
                await world.queues.explain(NAME, id=f"0-{offset}")
        explained = await world.queues.explain(NAME, id=first.id)
        assert (explained.state, explained.attempt, explained.since_ms) == (DONE, None, world.node.clock.wall_ms())
        assert explained.text.startswith("the message was acknowledged at ")

    run(main())


def test_a_message_that_nobody_was_handed_is_where_it_is_since_it_was_sent_or_its_delay_was_over() -> None:
    async def main() -> None:
        world = await QueueWorld(Node()).start(ordered=True)
        places = [
            (await world.send(b"plain", key=b"k"))[0],
            (await world.send(b"blocked", key=b"k"))[0],
            (await world.send(b"delayed", delay_ms=500))[0],
        ]
        sent_ms = {one.offset: one.sent_ms for one in (await world.queues.browse(NAME)).messages}
        first_ms, second_ms, third_ms = (sent_ms[place.offset] for place in places)
        known = [await world.queues.explain(NAME, id=place.id) for place in places]
        assert [one.state.value for one in known] == ["visible", "blocked", "delayed"]
        assert [one.since_ms for one in known] == [first_ms, second_ms, third_ms]
        assert (await world.queues.explain(NAME, key=b"k")).since_ms == first_ms
        await world.node.clock.elapse(600)
        await settle()
        assert (await world.queues.explain(NAME, id=places[2].id)).since_ms == third_ms + 500

    run(main())


def test_what_became_of_a_message_is_told_as_far_as_the_log_says_so() -> None:
    async def main() -> None:
        world = await QueueWorld(Node()).start(history_ms=60_000, max_deliveries=5)
        await world.send(b"acknowledged")
        await world.acknowledge(*await world.receive())
        await world.send(b"rejected")
        (message,) = await world.receive()
        await world.queues.reject(NAME, [Rejection(message.receipt, "no such customer")])
        await world.send(b"expired", ttl_ms=10)
        await world.node.clock.elapse(1000)
        await world.send(b"purged")
        await world.queues.purge(NAME)
        page = await world.queues.browse(NAME, state=DONE, count_max=10)
        found = {one.body: await world.queues.explain(NAME, id=one.id) for one in page.messages}
        assert {body: explained.state for body, explained in found.items()} == {
            b"acknowledged": MessageState.ACKNOWLEDGED,
            b"rejected": MessageState.DEAD_LETTERED,
            b"expired": MessageState.EXPIRED,
            b"purged": MessageState.PURGED,
        }
        why = found[b"rejected"]
        assert "(no such customer); queue orders-dead has it" in why.text
        assert why.since_ms is not None
        (letter,) = (await world.queues.browse("orders-dead", count_max=1)).messages
        await world.queues.redrive("orders-dead")
        await world.node.clock.elapse(1000)
        known = await world.queues.explain("orders-dead", id=letter.id)
        assert known.state is MessageState.MOVED

    run(main())


def test_the_end_of_a_message_that_was_acknowledged_in_a_transaction_is_told() -> None:
    async def main() -> None:
        world = await TransactionWorld().start()
        await world.queues.create(NAME, QueueConfig(history_ms=60_000))
        for body, is_commit in ((b"1", False), (b"1", True)):
            if not is_commit:
                await world.queues.send(NAME, [Message(body)])
            (message,) = await world.queues.receive(NAME, count_max=1).promise
            begun = await world.transactions.begin()
            assert await world.transactions.acknowledge(begun.id, NAME, [message.receipt]) == [None]
            await (world.transactions.commit(begun.id) if is_commit else world.transactions.abort(begun.id))
        known = await world.queues.explain(NAME, id=message.place)
        assert (known.state, known.since_ms is not None) == (MessageState.ACKNOWLEDGED, True)

    run(main())
