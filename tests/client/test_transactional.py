"""The stream client's transactional producer and a real node. Read back by librdkafka, which knows nothing of us."""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import pytest
from tests.cli.running import RunningNode
from tests.compat.clients.confluent import Confluent
from tests.support.node import NodeProcess, running
from tests.support.proxy import Cut, breaking_proxy

from headrace.client.router import ClientConfig
from headrace.client.stream import StreamClient
from headrace.client.transactional import TransactionalProducer
from headrace.client.values import TopicPartition
from headrace.model.address import Address, parse_address
from headrace.model.errors import (
    HeadraceError,
    InvalidTransactionTimeoutError,
    ProducerFencedError,
    TransactionStateError,
    UnknownTopicError,
)
from headrace.wire.kafka.records import Record, encode_batch

T = TypeVar("T")
PERSISTENT = ClientConfig(deadline_ms=20_000, retry_pause_ms=5)


def run(server: str, work: Callable[[StreamClient], Awaitable[T]]) -> T:
    async def main() -> T:
        async with StreamClient(server, config=PERSISTENT) as client:
            return await work(client)

    return asyncio.run(main())


def batch(*values: str) -> bytearray:
    return encode_batch([Record(1_000, None, value.encode()) for value in values])


def committed(server: str, topic: str, partition: int = 0) -> list[str]:
    found = Confluent().read(server, topic, partition=partition, committed=True)
    return [(message.value or b"").decode() for _, message in found]


async def publish(producer: TransactionalProducer, at: TopicPartition, *values: str) -> None:
    await producer.join([at])
    await producer.produce(at, batch(*values))


def test_batches_and_offsets_count_together_or_not_at_all(node: RunningNode, name: str) -> None:
    one, two = TopicPartition(name, 0), TopicPartition(name, 1)

    async def work(client: StreamClient) -> None:
        await client.admin.create_topic(name, partition_count=2)
        producer = client.transactional(name)
        await producer.begin()
        await producer.join([one, two])
        await asyncio.gather(
            producer.produce(one, batch("a", "b")), producer.produce(two, batch("c")), producer.produce(one, batch("d"))
        )
        await producer.commit_offsets(name, {one: 7})
        assert await client.groups.offsets(name) == {}
        await producer.commit()
        assert await client.groups.offsets(name, stable=True) == {one: 7}
        # The same instance goes on, and what it gives up leaves nothing behind.
        await publish(producer, one, "never")
        await producer.commit_offsets(name, {one: 8})
        await producer.abort()
        assert await client.groups.offsets(name, stable=True) == {one: 7}
        await publish(producer, one, "e")
        await producer.commit()

    run(node.server, work)
    assert committed(node.server, name) == ["a", "b", "d", "e"]
    assert committed(node.server, name, 1) == ["c"]


def test_a_second_instance_ends_what_the_first_left_open_and_fences_it(node: RunningNode, name: str) -> None:
    at = TopicPartition(name, 0)

    async def work(client: StreamClient) -> None:
        await client.admin.create_topic(name)
        first, second = client.transactional(name), client.transactional(name)
        await first.begin()
        await publish(first, at, "zombie")
        await first.commit_offsets(name, {at: 1})
        await second.begin()
        assert await client.groups.offsets(name, stable=True) == {}
        for late in (first.produce(at, batch("late")), first.join([at]), first.commit(), first.abort()):
            with pytest.raises(ProducerFencedError):
                await late
        await publish(second, at, "good")
        await second.commit()

    run(node.server, work)
    assert committed(node.server, name) == ["good"]


def test_mistakes_are_told_in_one_sentence(node: RunningNode, name: str) -> None:
    at = TopicPartition(name, 0)

    async def work(client: StreamClient) -> None:
        await client.admin.create_topic(name)
        producer = client.transactional(name)
        with pytest.raises(TransactionStateError, match="has not begun"):
            await producer.join([at])
        with pytest.raises(InvalidTransactionTimeoutError):
            await client.transactional(name, timeout_ms=10**9).begin()
        await producer.begin()
        with pytest.raises(UnknownTopicError, match=f"{name}-9"):
            await producer.join([at, TopicPartition(name, 9)])
        with pytest.raises(TransactionStateError):
            await producer.commit()

    run(node.server, work)


def test_a_transaction_survives_connections_that_break_before_an_answer(tmp_path: Path) -> None:
    """Each cut falls into the answer to another request of a transaction, or a little before or after one."""
    node = NodeProcess(tmp_path / "data")
    at = TopicPartition("out", 0)

    async def transaction(server: Address, number: int) -> None:
        client = StreamClient([server], config=PERSISTENT)
        try:
            producer = client.transactional(f"id-{number}")
            await producer.begin()
            await publish(producer, at, f"a{number}")
            await publish(producer, at, f"b{number}")
            await producer.commit_offsets(f"group-{number}", {at: 3})
            await producer.commit()
            assert await client.groups.offsets(f"group-{number}", stable=True) == {at: 3}
        finally:
            await client.close()

    async def main() -> None:
        async with breaking_proxy(parse_address(node.server)) as proxy:
            node.settings["kafka.advertise"] = str(proxy.address)
            await asyncio.to_thread(node.start)
            async with StreamClient(node.server) as client:
                await client.admin.create_topic("out")
            # The first answer tells what the node speaks, in some 700 bytes; without it no client goes on.
            cuts = range(700, 1700, 45)
            for number, after_bytes in enumerate(cuts):
                proxy.cuts = [Cut(of_answers=True, after_bytes=after_bytes)]
                await transaction(proxy.address, number)
            assert proxy.cut_count >= 15
            found = await asyncio.to_thread(committed, node.server, "out")
            assert found == [f"{letter}{number}" for number in range(len(cuts)) for letter in "ab"]

    try:
        asyncio.run(main())
    finally:
        node.clean_up()


def test_a_transaction_goes_on_when_the_node_is_killed_at_any_step_of_it(tmp_path: Path) -> None:
    steps = ("join", "produce", "offsets", "commit")
    at = TopicPartition("out", 0)
    with running(tmp_path / "data") as node:

        def restart() -> None:
            node.kill()
            node.start()

        async def main() -> None:
            async with StreamClient(node.server, config=PERSISTENT) as client:
                await client.admin.create_topic("out")
                for number, killed in enumerate(steps):
                    producer = client.transactional("one")
                    await producer.begin()
                    calls: dict[str, Callable[[], Coroutine[Any, Any, None]]] = {
                        "join": partial(producer.join, [at]),
                        "produce": partial(producer.produce, at, batch(f"m{number}")),
                        "offsets": partial(producer.commit_offsets, "g", {at: number + 1}),
                        "commit": producer.commit,
                    }
                    for step, call in calls.items():
                        waiting = asyncio.create_task(call())
                        if step == killed:
                            await asyncio.sleep(0)
                            await asyncio.to_thread(restart)
                        await waiting
                    assert await client.groups.offsets("g", stable=True) == {at: number + 1}

        asyncio.run(main())
        assert committed(node.server, "out") == [f"m{number}" for number in range(len(steps))]


def test_an_instance_that_dies_at_any_moment_leaves_all_or_nothing(node: RunningNode, name: str) -> None:
    """Cut short after some milliseconds, as a killed program is; the next one looks and does what is missing."""
    at = TopicPartition(name, 0)

    async def transaction(client: StreamClient, number: int) -> None:
        producer = client.transactional(name)
        await producer.begin()
        if (await client.groups.offsets(name, stable=True)).get(at, 0) > number:
            return
        await publish(producer, at, f"m{number}")
        await producer.commit_offsets(name, {at: number + 1})
        await producer.commit()

    async def work(client: StreamClient) -> None:
        await client.admin.create_topic(name)
        for number in range(16):
            doomed = asyncio.create_task(transaction(client, number))
            await asyncio.wait([doomed], timeout=number / 1000)
            doomed.cancel()
            with suppress(asyncio.CancelledError, HeadraceError):
                await doomed
            await transaction(client, number)

    run(node.server, work)
    assert committed(node.server, name) == [f"m{number}" for number in range(16)]
