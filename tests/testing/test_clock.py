import asyncio

from headrace.testing.clock import SimulatedClock


def test_each_timer_sees_its_own_instant_and_may_set_another() -> None:
    clock = SimulatedClock(monotonic_ms=1000)
    seen: list[tuple[str, int]] = []

    def first() -> None:
        seen.append(("first", clock.monotonic_ms()))
        clock.call_later(5, lambda: seen.append(("nested", clock.monotonic_ms())))

    clock.call_later(10, first)
    clock.call_later(12, lambda: seen.append(("second", clock.monotonic_ms())))
    clock.advance(100)
    assert seen == [("first", 1010), ("second", 1012), ("nested", 1015)]
    assert clock.monotonic_ms() == 1100
    assert clock.next_timer_ms() is None


def test_a_wall_clock_jump_leaves_monotonic_time_and_timers_alone() -> None:
    clock = SimulatedClock(monotonic_ms=5, wall_ms=1_000_000)
    fired: list[int] = []
    clock.call_later(10, lambda: fired.append(clock.wall_ms()))
    clock.jump_wall(-500_000)
    assert (clock.monotonic_ms(), clock.wall_ms()) == (5, 500_000)
    assert fired == []
    assert clock.next_timer_ms() == 15
    clock.advance(10)
    assert fired == [500_010]


def test_a_task_that_sleeps_in_turns_is_woken_at_every_one_within_one_elapse() -> None:
    async def run() -> None:
        clock = SimulatedClock()
        woken: list[int] = []

        async def ticker() -> None:
            for _ in range(4):
                await clock.sleep(10)
                woken.append(clock.monotonic_ms())

        task = asyncio.create_task(ticker())
        await clock.elapse(35)
        assert woken == [10, 20, 30]
        await clock.elapse(5)
        assert task.done()

    asyncio.run(run())
