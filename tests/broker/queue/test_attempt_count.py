"""What a crash does to the count of a message's attempts: at least once, it takes back the newest one at most."""

import random

import pytest
from tests.broker.node import Node, run
from tests.broker.queue.world import NAME, QueueWorld

from headrace.log.recovery import FOLDS_DIRECTORY
from headrace.model.queue import Guarantee
from headrace.testing.disk import SimulatedDisk

ATTEMPTS = 12
# How many attempts a crash may take back, where no lease is shorter than what an entry waits for company (50 ms).
FORGOTTEN_MAX = {Guarantee.AT_LEAST_ONCE: 1, Guarantee.EXACTLY_ONCE: 0}


async def count_after_crash(world: QueueWorld, disk: SimulatedDisk, chooser: random.Random, *, is_torn: bool) -> int:
    """How many attempts a node that comes back on this disk knows of."""
    if is_torn:
        disk.crash(chooser)
    node = Node(disk=disk)
    node.store = world.node.store
    node.clock.advance(world.node.clock.monotonic_ms() + 1000)
    await node.start()
    page = await node.queues.browse(NAME, count_max=1)
    (message,) = page.messages
    assert message.body == b"poison"
    node.abandon()
    return message.attempt or 0


@pytest.mark.parametrize("guarantee", [Guarantee.AT_LEAST_ONCE, Guarantee.EXACTLY_ONCE])
@pytest.mark.parametrize("ending", ["release", "expiry"])
@pytest.mark.parametrize("is_torn", [False, True])
def test_a_crash_takes_back_no_attempt_but_one_whose_lease_was_just_handed_out(
    guarantee: Guarantee, ending: str, is_torn: bool
) -> None:
    async def main() -> None:
        world = await QueueWorld(Node()).start(guarantee=guarantee, max_deliveries=None)
        await world.send(b"poison")
        disk = world.node.disk
        # What the disk holds at a moment, and how many times the message had been handed out by then, and given back
        # with an answer.
        moments: list[tuple[SimulatedDisk, int, int]] = []
        delivered = answered = 0

        def note(*_: object) -> None:
            moments.append((disk.copy(), delivered, answered))

        disk.on_call = note
        for attempt in range(1, ATTEMPTS + 1):
            (message,) = await world.receive(1, lease_ms=100)
            assert message.attempt == attempt
            delivered = attempt
            note()
            if ending == "release":
                assert await world.release(message) == [None]
                answered = attempt
            await world.node.clock.elapse(100)
            note()
            if attempt % 3 == 0:
                assert await world.node.logs.checkpoint(world.node.broker.partition(NAME, 0).log)
        disk.on_call = None
        assert any(f"/{FOLDS_DIRECTORY}/queue-" in name for name in disk.files()), sorted(disk.files())
        chooser = random.Random(7)
        lowest = 0
        for moment, given, told in moments[:: max(len(moments) // 150, 1)]:
            count = await count_after_crash(world, moment, chooser, is_torn=is_torn)
            assert count >= given - FORGOTTEN_MAX[guarantee]
            assert count >= told, "who was told that it is given back has been counted"
            assert count <= given + 1
            lowest = max(lowest, given - count)
        assert lowest == FORGOTTEN_MAX[guarantee], "this is as far as it goes, and it does go that far"
        world.node.abandon()

    run(main())
