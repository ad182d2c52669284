"""Messages in memory: what is kept, and that what is not kept costs nothing."""

import pytest
from tests.broker.node import Node, run
from tests.broker.queue.world import NAME, QueueWorld

from headrace.broker.queue import loader
from headrace.broker.queue.cache import MessageCache
from headrace.model.message import Message
from headrace.wire.message import StoredMessage, decode_messages

SIZE = 100
OVERHEAD = 400


def read(*offsets: int) -> list[StoredMessage]:
    return [StoredMessage(offset, 0, None, bytes(SIZE)) for offset in offsets]


def test_a_message_that_nobody_asks_for_keeps_nothing_of_those_that_came_after_it() -> None:
    cache = MessageCache(bytes_max=1_000_000)
    view = cache.view()
    view.add_read(read(0))
    for offset in range(1, 20_000, 2):
        view.add_read(read(offset))
        view.add_sent(offset + 1, [Message(bytes(SIZE))], 0)
        view.drop((offset, offset + 1))
    assert view.get(0) is not None
    assert cache.size_bytes == SIZE + OVERHEAD
    assert cache.run_count < 200


def test_the_oldest_is_dropped_first_and_what_was_read_again_since_stays() -> None:
    cache = MessageCache(bytes_max=10 * (SIZE + OVERHEAD))
    view = cache.view()
    view.add_read(read(0, 1, 2))
    view.take(1)
    view.add_read(read(1))
    view.add_sent(10, [Message(bytes(SIZE))] * 8, 0)
    assert [offset for offset in (0, 1, 2) if view.get(offset)] == [1]
    assert cache.size_bytes == 9 * (SIZE + OVERHEAD)
    view.clear()
    assert cache.size_bytes == 0


def test_what_is_read_without_being_asked_for_fills_half_and_no_more() -> None:
    cache = MessageCache(bytes_max=20 * (SIZE + OVERHEAD))
    view = cache.view()
    view.add_read(read(*range(100)))
    assert cache.size_bytes == 10 * (SIZE + OVERHEAD)
    view.add_read(read(*range(100)))
    assert cache.size_bytes == 10 * (SIZE + OVERHEAD)


def test_what_somebody_has_leased_is_not_kept_when_another_one_comes_across_it() -> None:
    async def main() -> None:
        world = await QueueWorld(Node()).start()
        await world.send(*(b"%d" % number for number in range(30)))
        await world.node.restart()
        assert len(await world.receive(10)) == 10
        kept = world.queues.cache_size_bytes
        assert kept == sum(len(b"%d" % number) + OVERHEAD for number in range(10, 30))
        assert len(await world.receive(20)) == 20
        assert world.queues.cache_size_bytes == 0
        page = await world.queues.browse(NAME, count_max=1)
        assert [one.body for one in page.messages] == [b"0"]
        assert world.queues.cache_size_bytes == 0

    run(main())


def test_what_one_call_asks_for_is_taken_apart_once_though_it_is_leased(monkeypatch: pytest.MonkeyPatch) -> None:
    taken_apart: list[int] = []

    def counted(batch: memoryview) -> list[StoredMessage]:
        taken_apart.append(len(batch))
        return decode_messages(batch)

    monkeypatch.setattr(loader, "readable_messages", counted)

    async def main() -> None:
        world = await QueueWorld(Node()).start()
        await world.send(*(b"%d" % number for number in range(500)))
        await world.node.restart()
        taken_apart.clear()
        assert await world.bodies(500) == [b"%d" % number for number in range(500)]
        assert len(taken_apart) == 1
        page = await world.queues.browse(NAME, count_max=500)
        assert len(page.messages) == 500
        assert len(taken_apart) == 2
        assert world.queues.cache_size_bytes == 0

    run(main())
