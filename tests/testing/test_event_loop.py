"""The virtual loop: time jumps, order within an actor, the seed's choice between actors, pauses and crashes."""

import asyncio
import random
from collections.abc import Iterator

import pytest

from headrace.testing.event_loop import StuckError, VirtualLoop


@pytest.fixture
def loop() -> Iterator[VirtualLoop]:
    loop = VirtualLoop(random.Random(1))
    yield loop
    loop.close()


def test_time_jumps_to_the_next_timer(loop: VirtualLoop) -> None:
    async def work() -> list[float]:
        times = []
        for pause_s in (1, 3600, 86_400):
            await asyncio.sleep(pause_s)
            times.append(loop.time())
        return times

    assert loop.run_until_complete(loop.spawn(loop.world, work())) == [1, 3601, 90_001]


def test_an_actors_callbacks_run_in_the_order_in_which_they_were_scheduled(loop: VirtualLoop) -> None:
    seen: list[tuple[str, int]] = []
    actors = [loop.make_actor(name) for name in "abc"]
    for number in range(20):
        for actor in actors:
            loop.call_soon_for(actor, seen.append, (actor.name, number))
    loop.run_until_complete(loop.spawn(loop.world, asyncio.sleep(1)))
    for actor in actors:
        assert [number for name, number in seen if name == actor.name] == list(range(20))


def test_the_seed_chooses_which_actor_runs_next() -> None:
    def order(seed: int) -> str:
        loop = VirtualLoop(random.Random(seed))
        seen: list[str] = []
        for name in "abcdef":
            loop.call_soon_for(loop.make_actor(name), seen.append, name)
        loop.run_until_complete(loop.spawn(loop.world, asyncio.sleep(1)))
        loop.close()
        return "".join(seen)

    assert order(1) == order(1)
    assert len({order(seed) for seed in range(10)}) > 1


def test_a_task_that_another_actor_wakes_stays_with_its_own(loop: VirtualLoop) -> None:
    sleeper, waker = loop.make_actor("sleeper"), loop.make_actor("waker")
    woken = asyncio.Event()
    ran_as: list[str] = []

    async def sleep() -> None:
        await woken.wait()
        ran_as.append(loop.current.name)
        await asyncio.sleep(1)
        ran_as.append(loop.current.name)

    async def wake() -> None:
        await asyncio.sleep(1)
        woken.set()

    task = loop.spawn(sleeper, sleep())
    loop.spawn(waker, wake())
    loop.run_until_complete(task)
    assert ran_as == ["sleeper", "sleeper"]


def test_a_paused_actor_goes_on_where_it_was(loop: VirtualLoop) -> None:
    actor = loop.make_actor("node")
    ticks: list[float] = []

    async def tick() -> None:
        while True:
            await asyncio.sleep(1)
            ticks.append(loop.time())

    async def main() -> None:
        await asyncio.sleep(2.5)
        loop.pause(actor)
        await asyncio.sleep(10)
        loop.resume(actor)
        await asyncio.sleep(2)

    loop.spawn(actor, tick())
    loop.run_until_complete(loop.spawn(loop.world, main()))
    loop.kill(actor)
    assert ticks == [1, 2, 12.5, 13.5, 14.5][: len(ticks)]
    assert len(ticks) >= 4


def test_what_a_killed_actor_does_in_finally_schedules_nothing(loop: VirtualLoop) -> None:
    actor = loop.make_actor("node")
    seen: list[str] = []

    async def work() -> None:
        try:
            await asyncio.sleep(100)
        finally:
            seen.append("dead" if loop.current.is_dead else "alive")
            loop.call_soon(seen.append, "scheduled")
            await asyncio.sleep(1)
            seen.append("ran on")

    async def main() -> None:
        await asyncio.sleep(1)
        loop.kill(actor)
        await asyncio.sleep(1000)

    loop.spawn(actor, work())
    loop.run_until_complete(loop.spawn(loop.world, main()))
    assert seen == ["dead"]


def test_what_can_never_go_on_is_said(loop: VirtualLoop) -> None:
    async def wait() -> None:
        await asyncio.Event().wait()

    task = loop.spawn(loop.world, wait())
    with pytest.raises(StuckError, match="no timer is set"):
        loop.run_until_complete(task)
    loop.kill(loop.world)
