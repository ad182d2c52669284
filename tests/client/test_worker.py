"""Workers in this process, against a node in memory."""

import asyncio
import logging
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import suppress
from typing import Any

import pytest
from tests.client.fake_node import FakeNode, Fault, fake_node
from tests.support.wait import wait_until

import headrace
from headrace.client.queue.client import AsyncClient
from headrace.client.settings import QueueClientConfig
from headrace.client.worker.config import WorkerConfig
from headrace.client.worker.runner import Stop
from headrace.client.worker.worker import Worker
from headrace.model.errors import InvalidConfigError, InvalidNameError, InvalidRequestError
from headrace.model.queue import Backoff

QUICK = QueueClientConfig(deadline_ms=2_000, retry_pause_ms=1, retry_pause_ms_max=5)


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(20):
        while not condition():  # noqa: ASYNC110 - the other side sets no events of ours
            await asyncio.sleep(0.002)


def work(
    worker: Worker[Any, Any],
    during: Callable[[AsyncClient, FakeNode, Stop], Awaitable[None]],
    *,
    config: dict[str, Any] | None = None,
) -> bool:
    """Run a worker while something happens; then stop it. Returns whether all handlers finished."""

    async def main() -> bool:
        async with fake_node() as node, AsyncClient([node.address], config=QUICK) as client:
            if config is not None:
                node.make("orders", **config)
            stop = Stop()
            serving = asyncio.create_task(worker.serve(client, stop))
            try:
                await during(client, node, stop)
            finally:
                if not stop.well.is_set():
                    stop.ask()
                finished = await serving
            return finished

    return asyncio.run(main())


def test_a_synchronous_handler_gets_each_message_once_in_a_thread() -> None:
    seen: list[str] = []
    names: set[str] = set()

    @headrace.worker("orders", concurrency=4)
    def handle(message: headrace.Message) -> None:
        names.add(threading.current_thread().name)
        seen.append(message.text)

    async def during(client: AsyncClient, node: FakeNode, stop: Stop) -> None:
        await client.queue("orders").send_many([str(number) for number in range(50)])
        await until(lambda: len(node.queue("orders").done) == 50)

    assert work(handle, during) is True
    assert sorted(map(int, seen)) == list(range(50))
    assert 1 <= len(names) <= 4
    assert all(name.startswith("headrace-orders-") for name in names)


def test_asynchronous_handlers_run_together_up_to_their_number() -> None:
    running = 0
    most = 0
    gate = asyncio.Event()

    @headrace.worker("orders", concurrency=5)
    async def handle(message: headrace.AsyncMessage) -> None:
        nonlocal running, most
        running += 1
        most = max(most, running)
        await gate.wait()
        running -= 1

    async def during(client: AsyncClient, node: FakeNode, stop: Stop) -> None:
        await client.queue("orders").send_many(["x"] * 20)
        await until(lambda: running == 5)
        gate.set()
        await until(lambda: len(node.queue("orders").done) == 20)

    work(handle, during)
    assert most == 5


def test_what_is_taken_ahead_is_bounded() -> None:
    gate = asyncio.Event()

    @headrace.worker("orders", concurrency=2, prefetch=3)
    async def handle(message: headrace.AsyncMessage) -> None:
        await gate.wait()

    async def during(client: AsyncClient, node: FakeNode, stop: Stop) -> None:
        queue = node.queue("orders")
        await client.queue("orders").send_many(["x"] * 50)
        await until(lambda: len(queue.leased) == 5)
        gate.set()
        await until(lambda: len(queue.done) == 50)

    work(handle, during, config={})


def test_leases_are_extended_while_handlers_run_and_while_messages_wait() -> None:
    gate = asyncio.Event()

    @headrace.worker("orders", concurrency=1, prefetch=1, lease=0.2)
    async def handle(message: headrace.AsyncMessage) -> None:
        await gate.wait()

    async def during(client: AsyncClient, node: FakeNode, stop: Stop) -> None:
        queue = node.queue("orders")
        await client.queue("orders").send_many(["a", "b"])
        await until(lambda: {offset for offset, _ in queue.extended} == {0, 1} and len(queue.extended) >= 6)
        assert queue.extended[0][1] == 0.2
        gate.set()
        await until(lambda: queue.done == [0, 1])

    work(handle, during, config={})


def test_a_failure_is_tried_again_later_and_later() -> None:
    attempts: list[int] = []

    def handle(message: headrace.Message) -> None:
        attempts.append(message.attempt)
        if message.attempt < 4:
            raise ZeroDivisionError

    config = WorkerConfig(queue="orders", backoff=Backoff(first_ms=10, last_ms=25))

    async def during(client: AsyncClient, node: FakeNode, stop: Stop) -> None:
        await client.queue("orders").send("tea")
        await until(lambda: node.queue("orders").done == [0])
        assert node.queue("orders").released == [(0, 0.01), (0, 0.02), (0, 0.025)]

    work(Worker(handle, config), during, config={})
    assert attempts == [1, 2, 3, 4]


def test_a_handler_whose_inner_task_was_cancelled_has_failed_like_any_other(caplog: pytest.LogCaptureFixture) -> None:
    async def handle(message: headrace.AsyncMessage) -> None:
        if message.attempt < 3:
            inner = asyncio.create_task(asyncio.Event().wait())
            inner.cancel()
            await inner

    config = WorkerConfig(queue="orders", backoff=Backoff(first_ms=10, last_ms=25))

    async def during(client: AsyncClient, node: FakeNode, stop: Stop) -> None:
        await client.queue("orders").send("tea")
        await until(lambda: node.queue("orders").done == [0])
        assert node.queue("orders").released == [(0, 0.01), (0, 0.02)]

    with caplog.at_level(logging.ERROR):
        assert work(Worker(handle, config), during, config={}) is True
    assert [record.message for record in caplog.records] == ["handler failed"] * 2


class NoException(BaseException):
    pass


@pytest.mark.parametrize("raised", [SystemExit(3), GeneratorExit(), NoException(), StopIteration()], ids=repr)
@pytest.mark.parametrize("is_async", [True, False])
def test_a_handler_that_exits_has_failed_like_any_other_and_ends_nothing_else(
    caplog: pytest.LogCaptureFixture, raised: BaseException, is_async: bool
) -> None:
    async def handle(message: headrace.AsyncMessage) -> None:
        handle_in_thread(message)

    def handle_in_thread(message: Any) -> None:
        if message.attempt == 1:
            raise raised

    config = WorkerConfig(queue="orders", backoff=Backoff(first_ms=10, last_ms=25))

    async def during(client: AsyncClient, node: FakeNode, stop: Stop) -> None:
        await client.queue("orders").send("tea")
        await until(lambda: node.queue("orders").done == [0])
        assert node.queue("orders").released == [(0, 0.01)]

    with caplog.at_level(logging.ERROR):
        assert work(Worker(handle if is_async else handle_in_thread, config), during, config={}) is True
    assert [record.message for record in caplog.records] == ["handler failed"]
    assert "raise raised" in caplog.text


def test_a_queue_with_a_back_off_of_its_own_decides() -> None:
    @headrace.worker("orders")
    def handle(message: headrace.Message) -> None:
        if message.attempt == 1:
            raise ZeroDivisionError

    async def during(client: AsyncClient, node: FakeNode, stop: Stop) -> None:
        await client.queue("orders").send("tea")
        await until(lambda: node.queue("orders").done == [0])
        assert node.queue("orders").released == [(0, None)]

    work(handle, during, config={"backoff": {"first": 0.01, "last": 1}})


def test_a_handler_may_choose_the_delay_or_reject_or_acknowledge_itself() -> None:
    @headrace.worker("orders")
    async def handle(message: headrace.AsyncMessage) -> None:
        match message.text:
            case "later" if message.attempt == 1:
                raise headrace.Retry(0.01)
            case "never":
                raise headrace.Reject("no such tea")
            case "itself":
                await message.ack()
                raise ZeroDivisionError

    async def during(client: AsyncClient, node: FakeNode, stop: Stop) -> None:
        queue = node.queue("orders")
        await client.queue("orders").send_many(["later", "never", "itself"])
        await until(lambda: sorted(queue.done) == [0, 2] and queue.rejected == {1: "no such tea"})
        assert queue.released == [(0, 0.01)]

    work(handle, during, config={})


@pytest.mark.parametrize(
    ("reason", "said"),
    [
        (ZeroDivisionError("no cups"), "ZeroDivisionError: no cups"),
        ("half a pair \ud800", "half a pair ?"),
        (ValueError("\ud800" * 2_000), "ValueError: " + "?" * 1_012),
    ],
    ids=["an exception", "no UTF-8", "both, and long"],
)
def test_a_handler_rejects_for_the_exception_that_it_caught_and_for_any_text(reason: Any, said: str) -> None:
    @headrace.worker("orders")
    async def handle(message: headrace.AsyncMessage) -> None:
        raise headrace.Reject(reason)

    async def during(client: AsyncClient, node: FakeNode, stop: Stop) -> None:
        await client.queue("orders").send("tea")
        await until(lambda: node.queue("orders").rejected == {0: said})

    work(handle, during, config={})


def test_a_reason_that_is_no_text_is_refused_where_it_is_given() -> None:
    with pytest.raises(headrace.InvalidRequestError, match="the reason is b'cold'; give a text or an exception"):
        headrace.Reject(b"cold")  # type: ignore[arg-type]


def test_a_synchronous_handler_may_settle_its_message_from_its_thread() -> None:
    @headrace.worker("orders")
    def handle(message: headrace.Message) -> None:
        message.extend(60)
        message.release(0) if message.attempt == 1 else message.ack()

    async def during(client: AsyncClient, node: FakeNode, stop: Stop) -> None:
        await client.queue("orders").send("tea")
        await until(lambda: node.queue("orders").done == [0])
        assert node.queue("orders").released == [(0, 0)]

    work(handle, during, config={})


def test_a_stop_lets_handlers_finish_and_gives_back_what_was_not_begun() -> None:
    begun: list[int] = []
    gate = threading.Event()

    @headrace.worker("orders", concurrency=2, prefetch=2)
    def handle(message: headrace.Message) -> None:
        begun.append(message.offset)
        assert gate.wait(20)

    async def during(client: AsyncClient, node: FakeNode, stop: Stop) -> None:
        queue = node.queue("orders")
        await client.queue("orders").send_many(["x"] * 4)
        await until(lambda: len(begun) == 2 and len(queue.leased) == 4)
        stop.ask()
        await until(lambda: sorted(queue.given_back) == [2, 3])
        gate.set()
        await until(lambda: sorted(queue.done) == [0, 1])

    assert work(handle, during, config={}) is True
    assert sorted(begun) == [0, 1]


@pytest.mark.parametrize("how", ["grace", "second stop"])
def test_handlers_that_do_not_finish_are_cut_off_and_their_messages_given_back(how: str) -> None:
    begun = threading.Event()
    end = threading.Event()

    @headrace.worker("orders", grace=0.05 if how == "grace" else 60)
    async def handle(message: headrace.AsyncMessage) -> None:
        begun.set()
        await asyncio.Event().wait()

    @headrace.worker("orders", grace=0.05 if how == "grace" else 60)
    def handle_in_thread(message: headrace.Message) -> None:
        begun.set()
        end.wait(20)

    async def during(client: AsyncClient, node: FakeNode, stop: Stop) -> None:
        queue = node.queue("orders")
        await client.queue("orders").send("x")
        await until(begun.is_set)
        stop.ask()
        if how == "second stop":
            stop.ask()
        await until(lambda: queue.released == [(0, 0)])

    assert work(handle, during, config={}) is False
    begun.clear()
    assert work(handle_in_thread, during, config={}) is False
    end.set()


def test_a_stop_does_not_wait_for_a_node_that_is_silent_nor_for_a_handler_that_does_not_heed_it(
    caplog: pytest.LogCaptureFixture,
) -> None:
    begun = 0
    end = asyncio.Event()

    @headrace.worker("orders", concurrency=2, prefetch=2, grace=300)
    async def handle(message: headrace.AsyncMessage) -> None:
        nonlocal begun
        begun += 1
        while message.text == "stubborn" and not end.is_set():
            with suppress(asyncio.CancelledError):
                await end.wait()
        await end.wait()

    async def main() -> None:
        config = QueueClientConfig(deadline_ms=300_000, retries=False)
        async with fake_node() as node, AsyncClient([node.address], config=config) as client:
            stop = Stop()
            await client.queue("orders").send_many(["stubborn", "x", "x", "x"])
            serving = asyncio.create_task(handle.serve(client, stop))
            await until(lambda: begun == 2 and len(node.queue("orders").leased) == 4)
            node.faults = [("releases", Fault.SILENCE)] * 10
            stop.ask()
            await until(lambda: len(node.of("releases")) == 1)
            stop.ask()
            try:
                async with asyncio.timeout(30):
                    assert await asyncio.shield(serving) is False
            finally:
                end.set()
                await node.close()

    with caplog.at_level(logging.WARNING):
        asyncio.run(main())
    said = [record.message.partition(";")[0] for record in caplog.records]
    assert said[:2] == ["handlers cut off", "left behind"]


def test_a_key_of_an_ordered_queue_has_one_handler_and_nothing_overtakes_a_failure() -> None:
    seen: list[str] = []

    @headrace.worker("orders", concurrency=10)
    async def handle(message: headrace.AsyncMessage) -> None:
        seen.append(f"{message.text} begins")
        await asyncio.sleep(0)
        if message.text == "a1" and message.attempt == 1:
            raise headrace.Retry(0)
        seen.append(f"{message.text} ends")

    async def during(client: AsyncClient, node: FakeNode, stop: Stop) -> None:
        texts = [("a", "a1"), ("a", "a2"), ("b", "b1"), ("b", "b2")]
        await client.queue("orders").send_many([headrace.OutgoingMessage(body=text, key=key) for key, text in texts])
        await until(lambda: sorted(node.queue("orders").done) == [0, 1, 2, 3])
        assert node.queue("orders").released == [(0, 0)]
        assert node.queue("orders").given_back[0] == 1

    work(handle, during, config={"ordered": True})
    assert seen.index("b1 ends") < seen.index("b2 begins")
    assert seen[-1] == "a2 ends"
    assert seen.index("a1 ends") < seen.index("a2 begins")


@pytest.mark.parametrize("how", ["released by the handler", "acknowledgement refused", "acknowledgement in doubt"])
def test_what_is_behind_a_message_that_may_come_again_goes_back_though_its_handler_returned(how: str) -> None:
    begun: list[tuple[str, int]] = []
    expire: list[Callable[[str], None]] = []

    @headrace.worker("orders", concurrency=4, prefetch=4)
    async def handle(message: headrace.AsyncMessage) -> None:
        begun.append((message.text, message.attempt))
        if (message.text, message.attempt) == ("1", 1):
            if how == "released by the handler":
                await message.release(0.01)
            elif how == "acknowledgement refused":
                expire[0](message.receipt)

    async def during(client: AsyncClient, node: FakeNode, stop: Stop) -> None:
        queue = node.queue("orders")
        expire.append(queue.expire)
        if how == "acknowledgement in doubt":
            node.faults.append(("acknowledgements", Fault.LOSE_ANSWER))
        await client.queue("orders").send_many([headrace.OutgoingMessage(body=body, key="alice") for body in "123"])
        await until(lambda: sorted(queue.done) == [0, 1, 2])
        assert queue.given_back[:2] == [1, 2]

    work(handle, during, config={"ordered": True})
    assert begun[0] == ("1", 1)
    assert ("2", 1) not in begun
    assert ("3", 1) not in begun


def test_a_worker_waits_for_a_queue_that_is_not_there_yet_and_outlives_a_node_in_trouble(
    caplog: pytest.LogCaptureFixture,
) -> None:
    @headrace.worker("orders", lease=0.2)
    async def handle(message: headrace.AsyncMessage) -> None:
        pass

    async def during(client: AsyncClient, node: FakeNode, stop: Stop) -> None:
        await until(lambda: "no messages can be received" in caplog.text)
        node.leases_end = True  # what a lost answer handed out comes again by that alone
        node.faults += [("GET", Fault.OVERLOADED), ("GET .*/messages", Fault.LOSE_ANSWER)]
        await client.queue("orders").send("tea")
        await until(lambda: node.queue("orders").done == [0])

    with caplog.at_level(logging.WARNING):
        work(handle, during)


def test_a_lost_lease_is_said_and_its_message_not_begun(caplog: pytest.LogCaptureFixture) -> None:
    gate = asyncio.Event()
    begun: list[tuple[str, int]] = []

    @headrace.worker("orders", concurrency=1, prefetch=1, lease=0.2)
    async def handle(message: headrace.AsyncMessage) -> None:
        begun.append((message.text, message.attempt))
        await gate.wait()

    async def during(client: AsyncClient, node: FakeNode, stop: Stop) -> None:
        queue = node.queue("orders")
        await client.queue("orders").send_many(["a", "b"])
        await until(lambda: len(queue.leased) == 2)
        receipt = next(receipt for receipt, offset in queue.leased.items() if offset == 1)
        queue.expire(receipt)
        await until(lambda: "lease lost" in caplog.text)
        gate.set()
        await until(lambda: queue.done == [0, 1])

    with caplog.at_level(logging.WARNING):
        work(handle, during, config={})
    assert begun == [("a", 1), ("b", 2)]


def test_a_queue_that_was_deleted_and_made_again_is_worked_by_its_new_settings() -> None:
    handled: list[str] = []

    async def handle(message: headrace.AsyncMessage) -> None:
        handled.append(message.text)
        if message.text == "new" and message.attempt == 1:
            raise ZeroDivisionError

    config = WorkerConfig(queue="orders", wait_s=0.01)

    async def during(client: AsyncClient, node: FakeNode, stop: Stop) -> None:
        await client.queue("orders").send("old")
        await until(lambda: handled == ["old"])
        del node.queues["orders"]
        await until(lambda: len(node.of("GET /queues/orders$")) > 1)
        queue = node.make("orders", backoff={"first": 0.01, "last": 1})
        queue.send({"body": b"new"})
        await until(lambda: queue.done == [0])
        assert queue.released == [(0, None)]

    work(Worker(handle, config), during, config={})


def test_a_handler_can_see_that_its_lease_is_lost(caplog: pytest.LogCaptureFixture) -> None:
    saw: list[str] = []

    @headrace.worker("orders", lease=0.2)
    def handle(message: headrace.Message) -> None:
        if message.attempt == 1:
            wait_until(lambda: message.is_lost, deadline_s=20, what="the lease is lost")
            saw.append(message.text)
        assert message.attempt == 1 or not message.is_lost

    async def during(client: AsyncClient, node: FakeNode, stop: Stop) -> None:
        queue = node.queue("orders")
        await client.queue("orders").send("tea")
        await until(lambda: len(queue.leased) == 1)
        queue.expire("receipt-0-1")
        await until(lambda: queue.done == [0])

    with caplog.at_level(logging.WARNING):
        work(handle, during, config={})
    assert saw == ["tea"]
    assert "outcome not told" in caplog.text


def test_an_error_that_no_retry_helps_ends_the_worker() -> None:
    @headrace.worker("orders")
    async def handle(message: headrace.AsyncMessage) -> None:
        pass

    async def main() -> None:
        async with fake_node() as node, AsyncClient([node.address], config=QUICK) as client:
            queue = node.make("orders")
            queue.config["lease"] = "no number"
            await handle.serve(client, Stop())

    with pytest.raises(headrace.HeadraceError, match="cannot be read"):
        asyncio.run(main())


def test_a_worker_runs_in_a_thread_that_hears_no_signals() -> None:
    @headrace.worker("orders")
    async def handle(message: headrace.AsyncMessage) -> None:
        pass

    async def main() -> None:
        async with fake_node() as node:
            # The only end of such a worker, beside the program's: something that no retry helps.
            node.make("orders").config["lease"] = "no number"
            await asyncio.to_thread(handle.run, [node.address])

    with pytest.raises(headrace.HeadraceError, match="cannot be read"):
        asyncio.run(main())


def test_a_decorated_handler_can_be_called_as_it_is() -> None:
    @headrace.worker("orders")
    def handle(message: Any) -> str:
        """Brew it."""
        return f"got {message}"

    said: Any = "tea"
    assert handle(said) == "got tea"
    assert handle.__doc__ == "Brew it."
    assert handle.configured(concurrency=3).config.concurrency == 3


def test_a_configuration_that_cannot_be_is_refused() -> None:
    with pytest.raises(InvalidConfigError, match="concurrency"):
        headrace.worker("orders", concurrency=0)
    with pytest.raises(InvalidRequestError, match="length of time"):
        headrace.worker("orders", lease=-1)
    with pytest.raises(InvalidRequestError, match="length of time"):
        headrace.worker("orders", lease="x")  # type: ignore[arg-type]
    with pytest.raises(InvalidConfigError, match="43200"):
        headrace.worker("orders", lease=50_000)
    with pytest.raises(InvalidConfigError, match="unknown field"):
        headrace.worker("orders")(lambda message: None).configured(speed=11)


def test_a_handler_that_only_makes_a_coroutine_has_not_done_its_message() -> None:
    seen: list[int] = []

    async def brew(message: headrace.Message) -> None:
        raise AssertionError("nobody awaits this")

    @headrace.worker("orders")
    def handle(message: headrace.Message) -> object:
        seen.append(message.attempt)
        return brew(message)

    async def during(client: AsyncClient, node: FakeNode, stop: Stop) -> None:
        await client.queue("orders").send("tea")
        await until(lambda: bool(node.queue("orders").released))
        assert node.queue("orders").done == []

    work(handle, during)
    assert seen[0] == 1


def takes_two(message: headrace.Message, other: str) -> None: ...


def takes_none() -> None: ...


def takes_another_by_name(message: headrace.Message, *, shop: str) -> None: ...


@pytest.mark.parametrize("handler", [takes_two, takes_none, takes_another_by_name])
def test_a_handler_that_one_message_cannot_call_is_refused_where_it_is_made(handler: Any) -> None:
    with pytest.raises(InvalidConfigError, match="a handler takes one argument, the message") as refused:
        headrace.worker("tasks")(handler)
    assert str(refused.value).startswith(f"{handler.__name__}(")


def test_a_handler_may_have_more_parameters_that_it_does_not_need() -> None:
    def brew(message: headrace.Message, shop: str = "north", *cups: str, **more: str) -> None: ...

    assert headrace.worker("tasks")(brew).handler is brew


def test_a_worker_without_the_name_of_its_queue_is_refused_where_it_is_made() -> None:
    with pytest.raises(InvalidConfigError, match=r"write @headrace\.worker\('tasks'\) above the function"):

        @headrace.worker  # type: ignore[arg-type]
        def brew(message: headrace.Message) -> None: ...


def test_a_handler_that_yields_or_cannot_be_called_is_refused_where_it_is_made() -> None:
    async def pours(message: headrace.AsyncMessage) -> AsyncIterator[None]:
        yield

    def brews(message: headrace.Message) -> Iterator[None]:
        yield

    wrong: tuple[Any, ...] = (pours, brews)
    for handler in wrong:
        with pytest.raises(InvalidConfigError, match="yield"):
            headrace.worker("orders")(handler)
    with pytest.raises(InvalidConfigError, match="a function that takes a message"):
        headrace.worker("orders")("brew")  # type: ignore[call-overload]


def test_a_queue_that_can_never_be_is_not_waited_for() -> None:
    @headrace.worker("two words")
    async def handle(message: headrace.AsyncMessage) -> None: ...

    async def main() -> None:
        async with fake_node() as node, AsyncClient([node.address], config=QUICK) as client, asyncio.timeout(20):
            with pytest.raises(InvalidNameError, match="found ' '"):
                await handle.serve(client, Stop())

    asyncio.run(main())
