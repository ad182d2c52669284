"""Transactions of the queue client against a node in memory, with the faults that decide what is safe to repeat."""

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

import pytest
from tests.client.fake_node import FakeNode, Fault, fake_node
from tests.client.serving import ServedNode, serving_fake

import headrace
from headrace.client.errors import ConnectionLostError, PartlySentError, UnknownOutcomeError
from headrace.client.queue.client import AsyncClient
from headrace.client.settings import QueueClientConfig
from headrace.model.errors import InvalidRequestError, StaleReceiptError, TransactionStateError

QUICK = QueueClientConfig(deadline_ms=2_000, retry_pause_ms=1, retry_pause_ms_max=5)


def run(work: Callable[[FakeNode, AsyncClient], Awaitable[None]], config: QueueClientConfig = QUICK) -> None:
    async def main() -> None:
        async with fake_node() as node, AsyncClient([node.address], config=config) as client:
            await work(node, client)

    asyncio.run(main())


async def leased(client: AsyncClient, count: int = 1) -> list[headrace.AsyncMessage]:
    queue = client.queue("in")
    await queue.send_many([f"order {number}" for number in range(count)])
    return await queue.receive(max=count)


def bodies(node: FakeNode, queue: str) -> list[bytes]:
    return [message["body"] for message in node.queues[queue].messages] if queue in node.queues else []


def test_what_is_sent_and_acknowledged_counts_at_the_end_of_the_block() -> None:
    async def work(node: FakeNode, client: AsyncClient) -> None:
        (message,) = await leased(client)
        async with client.transaction(timeout=7) as tx:
            await tx.queue("out").send({"tea": 1}, key="alice", priority=9)
            await tx.queue("other").send_many(["a", headrace.OutgoingMessage(body="b", key="k")])
            await tx.ack(message)
            assert message.is_settled
            assert bodies(node, "out") == []
            assert not tx.is_committed
        assert tx.is_committed
        assert (bodies(node, "out"), bodies(node, "other")) == ([b'{"tea":1}'], [b"a", b"b"])
        assert node.queues["out"].messages[0]["key"] == b"alice"
        assert node.queues["in"].done == [0]
        assert node.transactions["tx 0"].timeout_s == 7

    run(work)


def test_an_exception_aborts_and_goes_on() -> None:
    async def work(node: FakeNode, client: AsyncClient) -> None:
        (message,) = await leased(client)

        async def fail() -> None:
            async with client.transaction() as tx:
                await tx.queue("out").send("a")
                await message.ack(tx)
                raise ZeroDivisionError

        with pytest.raises(ZeroDivisionError):
            await fail()
        assert node.transactions["tx 0"].end == "abort"
        assert bodies(node, "out") == []
        (again,) = await client.queue("in").receive(wait=5)
        assert (again.id, again.attempt) == (message.id, 2)

    run(work)


def test_a_cancelled_block_aborts() -> None:
    async def work(node: FakeNode, client: AsyncClient) -> None:
        begun = asyncio.Event()

        async def endless() -> None:
            async with client.transaction() as tx:
                await tx.queue("out").send("a")
                begun.set()
                await asyncio.Event().wait()

        task = asyncio.create_task(endless())
        await begun.wait()
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        assert node.transactions["tx 0"].end == "abort"

    run(work)


def test_many_acknowledgements_go_in_few_requests() -> None:
    async def work(node: FakeNode, client: AsyncClient) -> None:
        messages = await leased(client, 250)
        async with client.transaction() as tx:
            await tx.ack_all(messages)
        assert node.queues["in"].done == list(range(250))
        assert len(node.of("acknowledgements")) == 3

    run(work)


def test_a_lost_answer_to_a_commit_is_asked_for_again() -> None:
    async def work(node: FakeNode, client: AsyncClient) -> None:
        for fault in (Fault.LOSE_ANSWER, Fault.LOSE_REQUEST, Fault.OVERLOADED):
            node.faults = [("commit", fault)]
            async with client.transaction() as tx:
                await tx.queue("out").send("a")
            assert tx.is_committed
        assert bodies(node, "out") == [b"a"] * 3

    run(work)


def test_a_commit_that_is_never_answered_has_an_unknown_outcome_and_may_be_asked_again() -> None:
    async def work(node: FakeNode, client: AsyncClient) -> None:
        node.faults = [("commit", Fault.SILENCE)] * 100
        tx = await client.transaction().begin()
        await tx.queue("out").send("a")
        with pytest.raises(UnknownOutcomeError, match="not known"):
            await tx.commit()
        node.faults = []
        await tx.commit()
        await tx.commit()
        assert bodies(node, "out") == [b"a"]

    run(work, QueueClientConfig(deadline_ms=150, retry_pause_ms=1))


def test_a_transaction_that_is_over_proves_nothing_about_a_commit_whose_answer_was_lost() -> None:
    async def work(node: FakeNode, client: AsyncClient) -> None:
        tx = await client.transaction().begin()
        await tx.queue("out").send("a")
        node.transactions["tx 0"].finish("abort")
        node.faults = [("commit", Fault.LOSE_REQUEST)]
        for _ in range(2):
            with pytest.raises(UnknownOutcomeError, match="is over"):
                await tx.commit()
        assert not tx.is_committed

    run(work)


def test_without_retries_a_lost_answer_to_a_commit_is_an_unknown_outcome() -> None:
    async def work(node: FakeNode, client: AsyncClient) -> None:
        node.faults = [("commit", Fault.LOSE_ANSWER)]
        with pytest.raises(UnknownOutcomeError):
            async with client.transaction() as tx:
                await tx.queue("out").send("a")
        assert bodies(node, "out") == [b"a"]

    run(work, QueueClientConfig(retries=False))


@pytest.mark.parametrize("fault", [Fault.LOSE_ANSWER, Fault.LOSE_REQUEST])
def test_a_send_without_a_clear_end_is_not_repeated_and_spoils_the_transaction(fault: Fault) -> None:
    async def work(node: FakeNode, client: AsyncClient) -> None:
        node.faults = [("transactions/.*/messages", fault)]
        tx = await client.transaction().begin()
        with pytest.raises(ConnectionLostError):
            await tx.queue("out").send("a")
        with pytest.raises(TransactionStateError, match="no clear end"):
            await tx.commit()
        assert len(node.of("transactions/.*/messages")) == 1
        assert node.transactions["tx 0"].end == "abort"
        assert bodies(node, "out") == []

    run(work)


def test_a_send_that_was_refused_is_repeated() -> None:
    async def work(node: FakeNode, client: AsyncClient) -> None:
        node.faults = [("transactions/.*/messages", Fault.OVERLOADED)]
        async with client.transaction() as tx:
            await tx.queue("out").send("a")
        assert bodies(node, "out") == [b"a"]

    run(work)


def test_a_send_that_was_cancelled_spoils_the_transaction() -> None:
    async def work(node: FakeNode, client: AsyncClient) -> None:
        node.faults = [("transactions/.*/messages", Fault.SILENCE)]
        tx = await client.transaction().begin()
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(tx.queue("out").send("a"), 0.05)
        with pytest.raises(TransactionStateError, match="no clear end"):
            await tx.commit()

    run(work)


def test_a_transaction_whose_time_is_over_says_so_at_its_commit() -> None:
    async def work(node: FakeNode, client: AsyncClient) -> None:
        tx = await client.transaction().begin()
        await tx.queue("out").send("a")
        node.transactions["tx 0"].finish("abort")
        with pytest.raises(TransactionStateError, match="is over"):
            await tx.commit()
        assert not tx.is_committed
        with pytest.raises(TransactionStateError):
            await tx.queue("out").send("b")

    run(work)


def test_entries_that_fail_are_errors_and_leave_the_rest() -> None:
    async def work(node: FakeNode, client: AsyncClient) -> None:
        (message,) = await leased(client)
        node.queues["in"].expire(message.receipt)
        async with client.transaction() as tx:
            with pytest.raises(StaleReceiptError):
                await tx.ack(message)
            node.entry_faults = [(1, "queue_full")]
            with pytest.raises(PartlySentError) as failed:
                await tx.queue("out").send_many(["a", "b", "c"])
            assert [isinstance(outcome, headrace.HeadraceError) for outcome in failed.value.outcomes] == [
                False,
                True,
                False,
            ]
        assert bodies(node, "out") == [b"a", b"c"]

    run(work)


def test_a_transaction_is_used_once_and_not_before_it_begins() -> None:
    async def work(node: FakeNode, client: AsyncClient) -> None:
        tx = client.transaction()
        with pytest.raises(InvalidRequestError, match="has not begun"):
            await tx.queue("out").send("a")
        async with tx:
            await tx.abort()
            await tx.abort()
        with pytest.raises(InvalidRequestError, match="used once"):
            await tx.begin()
        with pytest.raises(TransactionStateError):
            await tx.commit()

    run(work)


@pytest.fixture
def served() -> Iterator[ServedNode]:
    with serving_fake() as node:
        yield node


def test_programs_without_a_loop_have_the_same(served: ServedNode) -> None:
    def ends(node: FakeNode) -> list[Any]:
        return [transaction.end for transaction in node.transactions.values()]

    with headrace.Client(served.server) as client:
        orders = client.queue("in")
        orders.send_many(["a", "b", "c"])
        first, second, third = orders.receive()
        with client.transaction(timeout=5) as tx:
            assert tx.queue("out").name == "out"
            tx.queue("out").send("A", key="k")
            tx.queue("out").send_many(["B"])
            tx.ack(first)
            tx.ack_all([second])
        assert tx.is_committed
        with pytest.raises(InvalidRequestError), client.transaction() as tx:
            tx.queue("out").send(third.ack(tx), key=7)  # type: ignore[func-returns-value, arg-type]
        by_hand = client.transaction().begin()
        by_hand.queue("out").send("C")
        by_hand.commit()
        client.transaction().begin().abort()
        assert served.ask(ends) == ["commit", "abort", "commit", "abort"]
        assert [message.text for message in client.queue("out").receive()] == ["A", "B", "C"]
        assert [(message.text, message.attempt) for message in orders.receive(wait=5)] == [("c", 2)]
