"""Calls to a node that does not answer, of which more are wanted than can be under way together."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest
from tests.client.fake_node import FakeNode, Fault, fake_node

from headrace.client.deadline import Patience
from headrace.client.errors import PartlySentError, UnreachableError
from headrace.client.queue.client import AsyncClient
from headrace.client.queue.outgoing import OutgoingMessage
from headrace.client.queue.queue import AsyncQueue
from headrace.client.settings import QueueClientConfig
from headrace.model.errors import TimedOutError
from headrace.testing.clock import SimulatedClock

# Two requests at a time to a node that answers none, and sixty that want to be made.
SILENT = QueueClientConfig(
    deadline_ms=300, connections_max=2, batches_in_flight_max=2, batch_count_max=1, retries=False, pending_bytes_max=500
)


def run(work: Callable[[AsyncClient, FakeNode], Awaitable[None]]) -> None:
    async def main() -> None:
        async with fake_node() as node, AsyncClient([node.address], config=SILENT) as client:
            await work(client, node)

    asyncio.run(main())


async def _calls_alone(queue: AsyncQueue) -> list[object]:
    return await asyncio.gather(*(queue.describe() for _ in range(60)), return_exceptions=True)


async def _sends(queue: AsyncQueue) -> list[object]:
    return await asyncio.gather(*(queue.send("tea") for _ in range(60)), return_exceptions=True)


async def _many(queue: AsyncQueue) -> list[object]:
    with pytest.raises(PartlySentError) as caught:
        await queue.send_many(["tea"] * 60)
    return list(caught.value.outcomes)


async def _many_in_order(queue: AsyncQueue) -> list[object]:
    with pytest.raises(PartlySentError) as caught:
        await queue.send_many([OutgoingMessage(body="tea", key="alice")] * 60)
    return list(caught.value.outcomes)


@pytest.mark.parametrize("call", [_calls_alone, _sends, _many, _many_in_order])
def test_calls_that_wait_behind_others_which_nobody_answers_are_not_tried_one_after_the_other(
    call: Callable[[AsyncQueue], Awaitable[list[object]]],
) -> None:
    async def work(client: AsyncClient, node: FakeNode) -> None:
        node.faults = [("orders", Fault.SILENCE)] * 60
        outcomes = await call(client.queue("orders"))
        assert len(outcomes) == 60
        assert all(isinstance(outcome, TimedOutError | UnreachableError) for outcome in outcomes)
        # One of those that waited may still have a millisecond when a place is free.
        assert len(node.of("orders")) < 10

    run(work)


def test_acknowledgements_behind_others_which_nobody_answers_are_not_tried_one_after_the_other() -> None:
    async def work(client: AsyncClient, node: FakeNode) -> None:
        orders = client.queue("orders")
        await orders.send_many(["tea"] * 60)
        messages = await orders.receive(max=60, wait=1)
        node.faults = [("acknowledgements", Fault.SILENCE)] * 60
        with pytest.raises(TimedOutError):
            await orders.acknowledge_all(messages)
        assert len(node.of("acknowledgements")) < 10

    run(work)


def test_calls_that_wait_behind_others_which_are_answered_lose_no_time_by_that() -> None:
    clock = SimulatedClock()
    patience = Patience(clock, 1_000)
    begun_ms = clock.monotonic_ms()
    clock.advance(900)
    assert patience.deadline(begun_ms).left_ms == 100
    patience.answered()
    clock.advance(900)
    assert patience.deadline(begun_ms).left_ms == 100
    assert patience.deadline(clock.monotonic_ms()).left_ms == 1_000
    clock.advance(100)
    assert patience.deadline(begun_ms).is_past
