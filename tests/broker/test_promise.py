"""Promises: kept once, heard at once, awaited like anything else."""

import asyncio

import pytest

from headrace.broker.promise import Promise


def test_a_listener_is_called_in_the_turn_in_which_the_promise_is_kept() -> None:
    promise: Promise[int] = Promise()
    heard: list[int] = []
    promise.then(lambda kept: heard.append(kept.result()))
    assert heard == []
    promise.keep(7)
    assert heard == [7]


def test_a_listener_of_a_promise_that_is_done_is_called_at_once() -> None:
    promise: Promise[int] = Promise()
    promise.fail(ValueError("no"))
    heard: list[Exception | None] = []
    promise.then(lambda broken: heard.append(broken.exception()))
    assert [str(error) for error in heard] == ["no"]


def test_the_first_word_counts() -> None:
    promise: Promise[int] = Promise()
    promise.keep(1)
    promise.fail(ValueError("too late"))
    assert promise.result() == 1
    with pytest.raises(AssertionError):
        promise.keep(2)


def test_a_promise_can_be_awaited_before_and_after_it_is_done() -> None:
    async def run() -> None:
        promise: Promise[int] = Promise()
        waiting = asyncio.ensure_future(promise)
        await asyncio.sleep(0)
        assert not waiting.done()
        promise.keep(5)
        assert await waiting == 5
        assert await promise == 5
        broken: Promise[int] = Promise()
        broken.fail(ValueError("no"))
        with pytest.raises(ValueError, match="no"):
            await broken

    asyncio.run(run())


def test_whoever_stops_waiting_does_not_disturb_the_promise() -> None:
    async def run() -> None:
        promise: Promise[int] = Promise()
        waiting = asyncio.ensure_future(promise)
        await asyncio.sleep(0)
        waiting.cancel()
        await asyncio.wait([waiting])
        promise.keep(5)
        assert promise.result() == 5

    asyncio.run(run())
