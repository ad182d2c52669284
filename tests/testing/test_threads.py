import asyncio

import pytest

from headrace.host.threads import PoolThreads, Threads
from headrace.testing.threads import HeldThreads, InlineThreads


def explode() -> None:
    raise ValueError("on purpose")


@pytest.mark.parametrize("pooled", [False, True])
def test_a_result_and_an_exception_arrive_with_whoever_awaits(pooled: bool) -> None:
    async def run() -> None:
        threads: Threads = PoolThreads(name="test", count_max=1) if pooled else InlineThreads()
        assert await threads.run(lambda: 42) == 42
        with pytest.raises(ValueError, match="on purpose"):
            await threads.run(explode)
        threads.close()

    asyncio.run(run())


def test_inline_calls_have_run_when_run_returns() -> None:
    async def run() -> None:
        assert InlineThreads().run(lambda: 42).done()

    asyncio.run(run())


def test_held_calls_run_in_order_when_released() -> None:
    async def run() -> None:
        threads = HeldThreads()
        ran: list[int] = []
        futures = [threads.run(lambda n=n: ran.append(n)) for n in range(3)]  # type: ignore[misc]
        assert (len(threads), ran) == (3, [])
        assert threads.release(2) == 2
        assert ran == [0, 1]
        assert [future.done() for future in futures] == [True, True, False]
        threads.close()
        assert ran == [0, 1, 2]

    asyncio.run(run())
