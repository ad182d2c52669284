"""The queue client against a real node, and with connections that break on the way to it."""

import asyncio
from collections import Counter
from contextlib import suppress

import pytest
from tests.cli.running import RunningNode
from tests.client.asking import run
from tests.support.proxy import Cut, breaking_proxy

import headrace
from headrace.client.queue.client import AsyncClient
from headrace.client.queue.description import RedriveFilter
from headrace.client.queue.message import AsyncMessage
from headrace.client.queue.queue import AsyncQueue
from headrace.client.settings import QueueClientConfig
from headrace.client.worker.runner import Stop
from headrace.model.address import parse_address
from headrace.model.errors import (
    InvalidRequestError,
    QueueExistsError,
    StaleReceiptError,
    UnknownMessageError,
    UnknownQueueError,
)
from headrace.model.message import Sent

PERSISTENT = QueueClientConfig(retry_pause_ms=1, retry_pause_ms_max=20)


async def until_acknowledged(queue: AsyncQueue, count: int) -> None:
    async with asyncio.timeout(30):
        while (await queue.describe()).counts.acknowledged < count:  # noqa: ASYNC110 - another process counts
            await asyncio.sleep(0.02)


async def first_of(queue: AsyncQueue) -> headrace.AsyncMessage:
    """The first message of a queue that is made when something is moved there."""
    async with asyncio.timeout(30):
        while True:
            with suppress(UnknownQueueError):
                if found := await queue.receive(max=1, wait=5):
                    return found[0]
            await asyncio.sleep(0.02)


def test_what_is_sent_is_received_with_everything_that_was_said_about_it(node: RunningNode, name: str) -> None:
    async def work(client: AsyncClient) -> None:
        queue = client.queue(name)
        headers: dict[str, str | bytes] = {"shop": "north", "raw": b"\xfe"}
        sent = await queue.send(b"\xff\x00", key="alice", priority=9, ttl=90, headers=headers, deduplication_id="7")
        assert (await queue.send(b"other", deduplication_id="7")) == sent._replace(is_duplicate=True)
        (message,) = await queue.receive(wait=5, lease=12.5)
        assert (message.id, message.body, message.key, message.priority) == (sent.id, b"\xff\x00", b"alice", 9)
        assert message.headers == (("shop", b"north"), ("raw", b"\xfe"))
        assert (message.deduplication_id, message.attempt, message.lease) == ("7", 1, 12.5)
        assert (message.partition, message.offset) == (sent.partition, sent.offset)
        assert message.first_received_ms >= message.sent_ms > 0
        await message.extend(60)
        await message.ack()
        await message.ack()  # as after a lost answer: it is done, and that is what was asked for
        with pytest.raises(StaleReceiptError):
            await message.release()
        await queue.send({"tea": [1, None]})
        async with (await queue.receive(wait=5))[0] as again:
            assert again.json() == {"tea": [1, None]}

    run(node, work)


def test_priorities_delays_and_releases(node: RunningNode, name: str) -> None:
    async def work(client: AsyncClient) -> None:
        queue = client.queue(name)
        await queue.send("later", delay=3600)
        await queue.send("low", priority=0)
        await queue.send("high", priority=9)
        high, low = await queue.receive(max=10, wait=5)
        assert (high.text, low.text) == ("high", "low")
        await high.release(0)
        await low.reject("no such tea")
        (again,) = await queue.receive(max=10, wait=5)
        assert (again.text, again.attempt) == ("high", 2)
        counts = (await queue.describe()).counts
        assert (counts.delayed, counts.leased) == (1, 1)
        dead = client.queue(f"{name}-dead")
        letter = await first_of(dead)
        assert letter.text == "low"
        await letter.release(0)
        page = await queue.browse(state="delayed")
        assert [(m.body, m.state) for m in page.messages] == [(b"later", "delayed")]
        assert page.next is None
        assert (await queue.explain(id=page.messages[0].id)).state == "delayed"
        with pytest.raises(UnknownMessageError):
            await queue.explain(id="0-999999")
        await again.ack()
        redrive = await dead.redrive(filter=RedriveFilter(reason="tea"), rate=100)
        (back,) = await queue.receive(wait=5)
        assert back.text == "low"
        assert redrive.id in [r.id for r in await dead.redrives()]
        assert await queue.purge() >= 1

    run(node, work)


def test_a_message_that_always_fails_takes_nobody_behind_it_to_the_dead_letters(node: RunningNode, name: str) -> None:
    handled: list[tuple[str, int]] = []

    @headrace.worker(name)
    async def handle(message: headrace.AsyncMessage) -> None:
        handled.append((message.text, message.attempt))
        if message.text == "poison":
            raise headrace.Retry(0)

    async def work(client: AsyncClient) -> None:
        queue = client.queue(name)
        await queue.create(ordered=True, max_deliveries=3)
        texts = ["poison", "b", "c", "d"]
        await queue.send_many([headrace.OutgoingMessage(body=text, key="k") for text in texts])
        stop = Stop()
        serving = asyncio.create_task(handle.serve(client, stop))
        await until_acknowledged(queue, 3)
        stop.ask()
        await serving

    run(node, work)
    assert handled == [("poison", 1), ("poison", 2), ("poison", 3), ("b", 1), ("c", 1), ("d", 1)]


def test_what_a_worker_gives_back_unbegun_costs_no_attempt(node: RunningNode, name: str) -> None:
    async def work(client: AsyncClient) -> None:
        queue = client.queue(name)
        await queue.create(max_deliveries=2)
        await queue.send("tea")
        for _ in range(5):
            await queue.release_all(await queue.receive(wait=5))
        (message,) = await queue.receive(wait=5)
        assert message.attempt == 1
        await message.ack()

    run(node, work)


def test_a_moved_message_is_known_by_where_it_lies_and_keeps_its_first_id(node: RunningNode, name: str) -> None:
    async def work(client: AsyncClient) -> None:
        dead, sources = client.queue(f"{name}-dead"), [client.queue(f"{name}-{one}") for one in "ab"]
        await dead.create()
        first_ids = {}
        for source in sources:
            await source.create(dead_letter=dead.name)
            await source.send(source.name)
            (message,) = await source.receive(wait=5)
            assert message.first_id == message.id
            first_ids[source.name] = message.id
            await message.reject("no such tea")
        letters = [await first_of(dead) for _ in sources]
        assert len({letter.id for letter in letters}) == 2
        assert {letter.text: letter.first_id for letter in letters} == first_ids
        for letter in letters:
            assert letter.header("headrace-dead-source") == letter.body
            assert letter.header("headrace-dead-offset") == letter.first_id.encode()
            explained = await dead.explain(id=letter.id)
            assert (explained.offset, explained.state) == (letter.offset, "leased")
            await letter.release(0)
        shown = (await dead.browse()).messages
        assert [(one.id, one.body.decode()) for one in shown] == [(one.id, one.text) for one in letters]
        assert {one.body.decode(): one.first_id or one.id for one in shown} == first_ids
        await dead.redrive()
        for source in sources:
            (back,) = await source.receive(wait=20)
            assert back.first_id == first_ids[source.name] != back.id
            assert (await source.explain(id=back.id)).offset == back.offset

    run(node, work)


def test_queues_are_made_changed_and_listed(node: RunningNode, name: str) -> None:
    async def work(client: AsyncClient) -> None:
        queue = client.queue(name)
        made = await queue.create(partitions=3, lease=45, backoff={"first": 1, "last": 8}, ttl=None)
        assert (made.partitions, made.config["lease"], made.config["backoff"]) == (3, 45, {"first": 1, "last": 8})
        assert (
            await queue.create(partitions=3, lease=45, backoff={"first": 1, "last": 8})
        ).created_ms == made.created_ms
        with pytest.raises(QueueExistsError):
            await queue.create(lease=46)
        assert (await queue.update(max_deliveries=None)).config["max_deliveries"] is None
        assert (await queue.describe()).config["lease"] == 45
        assert name in await client.queues(name[:5])
        assert (await queue.move_reader("export", {0: 0, 2: 0})).positions == {0: 0, 1: 0, 2: 0}
        assert [reader.name for reader in await queue.readers()] == ["export"]
        await queue.remove_reader("export")
        assert await queue.readers() == []

    run(node, work)


# Bytes of the one connection's life before it breaks: within the first request's head, within its body, between
# requests, within an answer.
CUTS = [Cut(of_answers=False, after_bytes=n) for n in (1, 50, 700, 3_000, 20_000)] + [
    Cut(of_answers=True, after_bytes=n) for n in (1, 100, 900, 2_000)
]


@pytest.mark.parametrize("how", ["one by one", "together", "many"])
def test_connections_that_break_lose_nothing_and_double_nothing(node: RunningNode, name: str, how: str) -> None:
    async def main() -> None:
        async with (
            breaking_proxy(parse_address(node.ready["http"])) as proxy,
            AsyncClient([proxy.address], config=PERSISTENT) as client,
        ):
            queue = client.queue(name)
            await queue.send("before")
            for number, cut in enumerate(CUTS):
                proxy.cuts = [cut] * 3
                # Connections of the round before have no fault in them: they go.
                await client.close_connections()
                bodies = [f"{number}-{index}" for index in range(40)]
                if how == "many":
                    await queue.send_many(bodies)
                elif how == "together":
                    await asyncio.gather(*(queue.send(body) for body in bodies))
                else:
                    for body in bodies[:5]:
                        await queue.send(body)
            assert proxy.cut_count >= len(CUTS)
            proxy.cuts = []
            seen = Counter([message.text async for message in queue.messages(wait=0.2, until_empty=True, batch=100)])
            count = 5 if how == "one by one" else 40
            expected = {f"{number}-{index}" for number in range(len(CUTS)) for index in range(count)} | {"before"}
            assert seen == Counter(expected)

    asyncio.run(main())


def test_acknowledgements_over_breaking_connections_are_carried_out(node: RunningNode, name: str) -> None:
    async def main() -> None:
        async with (
            breaking_proxy(parse_address(node.ready["http"])) as proxy,
            AsyncClient([proxy.address], config=PERSISTENT) as client,
        ):
            queue = client.queue(name)
            await queue.send_many([str(number) for number in range(60)])
            for cut in (Cut(of_answers=False, after_bytes=300), Cut(of_answers=False, after_bytes=100)):
                messages = await queue.receive(max=20, wait=5)
                await client.close_connections()
                proxy.cuts = [cut]
                await queue.acknowledge_all(messages)
            messages = await queue.receive(max=20, wait=5)
            await client.close_connections()
            proxy.cuts = [Cut(of_answers=True, after_bytes=20)]
            await asyncio.gather(*(message.ack() for message in messages))
            assert (await queue.describe()).counts.acknowledged == 60

    asyncio.run(main())


def test_a_receive_that_is_abandoned_takes_no_message_with_it(node: RunningNode, name: str) -> None:
    async def work(client: AsyncClient) -> None:
        queue = client.queue(name)
        await queue.create()
        for _ in range(5):
            waiting = asyncio.create_task(queue.receive(wait=20))
            await asyncio.sleep(0.02)  # not for synchronisation: it may be cancelled anywhere on its way
            waiting.cancel()
            await asyncio.gather(waiting, return_exceptions=True)
        await queue.send("tea")
        (message,) = await queue.receive(wait=10)
        assert message.attempt == 1
        await message.ack()

    run(node, work)


def test_a_worker_handles_each_message_once_and_failures_again(node: RunningNode, name: str) -> None:
    seen: Counter[str] = Counter()

    @headrace.worker(name, concurrency=20, lease=5)
    async def handle(message: headrace.AsyncMessage) -> None:
        seen[message.text] += 1
        if message.text.endswith("7") and message.attempt == 1:
            raise headrace.Retry(0)

    async def work(client: AsyncClient) -> None:
        queue = client.queue(name)
        await queue.send_many([str(number) for number in range(300)])
        stop = Stop()
        serving = asyncio.create_task(handle.serve(client, stop))
        await until_acknowledged(queue, 300)
        stop.ask()
        assert await serving is True

    run(node, work)
    assert seen == Counter({str(n): 2 if n % 10 == 7 else 1 for n in range(300)})


def test_an_ordered_queue_is_worked_in_order_of_its_keys(node: RunningNode, name: str) -> None:
    seen: dict[bytes | None, list[int]] = {}

    @headrace.worker(name, concurrency=8)
    async def handle(message: headrace.AsyncMessage) -> None:
        if int(message.text) % 9 == 0 and message.attempt == 1:
            raise headrace.Retry(0)
        seen.setdefault(message.key, []).append(int(message.text))

    async def work(client: AsyncClient) -> None:
        queue = client.queue(name)
        await queue.create(ordered=True, partitions=2)
        for number in range(40):
            await queue.send(str(number), key=f"key-{number % 4}")
        stop = Stop()
        serving = asyncio.create_task(handle.serve(client, stop))
        await until_acknowledged(queue, 40)
        stop.ask()
        await serving

    run(node, work)
    assert sorted(number for numbers in seen.values() for number in numbers) == list(range(40))
    for numbers in seen.values():
        assert numbers == sorted(numbers)


def test_nothing_overtakes_a_message_that_its_handler_gave_back_itself(node: RunningNode, name: str) -> None:
    async def work(client: AsyncClient) -> None:
        queue = client.queue(name)
        await queue.create(ordered=True)
        await queue.send_many([headrace.OutgoingMessage(body=body, key="alice") for body in "123"])
        begun: list[str] = []
        stop = Stop()

        @headrace.worker(name, concurrency=4, prefetch=4)
        async def handle(message: headrace.AsyncMessage) -> None:
            begun.append(message.text)
            if message.text == "1" and message.attempt == 1:
                await message.release(0.2)
            if message.text == "3":
                stop.ask()

        await handle.serve(client, stop)
        assert begun == ["1", "1", "2", "3"]

    run(node, work)


def test_a_message_that_is_refused_does_not_take_those_along_that_left_with_it(node: RunningNode, name: str) -> None:
    async def work(client: AsyncClient) -> None:
        queue = client.queue(name)
        await queue.create()
        bodies = [str(number) for number in range(9)]
        sends = [queue.send(body, ttl=0 if body == "4" else None) for body in bodies]
        outcomes = await asyncio.gather(*sends, return_exceptions=True)
        assert [isinstance(outcome, Sent) for outcome in outcomes] == [body != "4" for body in bodies]
        assert isinstance(outcomes[4], InvalidRequestError)
        assert "ttl" in str(outcomes[4])

        with pytest.raises(headrace.PartlySentError) as raised:
            await queue.send_many([headrace.OutgoingMessage(body="bad", ttl=0), "9"])
        assert [isinstance(outcome, Sent) for outcome in raised.value.outcomes] == [False, True]

        messages = await queue.receive(max=20, wait=5)
        assert [message.text for message in messages] == ["0", "1", "2", "3", "5", "6", "7", "8", "9"]
        leases = [1_000_000_000 if message.text == "2" else 60 for message in messages]
        extended = await asyncio.gather(*map(AsyncMessage.extend, messages, leases), return_exceptions=True)
        assert [outcome is None for outcome in extended] == [message.text != "2" for message in messages]

    run(node, work)


def test_the_text_of_a_long_error_is_a_reason_to_reject_for(node: RunningNode, name: str) -> None:
    async def work(client: AsyncClient) -> None:
        queue = client.queue(name)
        await queue.send("tea")
        async with (await queue.receive(wait=5))[0]:
            raise headrace.Reject("cold " * 1_000)
        dead = await first_of(client.queue(f"{name}-dead"))
        reason = dead.header("headrace-dead-reason")
        assert reason is not None
        assert ("cold " * 1_000).encode().startswith(reason)
        assert len(reason) == 1_024

    run(node, work)
