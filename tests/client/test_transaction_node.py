"""Transactions of the client against a real node, and with connections that break on the way to it."""

import asyncio
from collections import Counter
from contextlib import suppress

import pytest
from tests.cli.running import RunningNode
from tests.client.asking import run
from tests.support.proxy import Cut, breaking_proxy

import headrace
from headrace.client.queue.client import AsyncClient
from headrace.client.queue.queue import AsyncQueue
from headrace.client.settings import QueueClientConfig
from headrace.client.stream import StreamClient
from headrace.model.address import parse_address
from headrace.model.errors import HeadraceError, StaleReceiptError, TransactionStateError

PERSISTENT = QueueClientConfig(retry_pause_ms=1, retry_pause_ms_max=20)


async def drain(queue: AsyncQueue) -> list[str]:
    found = []
    async for message in queue.messages(wait=0.3, until_empty=True, batch=100):
        found.append(message.text)
        await message.ack()
    return found


def test_a_step_from_queue_to_queue_is_all_or_nothing(node: RunningNode, name: str) -> None:
    async def work(client: AsyncClient) -> None:
        inbox, outbox = client.queue(name), client.queue(f"{name}-out")
        await inbox.send_many(["a", "b"])
        await outbox.create()
        first, second = await inbox.receive(wait=5)
        async with client.transaction() as tx:
            await tx.queue(outbox.name).send_many([b"%d" % number for number in range(250)])
            await tx.ack(first)
            assert await outbox.receive(wait=0) == []
        assert tx.is_committed
        tx = await client.transaction().begin()
        await tx.queue(outbox.name).send("never")
        await second.ack(tx)
        await tx.abort()
        assert sorted(await drain(outbox), key=int) == [str(number) for number in range(250)]
        (again,) = await inbox.receive(wait=5)
        assert (again.text, again.attempt) == ("b", 2)
        await again.ack()

    run(node, work)


def test_an_ordered_queue_keeps_its_order_through_transactions(node: RunningNode, name: str) -> None:
    async def work(client: AsyncClient) -> None:
        queue = client.queue(name)
        await queue.create(ordered=True, partitions=1)
        early = await client.transaction().begin()
        await early.queue(name).send("first", key="k")
        async with client.transaction() as late:
            await late.queue(name).send("second", key="k")
        await early.commit()
        assert [message.text for message in await queue.receive(wait=5)] == ["first", "second"]

    run(node, work)


def test_a_topic_is_sent_to_and_read_as_a_stream(node: RunningNode, name: str) -> None:
    async def work(client: AsyncClient) -> None:
        async with StreamClient(node.server) as stream:
            await stream.admin.create_topic(name, partition_count=1)
            async with client.transaction() as tx:
                sent = await tx.queue(name).send("one tea", key="alice")
            (at,) = await stream.partitions(name)
            (fetched,) = await stream.fetch({at: 0})
            assert [(m.offset, m.key, m.value) for m in fetched.messages] == [(sent.offset, b"alice", b"one tea")]

    run(node, work)


def test_a_message_has_one_transaction_at_a_time(node: RunningNode, name: str) -> None:
    async def work(client: AsyncClient) -> None:
        queue = client.queue(name)
        await queue.send("a")
        (message,) = await queue.receive(wait=5)
        async with client.transaction() as tx:
            await tx.ack(message)
            other = await client.transaction().begin()
            with pytest.raises(StaleReceiptError):
                await other.ack(message)
            await other.abort()
            with pytest.raises(HeadraceError):
                await message.release()
        assert (await queue.describe()).counts.acknowledged == 1

    run(node, work)


def test_a_block_that_takes_too_long_counts_for_nothing(node: RunningNode, name: str) -> None:
    async def work(client: AsyncClient) -> None:
        queue = client.queue(name)
        await queue.send("a")
        (message,) = await queue.receive(wait=5)
        tx = await client.transaction(timeout=2).begin()
        await tx.ack(message)
        (again,) = await queue.receive(wait=20)
        assert again.id == message.id
        with pytest.raises(TransactionStateError):
            await tx.commit()
        assert not tx.is_committed

    run(node, work)


def test_connections_that_break_leave_each_step_done_once(node: RunningNode, name: str) -> None:
    """Whatever a cut connection interrupts: begin, send, acknowledge, commit, or an answer to one of them."""

    async def main() -> None:
        inputs = [str(number) for number in range(40)]
        async with (
            breaking_proxy(parse_address(node.ready["http"])) as proxy,
            AsyncClient(node.ready["http"]) as healthy,
            AsyncClient([proxy.address], config=PERSISTENT) as client,
        ):
            await healthy.queue(name).send_many(inputs)
            await healthy.queue(f"{name}-out").create()
            cut_after = 200
            while (await healthy.queue(name).describe()).counts.acknowledged < len(inputs):
                await client.close_connections()
                proxy.cuts = [Cut(of_answers=cut_after % 2 == 0, after_bytes=cut_after)]
                cut_after = 200 + (cut_after + 171) % 2_000
                await step(client, healthy, name)
            assert proxy.cut_count > 5
            assert Counter(await drain(healthy.queue(f"{name}-out"))) == Counter(inputs)

    async def step(client: AsyncClient, healthy: AsyncClient, name: str) -> None:
        for message in await healthy.queue(name).receive(max=5, wait=1):
            try:
                async with client.transaction(timeout=2) as tx:
                    await tx.queue(f"{name}-out").send(message.text)
                    # The receipt is what counts, whoever received it.
                    await tx.acknowledge(message.queue_path, [message.receipt])
            except headrace.HeadraceError:
                # As a worker does; refused where the transaction still has it, which then ends by itself.
                with suppress(headrace.HeadraceError):
                    await message.release(0)

    asyncio.run(asyncio.wait_for(main(), 120))
