"""What every Clock does. All run on the event loop: the machine's by itself, the simulated one when told."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from headrace.host.clock import Clock, SystemClock, past_ms, stamp_ms
from headrace.host.node_clock import ClockConfig, NodeClock
from headrace.testing.clock import SimulatedClock

Elapse = Callable[[float], Awaitable[None]]


async def _really_elapse(delta_ms: float) -> None:
    await asyncio.sleep(delta_ms / 1000)


def system() -> tuple[Clock, Elapse]:
    return SystemClock(), _really_elapse


def simulated() -> tuple[Clock, Elapse]:
    clock = SimulatedClock()
    return clock, clock.elapse


def of_a_node() -> tuple[Clock, Elapse]:
    return NodeClock(SystemClock(), ClockConfig()), _really_elapse


both = pytest.mark.parametrize("make", [system, simulated, of_a_node])


@both
def test_monotonic_time_passes_and_wall_time_with_it(make: Callable[[], tuple[Clock, Elapse]]) -> None:
    async def run() -> None:
        clock, elapse = make()
        monotonic_ms, wall_ms = clock.monotonic_ms(), clock.wall_ms()
        await elapse(5)
        assert clock.monotonic_ms() >= monotonic_ms + 4
        assert clock.wall_ms() >= wall_ms + 4
        assert wall_ms > 1_600_000_000_000

    asyncio.run(run())


@both
def test_steady_time_passes_and_trusted_time_is_the_wall_clocks_where_nothing_jumped(
    make: Callable[[], tuple[Clock, Elapse]],
) -> None:
    async def run() -> None:
        clock, elapse = make()
        steady_ms = clock.steady_ms()
        await elapse(5)
        assert clock.steady_ms() >= steady_ms + 4
        assert abs(clock.trusted_ms() - clock.wall_ms()) < 1_000
        assert past_ms(clock) <= stamp_ms(clock)

    asyncio.run(run())


@both
def test_timers_fire_once_and_in_the_order_of_their_deadlines(make: Callable[[], tuple[Clock, Elapse]]) -> None:
    async def run() -> None:
        clock, elapse = make()
        fired: list[str] = []
        clock.call_later(30, lambda: fired.append("late"))
        clock.call_later(2, lambda: fired.append("early"))
        clock.call_later(3, lambda: fired.append("cancelled")).cancel()
        await elapse(60)
        assert fired == ["early", "late"]

    asyncio.run(run())


@both
def test_a_timer_does_not_fire_before_its_time(make: Callable[[], tuple[Clock, Elapse]]) -> None:
    async def run() -> None:
        clock, elapse = make()
        fired: list[str] = []
        timer = clock.call_later(60_000, lambda: fired.append("too early"))
        await elapse(5)
        assert fired == []
        timer.cancel()

    asyncio.run(run())


@both
def test_a_sleeper_wakes_after_its_time_and_can_be_cancelled(make: Callable[[], tuple[Clock, Elapse]]) -> None:
    async def run() -> None:
        clock, elapse = make()
        short = asyncio.create_task(clock.sleep(5))
        long = asyncio.create_task(clock.sleep(60_000))
        await elapse(50)
        assert short.done()
        assert not long.done()
        long.cancel()
        with pytest.raises(asyncio.CancelledError):
            await long

    asyncio.run(run())
