"""Messages that are large together: one answer holds some of them, and the others are there for the next."""

import pytest
from tests.broker.node import Node, gathered, run
from tests.broker.queue.world import NAME, QueueWorld

from headrace.broker.queue import browse, live_queue
from headrace.model.message import Received
from headrace.model.queue import Guarantee
from headrace.testing.clock import settle
from headrace.testing.threads import HeldThreads
from headrace.wire.kafka.records import Record, encode_batch

COUNT = 120
BODY_BYTES = 50_000
# Of the messages that are read before it is looked at how large they are.
FIRST = 16


async def filled(*, partitions: int = 1, key_count: int = 0, **config: object) -> QueueWorld:
    """A queue whose messages have to be read, since the node has just begun."""
    world = await QueueWorld(Node()).start(partitions=partitions, **config)
    for number in range(COUNT):
        key = b"%d" % (number % key_count) if key_count else None
        await world.send(b"%d" % number + bytes(BODY_BYTES), key=key)
    await world.node.restart()
    return world


def numbers(messages: list[Received]) -> list[int]:
    return [int(message.body.rstrip(b"\0")) for message in messages]


@pytest.fixture(autouse=True)
def small_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live_queue, "RECEIVE_BYTES", 10 * BODY_BYTES)
    monkeypatch.setattr(browse, "PAGE_BYTES", 10 * BODY_BYTES)


@pytest.mark.parametrize("partitions", [1, 3])
@pytest.mark.parametrize("guarantee", [Guarantee.AT_LEAST_ONCE, Guarantee.EXACTLY_ONCE])
def test_a_receive_hands_out_what_one_answer_can_hold_and_the_next_goes_on(
    guarantee: Guarantee, partitions: int
) -> None:
    async def main() -> None:
        world = await filled(partitions=partitions, guarantee=guarantee)
        seen: list[Received] = []
        while messages := await world.receive(1_000):
            assert len(messages) <= FIRST
            assert world.counts().leased == len(seen) + len(messages)
            seen += messages
        assert sorted(numbers(seen)) == list(range(COUNT))
        assert {message.attempt for message in seen} == {1}
        assert await world.acknowledge(*seen) == [None] * COUNT

    run(main())


def test_an_answer_ends_near_its_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live_queue, "RECEIVE_BYTES", (FIRST + 5) * BODY_BYTES)
    monkeypatch.setattr(browse, "PAGE_BYTES", (FIRST + 5) * BODY_BYTES)

    async def main() -> None:
        world = await filled()
        assert len((await world.queues.browse(NAME, count_max=1_000)).messages) == FIRST + 5
        assert len(await world.receive(1_000)) == FIRST + 5

    run(main())


def test_what_is_left_for_the_next_receive_keeps_the_order_of_its_key() -> None:
    async def main() -> None:
        keys = 2 * FIRST
        world = await filled(ordered=True, key_count=keys)
        seen: list[int] = []
        while messages := await world.receive(1_000):
            assert len(messages) <= FIRST
            seen += numbers(messages)
            await world.acknowledge(*messages)
        assert sorted(seen) == list(range(COUNT))
        for key in range(keys):
            of_key = [number for number in seen if number % keys == key]
            assert of_key == sorted(of_key)

    run(main())


def test_what_is_left_goes_to_those_who_wait() -> None:
    async def main() -> None:
        world = await filled()
        waiting = [world.queues.receive(NAME, count_max=1_000, wait_ms=1_000) for _ in range(9)]
        handed = [number for receive in waiting[:8] for number in numbers(await receive.promise)]
        assert sorted(handed) == list(range(COUNT))
        await world.node.clock.elapse(1_000)
        assert waiting[8].promise.result() == []

    run(main())


@pytest.mark.parametrize("guarantee", list(Guarantee))
def test_those_who_wait_in_line_share_what_a_producer_writes_at_once(guarantee: Guarantee) -> None:
    async def main() -> None:
        world = await QueueWorld(Node()).start(guarantee=guarantee)
        waiting = [world.queues.receive(NAME, count_max=1_000, wait_ms=1_000) for _ in range(3)]
        await settle()
        records = [Record(world.node.clock.wall_ms(), None, b"%d" % number + bytes(24_000)) for number in range(45)]
        await gathered([world.node.broker.partition(NAME, 0).append(memoryview(encode_batch(records)))])
        await settle()
        assert waiting[0].promise.done()
        assert waiting[1].promise.done()
        await world.node.clock.elapse(1_000)
        shares = [numbers(receive.promise.result()) for receive in waiting]
        assert [number for share in shares for number in share] == list(range(45))
        assert shares[0]
        assert shares[1]

    run(main())


@pytest.mark.parametrize("partitions", [1, 3])
def test_what_one_answer_cannot_hold_is_not_taken_at_most_once(partitions: int) -> None:
    async def main() -> None:
        world = await filled(partitions=partitions, guarantee=Guarantee.AT_MOST_ONCE)
        seen: list[Received] = []
        while messages := await world.receive(1_000):
            assert len(messages) <= FIRST
            seen += messages
            assert (world.counts().acknowledged, world.counts().visible) == (len(seen), COUNT - len(seen))
        assert sorted(numbers(seen)) == list(range(COUNT))

    run(main())


def test_those_who_wait_while_somebody_reads_get_what_follows_at_most_once() -> None:
    async def main() -> None:
        world = await filled(guarantee=Guarantee.AT_MOST_ONCE)
        world.node.disk.all_cold = True
        together = [world.queues.receive(NAME, count_max=20, wait_ms=1_000) for _ in range(10)]
        handed = [numbers(await receive.promise) for receive in together[:8]]
        assert [number for some in handed for number in some] == list(range(COUNT))
        assert all(0 < len(some) <= FIRST for some in handed)
        await world.node.clock.elapse(1_000)
        assert [receive.promise.result() for receive in together[8:]] == [[], []]


def test_what_somebody_drops_while_it_is_read_is_handed_out_to_nobody_at_most_once() -> None:
    async def main() -> None:
        world = await filled(guarantee=Guarantee.AT_MOST_ONCE)
        world.node.logs._read_threads = held = HeldThreads()
        world.node.disk.all_cold = True
        receive = world.queues.receive(NAME, count_max=20, wait_ms=1_000)
        cancelled = world.queues.receive(NAME, count_max=20, wait_ms=1_000)
        await settle()
        cancelled.cancel()
        await world.queues.purge(NAME)
        await world.send(b"7")
        while held.release():
            await settle()
        assert numbers(receive.promise.result()) == [7]
        assert (world.counts().acknowledged, world.counts().purged) == (1, COUNT)
        assert not cancelled.promise.done()

    run(main())


def test_a_page_holds_what_one_answer_can_and_says_where_to_go_on() -> None:
    async def main() -> None:
        world = await filled(partitions=3)
        seen: list[str] = []
        after = None
        while True:
            page = await world.queues.browse(NAME, count_max=1_000, after=after)
            assert len(page.messages) <= FIRST
            seen += [message.id for message in page.messages]
            after = page.next
            if after is None:
                break
        assert len(seen) == len(set(seen)) == COUNT

    run(main())
