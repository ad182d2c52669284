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


def test_what_a_promise_will_be_kept_with_is_foreseen_once_and_before_it_is_done() -> None:
    promise: Promise[int] = Promise()
    said: list[object] = []
    promise.then(lambda kept: said.append(("kept", kept.result())), said.append)
    promise.foresee(7)
    promise.foresee(8)
    assert said == [7]
    assert not promise.done()
    promise.keep(7)
    assert said == [7, ("kept", 7)]


@pytest.mark.parametrize("is_kept", [True, False])
def test_of_a_promise_that_is_done_nothing_is_foreseen(is_kept: bool) -> None:
    promise: Promise[int] = Promise()
    said: list[int] = []
    promise.then(lambda _: None, said.append)
    if is_kept:
        promise.keep(7)
    else:
        promise.fail(ValueError("no"))
    promise.foresee(7)
    assert said == []


def test_a_promise_that_breaks_after_it_was_foreseen_is_broken() -> None:
    promise: Promise[int] = Promise()
    promise.then(lambda _: None, lambda _: None)
    promise.foresee(7)
    promise.fail(ValueError("no"))
    with pytest.raises(ValueError, match="no"):
        promise.result()
