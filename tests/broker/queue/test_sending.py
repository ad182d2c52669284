"""What counts as sent before, in requests that are repeated and in queues that are full."""

from typing import Any

from tests.broker.node import Node, run
from tests.broker.queue.world import NAME, QueueWorld

from headrace.model.errors import BatchTooLargeError, HeadraceError, InvalidRequestError
from headrace.model.message import Message, Sent
from headrace.model.queue import QueueConfig
from headrace.testing.clock import settle


def messages_of(*bodies: bytes) -> list[Message]:
    return [Message(body) for body in bodies]


def marks(outcomes: list[Sent | HeadraceError]) -> list[str]:
    """Each outcome in a word."""
    return [outcome.code if isinstance(outcome, HeadraceError) else _mark(outcome) for outcome in outcomes]


def _mark(sent: Sent) -> str:
    return "known" if sent.is_duplicate else "new"


def places(outcomes: list[Any]) -> list[tuple[int, int]]:
    return [(sent.partition, sent.offset) for sent in outcomes]


async def acknowledge_all(world: QueueWorld) -> list[bytes]:
    received = await world.receive(100)
    await world.acknowledge(*received)
    return [message.body for message in received]


# A request of which some was refused.


def test_what_a_full_queue_refused_of_a_request_is_stored_when_the_request_is_repeated() -> None:
    async def main() -> None:
        world = await QueueWorld(Node()).start(messages_max=2)
        await world.send(b"before")
        request = messages_of(b"n", b"o", b"p")
        first = await world.queues.send(NAME, request, request_id="r")
        assert marks(first) == ["new", "queue_full", "queue_full"]
        assert marks(await world.queues.send(NAME, request, request_id="r")) == ["known", "queue_full", "queue_full"]
        assert await acknowledge_all(world) == [b"before", b"n"]
        await world.node.restart()
        again = await world.queues.send(NAME, request, request_id="r")
        assert marks(again) == ["known", "new", "new"]
        assert again[0].offset == first[0].offset
        last = await world.queues.send(NAME, request, request_id="r")
        assert (marks(last), places(last)) == (["known"] * 3, places(again))
        assert await acknowledge_all(world) == [b"o", b"p"]

    run(main())


def test_what_was_stored_in_part_is_known_when_the_queue_has_no_limit_any_more() -> None:
    async def main() -> None:
        world = await QueueWorld(Node()).start(messages_max=1)
        request = messages_of(b"n", b"o")
        assert marks(await world.queues.send(NAME, request, request_id="r")) == ["new", "queue_full"]
        await world.queues.update(NAME, QueueConfig())
        assert marks(await world.queues.send(NAME, request, request_id="r")) == ["known", "new"]
        assert await acknowledge_all(world) == [b"n", b"o"]

    run(main())


def test_messages_that_are_refused_for_what_they_are_do_not_hide_the_others() -> None:
    async def main() -> None:
        world = await QueueWorld(Node()).start()
        request = [Message(b"a"), Message(b"x", priority=10), Message(b"x" * 2_000_000), Message(b"b")]
        first = await world.queues.send(NAME, request, request_id="r")
        again = await world.queues.send(NAME, request, request_id="r")
        for outcomes, mark in ((first, "new"), (again, "known")):
            assert [_mark(outcomes[at]) for at in (0, 3)] == [mark, mark]
            assert isinstance(outcomes[1], InvalidRequestError)
            assert isinstance(outcomes[2], BatchTooLargeError)
        assert [first[at].offset for at in (0, 3)] == [again[at].offset for at in (0, 3)]
        assert await acknowledge_all(world) == [b"a", b"b"]

    run(main())


def test_another_number_of_messages_is_another_request() -> None:
    async def main() -> None:
        world = await QueueWorld(Node()).start()
        await world.queues.send(NAME, messages_of(b"1"), request_id="r")
        assert marks(await world.queues.send(NAME, messages_of(b"1", b"2"), request_id="r")) == ["new", "new"]
        other = [Message(b"1"), Message(b"x", priority=10)]
        assert marks(await world.queues.send(NAME, other, request_id="r")) == ["new", "invalid_request"]
        assert await acknowledge_all(world) == [b"1", b"1", b"2", b"1"]

    run(main())


# A request of which some messages have ids of their own.


def test_messages_without_ids_are_known_by_their_request_beside_those_that_have_one() -> None:
    async def main() -> None:
        for request in (
            [Message(b"id", deduplication_id="A"), Message(b"1"), Message(b"2")],
            [Message(b"1"), Message(b"2"), Message(b"id", deduplication_id="A")],
        ):
            world = await QueueWorld(Node()).start()
            first = world.queues.send(NAME, request, request_id="r")
            meanwhile = world.queues.send(NAME, request, request_id="r")
            assert marks(await first) == ["new"] * 3
            await world.node.restart()
            for again in (await meanwhile, await world.queues.send(NAME, request, request_id="r")):
                assert (marks(again), places(again)) == (["known"] * 3, places(await first))
            assert marks(await world.queues.send(NAME, request, request_id="s")).count("new") == 2
            assert len(await acknowledge_all(world)) == 5

    run(main())


def test_a_request_over_several_partitions_is_known_though_one_message_has_an_id() -> None:
    async def main() -> None:
        for keyed in (False, True):
            world = await QueueWorld(Node()).start(partitions=3)
            request = [
                Message(b"%d" % at, key=b"%d" % at if keyed else None, deduplication_id="A" if at == 1 else None)
                for at in range(6)
            ]
            first = await world.queues.send(NAME, request, request_id="r")
            again = await world.queues.send(NAME, request, request_id="r")
            assert (marks(again), places(again)) == (["known"] * 6, places(first))
            assert len(await acknowledge_all(world)) == 6

    run(main())


# Several partitions.


async def grow(world: QueueWorld, count: int) -> None:
    await world.node.broker.create_partitions(NAME, count)
    await settle()


def test_an_id_is_known_in_the_whole_queue_whatever_keys_its_copies_have() -> None:
    async def main() -> None:
        world = await QueueWorld(Node()).start(partitions=3)
        (first,) = await world.send(b"1", key=b"a", deduplication_id="x")
        for key in (None, b"b", b"g"):
            again = await world.queues.send_one(NAME, Message(b"2", key=key, deduplication_id="x"))
            assert again == Sent(first.id, first.partition, first.offset, True)
        both = await world.queues.send(
            NAME, [Message(b"3", key=b"b", deduplication_id="y"), Message(b"4", key=b"a", deduplication_id="y")]
        )
        assert (marks(both), len(set(places(both)))) == (["new", "known"], 1)
        assert sorted(await acknowledge_all(world)) == [b"1", b"3"]

    run(main())


def test_what_was_sent_before_partitions_were_added_is_known_when_it_is_sent_again() -> None:
    async def main() -> None:
        world = await QueueWorld(Node()).start(partitions=2)
        single = [Message(b"%d" % at, deduplication_id=f"id {at}") for at in range(8)]
        keyed = [Message(b"k%d" % at, key=b"%d" % at) for at in range(8)]
        first = await world.queues.send(NAME, single)
        first += await world.queues.send(NAME, keyed, request_id="r")
        await grow(world, 5)
        for _ in range(2):
            again = await world.queues.send(NAME, single) + await world.queues.send(NAME, keyed, request_id="r")
            assert (marks(again), places(again)) == (["known"] * 16, places(first))
            await world.node.restart()
        other = await world.queues.send(NAME, keyed, request_id="s")
        assert (marks(other), len({place[0] for place in places(other)}) > 2) == (["new"] * 8, True)

    run(main())


# A duplicate and a full queue.


def test_a_duplicate_gets_the_first_ones_answer_from_a_full_queue() -> None:
    async def main() -> None:
        world = await QueueWorld(Node()).start(messages_max=2)
        (first,) = await world.send(b"a", deduplication_id="x")
        request = messages_of(b"b")
        await world.queues.send(NAME, request, request_id="r")
        again = await world.queues.send_one(NAME, Message(b"a", deduplication_id="x"))
        assert again == Sent(first.id, 0, first.offset, True)
        assert marks(await world.queues.send(NAME, request, request_id="r")) == ["known"]
        mixed = [Message(b"a", deduplication_id="x"), Message(b"c", deduplication_id="z")]
        assert marks(await world.queues.send(NAME, mixed)) == ["known", "queue_full"]

    run(main())


def test_a_duplicate_of_what_is_on_its_way_in_gets_its_answer_from_a_full_queue() -> None:
    async def main() -> None:
        world = await QueueWorld(Node()).start(messages_max=1)
        sends = [world.queues.send_one(NAME, Message(b"a", deduplication_id="x")) for _ in range(2)]
        assert [(await send).is_duplicate for send in sends] == [False, True]

    run(main())


def test_a_duplicate_drops_nothing() -> None:
    async def main() -> None:
        world = await QueueWorld(Node()).start(messages_max=3, overflow="drop_oldest")
        await world.send(b"a", deduplication_id="x")
        request = messages_of(b"b", b"c")
        await world.queues.send(NAME, request, request_id="r")
        await world.send(b"a", deduplication_id="x")
        assert marks(await world.queues.send(NAME, request, request_id="r")) == ["known", "known"]
        assert world.counts().dropped == 0
        await world.send(b"d")
        assert world.counts().dropped == 1
        assert await acknowledge_all(world) == [b"b", b"c", b"d"]

    run(main())
