"""The three guarantees, each crashed at every disk call between the first send and the last acknowledgement.

A run is carried to its end once. Before each disk call the disk is copied, together with what the client had been told
by then: whatever the process would have done after that moment, a crash there leaves this disk and this client. Each
copy then loses power (any part of what was not synced) or only its process, and a new node starts on it.
"""

import asyncio
import os
import random
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TypeVar

import pytest
from tests.broker.node import Node, run
from tests.broker.queue.world import NAME, QueueWorld

from headrace.broker.promise import Promise
from headrace.model.errors import StaleReceiptError
from headrace.model.message import Message, Received
from headrace.model.queue import Guarantee
from headrace.testing.disk import SimulatedDisk

SEEDS = 25 if os.environ.get("HEADRACE_LONG") else 2
LEASE_MS = 30_000

T = TypeVar("T")


@dataclass
class Told:
    """What the client knows."""

    sent: set[bytes] = field(default_factory=set)
    received: dict[bytes, Received] = field(default_factory=dict)
    acknowledging: set[bytes] = field(default_factory=set)
    acknowledged: set[bytes] = field(default_factory=set)
    is_receiving: bool = False

    def copy(self) -> "Told":
        return Told(
            set(self.sent),
            dict(self.received),
            set(self.acknowledging),
            set(self.acknowledged),
            self.is_receiving,
        )


@dataclass
class Moment:
    disk: SimulatedDisk
    told: Told


async def told_at_once(promise: Promise[T], tell: Callable[[T], object]) -> T:
    """Wait for an answer, and note it in the moment in which it goes out to the client."""
    answered: asyncio.Future[T] = asyncio.get_running_loop().create_future()

    def kept(promise: Promise[T]) -> None:
        tell(promise.result())
        answered.set_result(promise.result())

    promise.then(kept)
    return await answered


async def record(guarantee: Guarantee, moments: list[Moment]) -> QueueWorld:
    """Send, receive and acknowledge, keeping a copy of the world before every disk call."""
    world = await QueueWorld(Node()).start(guarantee=guarantee, lease_ms=LEASE_MS)
    told = Told()
    disk = world.node.disk
    disk.on_call = lambda *_: moments.append(Moment(disk.copy(), told.copy()))
    for turn in range(4):
        await take_turn(world, told, guarantee, [b"%d-%d" % (turn, number) for number in range(4)])
    disk.on_call = None
    moments.append(Moment(disk.copy(), told.copy()))
    return world


async def take_turn(world: QueueWorld, told: Told, guarantee: Guarantee, bodies: list[bytes]) -> None:
    """Send four, receive three, acknowledge two; by calls of which two at a time are under way together."""
    sends = [world.queues.send(NAME, [Message(body) for body in some]) for some in (bodies[:2], bodies[2:])]
    await asyncio.gather(
        told_at_once(sends[0], lambda _: told.sent.update(bodies[:2])),
        told_at_once(sends[1], lambda _: told.sent.update(bodies[2:])),
    )
    told.is_receiving = True

    def received(messages: list[Received]) -> None:
        told.is_receiving = False
        told.received.update((message.body, message) for message in messages)

    messages = await told_at_once(world.queues.receive(NAME, count_max=3).promise, received)
    if guarantee is not Guarantee.AT_MOST_ONCE:
        await asyncio.gather(*(acknowledge(world, told, message) for message in messages[:2]))


async def acknowledge(world: QueueWorld, told: Told, message: Received) -> None:
    told.acknowledging.add(message.body)
    answer = world.queues.acknowledge(NAME, [message.receipt])
    assert await told_at_once(answer, lambda _: told.acknowledged.add(message.body)) == [None]


async def reborn(world: QueueWorld, moment: Moment, chooser: random.Random | None) -> QueueWorld:
    disk = moment.disk.copy()
    if chooser is not None:
        disk.crash(chooser)
    node = Node(disk=disk)
    node.store = world.node.store
    node.clock.advance(world.node.clock.monotonic_ms() + 1000)
    await node.start()
    return QueueWorld(node)


async def check(guarantee: Guarantee, world: QueueWorld, told: Told) -> None:
    at_once = {message.body: message for message in await world.receive(100)}
    held = told.received.keys() - told.acknowledging
    assert not at_once.keys() & told.acknowledged, "an acknowledged message came again"
    if guarantee is Guarantee.AT_MOST_ONCE:
        assert not at_once.keys() & told.received.keys(), "a message was handed out twice"
    if guarantee is Guarantee.EXACTLY_ONCE:
        assert not at_once.keys() & held, "a leased message was handed out again before its lease's end"
        for body in held:
            assert await world.acknowledge(told.received[body]) == [None], "the newest receipt was refused"
    await world.node.clock.elapse(LEASE_MS)
    later = {message.body for message in await world.receive(100)}
    found = at_once.keys() | later
    if guarantee is Guarantee.AT_MOST_ONCE:
        assert not later & told.received.keys()
        missing = told.sent - found - told.received.keys()
        assert len(missing) <= (3 if told.is_receiving else 0), f"lost more than what was being handed out: {missing}"
        return
    done = told.acknowledging | (held if guarantee is Guarantee.EXACTLY_ONCE else set())
    assert told.sent - done <= found, f"lost: {told.sent - done - found}"
    assert not later & told.acknowledged


@pytest.mark.parametrize("guarantee", list(Guarantee))
def test_a_crash_at_any_moment_keeps_what_the_guarantee_says(guarantee: Guarantee) -> None:
    async def main() -> None:
        moments: list[Moment] = []
        world = await record(guarantee, moments)
        assert len(moments) > 15
        world.node.abandon()
        for at, moment in enumerate(moments):
            choosers = [None, *(random.Random(at * 1000 + seed) for seed in range(SEEDS))]
            for chooser in choosers:
                heir = await reborn(world, moment, chooser)
                await check(guarantee, heir, moment.told)
                heir.node.abandon()

    run(main())


@pytest.mark.parametrize("may_be_late", [False, True])
def test_the_receipt_of_a_forgotten_lease_is_refused_however_often_the_node_dies(may_be_late: bool) -> None:
    async def killed(world: QueueWorld) -> QueueWorld:
        world.node.abandon()
        return await reborn(world, Moment(world.node.disk, Told()), None)

    async def main() -> None:
        world = await QueueWorld(Node()).start()
        await world.send(b"a")
        (forgotten,) = await world.receive()
        world = await killed(world)
        (known,) = await world.receive(lease_ms=1000 if may_be_late else None)
        assert known.attempt == forgotten.attempt
        await world.node.clock.elapse(1000)
        world = await killed(world)
        for _ in range(2):
            (refusal,) = await world.acknowledge(forgotten, may_be_late=may_be_late)
            assert isinstance(refusal, StaleReceiptError)
            assert world.counts().acknowledged == 0
            world = await killed(world)
        assert await world.acknowledge(known, may_be_late=may_be_late) == [None]

    run(main())


def test_the_receipt_of_a_written_lease_is_good_beside_those_of_the_next_process_in_the_same_millisecond() -> None:
    async def main() -> None:
        world = await QueueWorld(Node()).start(guarantee=Guarantee.EXACTLY_ONCE)
        await world.send(b"a", b"b", b"c")
        held = await world.receive(1)
        for _ in range(2):
            await world.node.kill()
            held += await world.receive(1)
        assert [message.body for message in held] == [b"a", b"b", b"c"]
        await world.node.kill()
        assert await world.acknowledge(*held) == [None] * 3

    run(main())
