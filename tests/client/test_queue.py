"""Queues from asynchronous Python, against a node in memory that can fail on demand."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import timedelta
from math import inf, nan
from typing import Any

import msgspec
import pytest
from tests.client.fake_node import FakeNode, Fault, fake_node

from headrace.client.errors import ClosedError, ConnectionLostError, PartlySentError, UnreachableError
from headrace.client.queue.client import AsyncClient
from headrace.client.queue.message import AsyncMessage, Reject, Retry
from headrace.client.queue.outgoing import OutgoingMessage
from headrace.client.settings import QueueClientConfig
from headrace.model.address import Address
from headrace.model.errors import (
    HeadraceError,
    InvalidConfigError,
    InvalidNameError,
    InvalidRequestError,
    OverloadedError,
    QueueFullError,
    StaleReceiptError,
    TimedOutError,
    UnknownQueueError,
)

QUICK = QueueClientConfig(deadline_ms=5_000, retry_pause_ms=1, retry_pause_ms_max=5)
Work = Callable[[AsyncClient, FakeNode], Awaitable[Any]]


def run(work: Work, *, config: QueueClientConfig = QUICK) -> Any:
    async def main() -> Any:
        async with fake_node() as node, AsyncClient([node.address], config=config) as client:
            return await work(client, node)

    return asyncio.run(main())


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(10):
        while not condition():  # noqa: ASYNC110 - the other side is a server, which sets no events of ours
            await asyncio.sleep(0.001)


async def one(client: AsyncClient, name: str = "orders") -> AsyncMessage:
    (message,) = await client.queue(name).receive(max=1, wait=1)
    return message


# Sending and receiving.


def test_what_is_sent_is_received_with_everything_that_was_said_about_it() -> None:
    async def work(client: AsyncClient, node: FakeNode) -> None:
        orders = client.queue("orders")
        headers: dict[str, str | bytes] = {"shop": "north", "raw": b"\xfe"}
        sent = await orders.send(
            b"\xff\x00",
            key="alice",
            priority=9,
            delay=timedelta(minutes=1),
            ttl=90,
            headers=headers,
            deduplication_id="order-7",
        )
        assert (sent.id, sent.partition, sent.offset, sent.is_duplicate) == ("0-0", 0, 0, False)
        stored = node.queue("orders").messages[0]
        assert (stored["delay"], stored["ttl"]) == (60.0, 90)
        message = await one(client)
        assert (message.id, message.body, message.key, message.priority) == ("0-0", b"\xff\x00", b"alice", 9)
        assert message.headers == (("shop", b"north"), ("raw", b"\xfe"))
        assert message.header("shop") == b"north"
        assert message.header("absent") is None
        assert (message.deduplication_id, message.attempt, message.lease) == ("order-7", 1, 30.0)
        assert (message.sent_ms, message.first_received_ms, message.partition, message.offset) == (1, 2, 0, 0)
        assert "attempt 1, 2 bytes" in repr(message)
        await message.ack()
        assert node.queue("orders").done == [0]

    run(work)


@dataclass
class Tea:
    kind: str
    cups: int


@dataclass
class Price:
    euros: float


@pytest.mark.parametrize(
    ("body", "stored"),
    [("Grüße", "Grüße".encode()), (b"raw", b"raw"), (bytearray(b"raw"), b"raw"), (memoryview(b"raw"), b"raw")],
)
def test_text_and_bytes_are_sent_as_they_are(body: object, stored: bytes) -> None:
    async def work(client: AsyncClient, node: FakeNode) -> None:
        await client.queue("orders").send(body)
        assert node.queue("orders").messages[0]["body"] == stored
        assert "headers" not in node.queue("orders").messages[0]
        assert (await one(client)).text == stored.decode()

    run(work)


def test_other_values_are_sent_as_json_and_read_back_as_values_or_types() -> None:
    async def work(client: AsyncClient, node: FakeNode) -> None:
        orders = client.queue("orders")
        await orders.send({"kind": "green", "cups": 2})
        await orders.send(Tea("black", 1), headers=[("content-type", "application/tea+json")])
        first, second = await orders.receive(max=2)
        assert first.json() == {"kind": "green", "cups": 2}
        assert first.json(Tea) == Tea("green", 2)
        assert first.header("content-type") == b"application/json"
        assert second.json(Tea) == Tea("black", 1)
        assert second.headers == (("content-type", b"application/tea+json"),)

    run(work)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"body": object()}, "neither text nor bytes"),
        ({"body": "x", "priority": 10}, "between 0 and 9"),
        ({"body": {"price": nan}}, "number nan"),
        ({"body": Price(inf)}, "number inf"),
        ({"body": [None, {"deep": (1.5, [-inf])}]}, "number -inf"),
        ({"body": "\ud800"}, "send it as bytes"),
        ({"body": ["\ud800"]}, "something for JSON"),
        ({"body": "x", "key": "\ud800"}, "the key"),
        ({"body": "x", "key": 7}, "a text or bytes"),
        ({"body": "x", "headers": {"shop": "\ud800"}}, "the header 'shop'"),
        ({"body": "x", "headers": {"shop": 7}}, "a text or bytes"),
        ({"body": "x", "headers": {7: "shop"}}, "a header's name"),
        ({"body": "x", "headers": "shop"}, "pairs of name and value"),
        ({"body": "x", "headers": [("shop",)]}, "pairs of name and value"),
        ({"body": "x", "headers": 7}, "pairs of name and value"),
        ({"body": "x", "deduplication_id": "\ud800"}, "the deduplication id"),
        ({"body": "x", "deduplication_id": 7}, "give a text"),
        ({"body": "x", "priority": "high"}, "between 0 and 9"),
        ({"body": "x", "delay": "soon"}, "seconds from 0 on"),
        ({"body": "x", "ttl": nan}, "seconds from 0 on"),
        ({"body": "x", "delay": -1}, "seconds from 0 on"),
        ({"body": "x", "headers": {"headrace-delay-ms": "1"}}, "headrace's own"),
    ],
)
def test_what_cannot_be_sent_is_refused_before_it_leaves(arguments: dict[str, Any], words: str) -> None:
    async def work(client: AsyncClient, node: FakeNode) -> None:
        with pytest.raises(InvalidRequestError, match=words):
            await client.queue("orders").send(**arguments)
        assert node.of("POST") == []

    run(work)


@pytest.mark.parametrize(
    ("misuse", "words"),
    [
        (lambda queue, _: queue.receive(max="3"), "whole number of messages"),
        (lambda queue, _: queue.receive(max=2.5), "whole number of messages"),
        (lambda queue, _: queue.receive(max=0), "at least one"),
        (lambda queue, _: queue.receive(wait=None), "no length of time"),
        (lambda queue, _: queue.receive(lease="long"), "no length of time"),
        (lambda _, message: message.extend(None), "no length of time"),
        (lambda _, message: message.release("soon"), "no length of time"),
        (lambda _, message: message.reject(7), "the reason is 7"),
        (lambda _, message: message.reject("\ud800"), "the reason is a text with half"),
    ],
)
def test_arguments_that_cannot_be_are_told_in_words_and_change_nothing(misuse: Callable[..., Any], words: str) -> None:
    async def work(client: AsyncClient, node: FakeNode) -> None:
        orders = client.queue("orders")
        await orders.send("tea")
        message = await one(client)
        asked = len(node.requests)
        with pytest.raises(InvalidRequestError, match=words):
            await misuse(orders, message)
        assert len(node.requests) == asked
        assert not message.is_settled

    run(work)


@pytest.mark.parametrize("name", ["", 7, None, "\ud800"])
def test_what_is_no_name_of_a_queue_is_refused_where_it_is_named(name: Any) -> None:
    async def work(client: AsyncClient, node: FakeNode) -> None:
        with pytest.raises(InvalidNameError, match="no queue's name"):
            client.queue(name)

    run(work)


def test_a_client_without_a_server_is_refused() -> None:
    with pytest.raises(InvalidRequestError, match="no server is named"):
        AsyncClient([])


@pytest.mark.parametrize(
    "wrong",
    [
        {"batch_count_max": 0},
        {"connections_max": 0},
        {"batches_in_flight_max": -1},
        {"deadline_ms": "30"},
        {"deadline_ms": inf},
        {"linger_ms": -1},
        {"retries": 3},
        {"connect_timeout_ms": True},
    ],
)
def test_a_configuration_with_which_calls_would_never_end_is_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(InvalidConfigError, match=next(iter(wrong))):
        QueueClientConfig(**wrong)


def test_a_client_in_another_loop_is_refused_at_once_and_serves_its_own_on() -> None:
    async def work(client: AsyncClient, node: FakeNode) -> None:
        orders = client.queue("orders")
        await orders.send("tea")
        message = await one(client)
        for misuse in (
            lambda: orders.send("coffee"),
            lambda: orders.send_many(["coffee"]),
            lambda: orders.receive(wait=0),
            message.ack,
            lambda: message.extend(5),
            client.queues,
            client.close,
        ):
            with pytest.raises(InvalidRequestError, match="make one in each loop"):
                await asyncio.to_thread(asyncio.run, misuse())
        await message.ack()

    run(work)


def test_none_is_a_value_of_json_like_any_other() -> None:
    async def work(client: AsyncClient, node: FakeNode) -> None:
        await client.queue("orders").send({"price": None, "sizes": [1.5, None], "word": "null"})
        assert (await one(client)).json() == {"price": None, "sizes": [1.5, None], "word": "null"}

    run(work)


def test_a_receive_waits_for_a_message_that_comes_later() -> None:
    async def work(client: AsyncClient, node: FakeNode) -> None:
        node.make("orders")
        waiting = asyncio.create_task(client.queue("orders").receive(wait=10))
        await until(lambda: bool(node.of("GET .*/messages")))
        await client.queue("orders").send("late")
        (message,) = await waiting
        assert message.text == "late"
        assert node.of("GET .*/messages")[0].query == {"batch_size": "10", "wait": "10.0"}

    run(work)


def test_a_receive_comes_back_empty_when_its_time_is_over() -> None:
    async def work(client: AsyncClient, node: FakeNode) -> None:
        node.make("orders")
        assert await client.queue("orders").receive(wait=0) == []
        assert await client.queue("orders").receive(wait=0.01) == []
        with pytest.raises(InvalidRequestError, match="at least one"):
            await client.queue("orders").receive(max=0)

    run(work)


def test_an_abandoned_receive_lets_go_of_its_connection() -> None:
    async def work(client: AsyncClient, node: FakeNode) -> None:
        node.make("orders")
        waiting = asyncio.create_task(client.queue("orders").receive(wait=10))
        await until(lambda: bool(node.of("GET .*/messages")))
        open_before = node.open_count
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        async with asyncio.timeout(5):
            await client.queue("orders").send("for somebody else")
        assert open_before == 2

    run(work)


def test_closing_the_client_ends_a_receive_that_waits() -> None:
    async def work(client: AsyncClient, node: FakeNode) -> None:
        node.make("orders")
        waiting = asyncio.create_task(client.queue("orders").receive(wait=20))
        await until(lambda: bool(node.of("GET .*/messages")))
        await client.close()
        with pytest.raises(ClosedError):
            await waiting
        with pytest.raises(ClosedError):
            await client.queue("orders").receive()

    run(work)


def test_a_name_with_any_characters_travels_in_the_path() -> None:
    async def work(client: AsyncClient, node: FakeNode) -> None:
        await client.queue("a b/ü?").send("x")
        assert list(node.queues) == ["a b/ü?"]
        assert (await one(client, "a b/ü?")).text == "x"

    run(work)


# Batches.


def test_sends_of_one_turn_leave_in_one_request_and_get_their_own_places() -> None:
    async def work(client: AsyncClient, node: FakeNode) -> None:
        orders = client.queue("orders")
        sent = await asyncio.gather(*(orders.send(f"{number}") for number in range(50)))
        assert [place.offset for place in sent] == list(range(50))
        assert [m["body"] for m in node.queue("orders").messages] == [b"%d" % n for n in range(50)]
        assert len(node.of("POST .*/messages")) == 1

    run(work)


def test_a_request_holds_no_more_than_it_may() -> None:
    config = QueueClientConfig(batch_count_max=10, batch_bytes_max=5_000, batches_in_flight_max=2)

    async def work(client: AsyncClient, node: FakeNode) -> None:
        orders = client.queue("orders")
        await asyncio.gather(*(orders.send(b"x" * 10) for _ in range(35)))
        await asyncio.gather(*(orders.send(b"x" * 2_000) for _ in range(6)))
        await orders.send_many([b"x" * 2_000] * 3 + [b"y" * 9_000])
        sizes = [len(request.document["messages"]) for request in node.of("POST .*/messages")]
        assert sizes == [10, 10, 10, 5, 2, 2, 2, 2, 1, 1]

    run(work, config=config)


def test_acknowledgements_of_one_turn_leave_in_one_request_and_fail_one_by_one() -> None:
    async def work(client: AsyncClient, node: FakeNode) -> None:
        orders = client.queue("orders")
        await orders.send_many(["a", "b", "c"])
        messages = await orders.receive()
        node.queue("orders").leased.pop(messages[1].receipt)
        outcomes = await asyncio.gather(*(message.ack() for message in messages), return_exceptions=True)
        assert [type(outcome) for outcome in outcomes] == [type(None), StaleReceiptError, type(None)]
        assert len(node.of("POST .*/acknowledgements")) == 1

    run(work)


def test_more_than_may_be_pending_waits_its_turn() -> None:
    config = QueueClientConfig(pending_bytes_max=1_000, batch_count_max=3, batches_in_flight_max=1)

    async def work(client: AsyncClient, node: FakeNode) -> None:
        orders = client.queue("orders")
        sends = [asyncio.create_task(orders.send(b"x" * 500)) for _ in range(40)]
        await asyncio.sleep(0)
        sends[5].cancel()
        outcomes = await asyncio.gather(*sends, return_exceptions=True)
        assert [n for n, outcome in enumerate(outcomes) if isinstance(outcome, BaseException)] == [5]
        assert len(node.queue("orders").messages) == 39

    run(work, config=config)


def test_a_send_that_is_pending_when_the_client_closes_is_sent() -> None:
    async def work(client: AsyncClient, node: FakeNode) -> None:
        await client.queue("orders").send("first")
        sending = asyncio.create_task(client.queue("orders").send("last"))
        await asyncio.sleep(0)
        await client.close()
        await sending
        assert len(node.queue("orders").messages) == 2
        with pytest.raises(ClosedError):
            await client.queue("orders").send("too late")

    run(work)


def test_many_messages_are_sent_in_order_and_each_has_a_place() -> None:
    async def work(client: AsyncClient, node: FakeNode) -> None:
        config = [OutgoingMessage(body="with a key", key=b"k", priority=1), "text", b"bytes", {"json": True}]
        sent = await client.queue("orders").send_many(config)
        assert [place.offset for place in sent] == [0, 1, 2, 3]
        stored = node.queue("orders").messages
        assert [message["body"] for message in stored] == [b"with a key", b"text", b"bytes", b'{"json":true}']
        assert (stored[0]["key"], stored[0]["priority"]) == (b"k", 1)
        assert await client.queue("orders").send_many([]) == []

    run(work)


def test_one_message_that_is_refused_does_not_hide_the_others() -> None:
    async def work(client: AsyncClient, node: FakeNode) -> None:
        node.entry_faults.append((1, "queue_full"))
        with pytest.raises(PartlySentError, match="1 of 3") as raised:
            await client.queue("orders").send_many(["a", "b", "c"])
        first, second, third = raised.value.outcomes
        assert isinstance(second, QueueFullError)
        assert [getattr(outcome, "offset", None) for outcome in (first, third)] == [0, 1]

    run(work)


# Faults.


@pytest.mark.parametrize("fault", [Fault.LOSE_REQUEST, Fault.LOSE_ANSWER, Fault.OVERLOADED, Fault.NONSENSE])
def test_a_send_whose_answer_is_lost_is_repeated_and_stored_once(fault: Fault) -> None:
    async def work(client: AsyncClient, node: FakeNode) -> None:
        node.faults.append(("POST .*/messages", fault))
        sent = await client.queue("orders").send("tea")
        assert (sent.offset, sent.is_duplicate) == (0, False)
        many = await client.queue("orders").send_many(["a", "b"])
        assert [place.offset for place in many] == [1, 2]
        assert len(node.queue("orders").messages) == 3

    run(work)


def test_messages_that_the_node_asks_to_repeat_are_repeated_in_the_same_request() -> None:
    async def work(client: AsyncClient, node: FakeNode) -> None:
        node.entry_faults += [(0, "timed_out"), (1, "overloaded")]
        sent = await client.queue("orders").send_many(["a", "b", "c"])
        assert [(place.offset, place.is_duplicate) for place in sent] == [(1, False), (2, False), (0, False)]
        first, second = (request.document for request in node.of("POST"))
        assert first == second

    run(work)


def test_without_retries_a_message_gets_no_id_and_a_lost_answer_is_an_error_that_says_maybe() -> None:
    async def work(client: AsyncClient, node: FakeNode) -> None:
        node.faults.append(("POST", Fault.LOSE_ANSWER))
        with pytest.raises(ConnectionLostError):
            await client.queue("orders").send("tea")
        node.faults.append(("POST", Fault.OVERLOADED))
        with pytest.raises(OverloadedError):
            await client.queue("orders").send("tea")
        assert node.queue("orders").messages == [{"body": b"tea"}]

    run(work, config=QueueClientConfig(retries=False))


def test_a_request_has_an_id_and_its_messages_have_none_but_their_own() -> None:
    async def work(client: AsyncClient, node: FakeNode) -> None:
        orders = client.queue("orders")
        await asyncio.gather(orders.send("a"), orders.send("b", deduplication_id="7"), orders.send("c"))
        messages = ["a", OutgoingMessage(body="b", deduplication_id="8"), "c", "d"]
        await orders.send_many(messages)
        requests = [request.document for request in node.of("POST")]
        assert sorted(len(request["messages"]) for request in requests) == [1, 1, 1, 2, 2]
        for request in requests:
            ids = [message.get("deduplication_id") for message in request["messages"]]
            assert ("request_id" in request) == (ids == [None] * len(ids))
        names = [request["request_id"] for request in requests if "request_id" in request]
        assert len(set(names)) == 3

    run(work)


def test_many_messages_with_keys_are_sent_one_batch_after_the_other() -> None:
    async def work(client: AsyncClient, node: FakeNode) -> None:
        bodies = [str(number) for number in range(35)]
        node.faults.append(("POST", Fault.LOSE_REQUEST))
        await client.queue("orders").send_many([OutgoingMessage(body=body, key="k") for body in bodies])
        assert [message["body"].decode() for message in node.queue("orders").messages] == bodies

    run(work, config=msgspec.structs.replace(QUICK, batch_count_max=10))


def test_a_second_send_with_an_id_of_the_caller_is_a_duplicate() -> None:
    async def work(client: AsyncClient, node: FakeNode) -> None:
        orders = client.queue("orders")
        first = await orders.send("tea", deduplication_id="7")
        second = await orders.send("tea", deduplication_id="7")
        assert (first.is_duplicate, second.is_duplicate) == (False, True)
        assert second.offset == first.offset

    run(work)


def test_an_acknowledgement_that_was_lost_on_its_way_is_repeated() -> None:
    async def work(client: AsyncClient, node: FakeNode) -> None:
        await client.queue("orders").send("tea")
        node.faults.append(("acknowledgements", Fault.LOSE_REQUEST))
        await (await one(client)).ack()
        assert node.queue("orders").done == [0]

    run(work)


def test_an_acknowledgement_whose_answer_was_lost_ends_in_doubt_and_not_in_no() -> None:
    async def work(client: AsyncClient, node: FakeNode) -> None:
        await client.queue("orders").send("tea")
        node.faults.append(("acknowledgements", Fault.LOSE_ANSWER))
        with pytest.raises(TimedOutError, match="carried out then"):
            await (await one(client)).ack()
        assert node.queue("orders").done == [0]

    run(work)


def test_silence_ends_at_the_deadline() -> None:
    async def work(client: AsyncClient, node: FakeNode) -> None:
        node.faults.append(("POST", Fault.SILENCE))
        with pytest.raises(TimedOutError, match="within"):
            await client.queue("orders").send("tea")

    run(work, config=QueueClientConfig(deadline_ms=100, retries=False))


def test_an_address_where_nobody_listens_is_an_error_at_once_that_says_what_to_do() -> None:
    async def main() -> None:
        async with fake_node() as node:
            gone = node.address
        with pytest.raises(UnreachableError, match="headrace up"):
            async with AsyncClient([gone]):
                pass
        with pytest.raises(UnreachableError, match="none of"):
            async with AsyncClient([gone, gone]):
                pass

    asyncio.run(main())


def test_the_next_address_is_tried_where_the_first_does_not_answer() -> None:
    async def main() -> None:
        async with fake_node() as gone:
            pass
        async with fake_node() as node, AsyncClient(f"{gone.address},http://{node.address}/") as client:
            await client.queue("orders").send("tea")
            assert len(node.queue("orders").messages) == 1

    asyncio.run(main())


@pytest.mark.parametrize(
    ("server", "words"),
    [
        ("localhost", "write localhost:8080"),
        ("http://localhost", "write localhost:8080"),
        ("http://localhost/", "write localhost:8080"),
        ("https://localhost:1", "TLS"),
        ("HTTPS://localhost:1", "TLS"),
        ("redis://localhost:1", "no HTTP address"),
        ("localhost:99999", "port"),
        ("http://localhost:8080/queues", "leave /queues out"),
        ("::1:8080", "in brackets"),
        ("..:8080", "no valid host"),
        (f"{'a' * 70}.example:8080", "no valid host"),
    ],
)
def test_an_address_that_cannot_be_is_refused(server: str, words: str) -> None:
    with pytest.raises(InvalidRequestError, match=words):
        AsyncClient(server)


@pytest.mark.parametrize("server", ["http://[::1]:8080/", "HTTP://localhost:8080", " [::1]:8080", "bücher.example:1"])
def test_an_address_may_be_written_in_several_ways(server: str) -> None:
    AsyncClient(server)


def test_connections_are_kept_and_never_more_than_allowed() -> None:
    config = QueueClientConfig(connections_max=2, batch_count_max=1, batches_in_flight_max=10)

    async def work(client: AsyncClient, node: FakeNode) -> None:
        orders = client.queue("orders")
        await asyncio.gather(*(orders.send("x") for _ in range(30)))
        assert len(node.of("POST")) == 30
        assert node.connection_count == 2

    run(work, config=config)


def test_errors_of_the_node_are_errors_of_the_tree() -> None:
    async def work(client: AsyncClient, node: FakeNode) -> None:
        with pytest.raises(UnknownQueueError, match="there is no queue absent"):
            await client.queue("absent").receive()
        with pytest.raises(InvalidRequestError, match="404 not_found"):
            await client.queue("orders").cancel_redrive("7")
        assert issubclass(UnknownQueueError, HeadraceError)

    run(work)


# Leases.


def test_a_message_is_acknowledged_when_its_block_ends_well_and_released_when_it_does_not() -> None:
    async def work(client: AsyncClient, node: FakeNode) -> None:
        queue = node.make("orders")
        await client.queue("orders").send("tea")
        with pytest.raises(ZeroDivisionError):
            async with await one(client):
                raise ZeroDivisionError
        assert queue.released == [(0, None)]
        async with await one(client) as message:
            assert message.attempt == 2
        assert queue.done == [0]
        assert message.is_settled

    run(work)


def test_a_handler_says_by_exception_what_is_to_be_done() -> None:
    async def work(client: AsyncClient, node: FakeNode) -> None:
        queue = node.make("orders")
        await client.queue("orders").send("tea")
        async with await one(client):
            raise Retry(0.01)
        async with await one(client):
            raise Retry
        async with await one(client):
            raise Reject("no such tea")
        assert queue.released == [(0, 0.01), (0, None)]
        assert queue.rejected == {0: "no such tea"}

    run(work)


def test_what_a_block_settled_itself_is_left_alone() -> None:
    async def work(client: AsyncClient, node: FakeNode) -> None:
        queue = node.make("orders")
        await client.queue("orders").send_many(["a", "b"])
        async with await one(client) as message:
            await message.release(60)
        message = await one(client)

        async def acknowledge_and_fail() -> None:
            async with message:
                await message.ack()
                raise ZeroDivisionError

        with pytest.raises(ZeroDivisionError):
            await acknowledge_and_fail()
        assert queue.released == [(0, 60.0)]
        assert queue.done == [1]

    run(work)


def test_a_cancelled_block_gives_its_message_back_at_once() -> None:
    async def work(client: AsyncClient, node: FakeNode) -> None:
        queue = node.make("orders")
        await client.queue("orders").send("tea")
        entered = asyncio.Event()

        async def handle() -> None:
            async with await one(client):
                entered.set()
                await asyncio.Event().wait()

        task = asyncio.create_task(handle())
        await entered.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert queue.released == [(0, 0)]

    run(work)


def test_the_error_of_a_block_is_not_hidden_by_a_release_that_fails() -> None:
    async def work(client: AsyncClient, node: FakeNode) -> None:
        await client.queue("orders").send("tea")
        message = await one(client)
        node.queue("orders").leased.clear()
        with pytest.raises(ZeroDivisionError):
            async with message:
                raise ZeroDivisionError

    run(work)


def test_a_lease_is_extended() -> None:
    async def work(client: AsyncClient, node: FakeNode) -> None:
        await client.queue("orders").send("tea")
        (message,) = await client.queue("orders").receive(lease=0.5)
        assert message.lease == 0.5
        await message.extend(timedelta(minutes=2))
        assert node.queue("orders").extended == [(0, 120.0)]

    run(work)


def test_messages_come_one_by_one_and_those_left_over_are_given_back() -> None:
    async def work(client: AsyncClient, node: FakeNode) -> None:
        queue = node.make("orders")
        await client.queue("orders").send_many([str(number) for number in range(8)])
        seen = []
        messages = client.queue("orders").messages(batch=5)
        async for message in messages:
            await message.ack()
            seen.append(message.text)
            if message.text == "6":
                break
        await messages.aclose()  # type: ignore[attr-defined]  # a generator, as the loop's end finds it too
        assert seen == [str(number) for number in range(7)]
        assert queue.given_back == [7]
        rest = [message.text async for message in client.queue("orders").messages(wait=0.02, until_empty=True)]
        assert rest == ["7"]

    run(work)


# The queue itself.


def test_queues_are_made_described_changed_listed_and_purged() -> None:
    async def work(client: AsyncClient, node: FakeNode) -> None:
        orders = client.queue("orders")
        made = await orders.create(lease=60, ordered=True, backoff={"first": 1, "last": 60})
        assert (made.name, made.config["lease"], made.config["ordered"]) == ("orders", 60, True)
        changed = await orders.update(max_deliveries=None)
        assert changed.config["max_deliveries"] is None
        await orders.send("tea")
        assert (await orders.describe()).counts.visible == 1
        assert await orders.purge() == 1
        for name in ("a1", "a2", "a3", "b1"):
            await client.queue(name).create()
        assert await client.queues("a") == ["a1", "a2", "a3"]
        assert await client.queues() == ["a1", "a2", "a3", "b1", "orders"]

    run(work)


def test_addresses_may_be_given_as_values() -> None:
    assert AsyncClient([Address("127.0.0.1", 8080), "localhost:8081"]) is not None
