"""The client without an event loop of the program's own."""

import asyncio
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import suppress
from functools import partial

import pytest
from tests.client.fake_node import FakeNode
from tests.client.serving import DEADLINE_S, ServedNode, serving_fake

import headrace
from headrace.client.errors import ClosedError, UnreachableError
from headrace.client.settings import QueueClientConfig
from headrace.model.errors import HeadraceError, InvalidRequestError, StaleReceiptError


@pytest.fixture
def node() -> Iterator[ServedNode]:
    with serving_fake() as served:
        yield served


@pytest.fixture
def client(node: ServedNode) -> Iterator[headrace.Client]:
    with headrace.Client(node.server) as opened:
        yield opened


def test_a_first_conversation(client: headrace.Client, node: ServedNode) -> None:
    orders = client.queue("orders")
    assert orders.name == "orders"
    assert orders.send({"tea": 1}, key="alice").id == "0-0"
    (message,) = orders.receive(wait=1)
    with message:
        assert (message.json(), message.key, message.attempt) == ({"tea": 1}, b"alice", 1)
    assert message.is_settled
    assert node.ask(lambda n: n.queue("orders").done) == [0]
    assert client.queues() == ["orders"]


def test_a_block_that_fails_gives_its_message_back(client: headrace.Client, node: ServedNode) -> None:
    orders = client.queue("orders")
    orders.send("tea")
    with pytest.raises(ZeroDivisionError), orders.receive()[0]:
        raise ZeroDivisionError
    with orders.receive(wait=5)[0]:
        raise headrace.Retry(0)
    with orders.receive(wait=5)[0]:
        raise headrace.Reject("cold")
    assert node.ask(lambda n: n.queue("orders").released) == [(0, None), (0, 0)]
    assert node.ask(lambda n: n.queue("orders").rejected) == {0: "cold"}


def test_leases_are_told_about_one_by_one_and_together(client: headrace.Client, node: ServedNode) -> None:
    orders = client.queue("orders")
    orders.send_many(["a", "b", "c", "d", "e"])
    first, second, third, *rest = orders.receive()
    first.extend(60)
    first.ack()
    second.release(60)
    third.reject("no such tea")
    orders.acknowledge_all(rest)
    assert node.ask(lambda n: n.queue("orders").done) == [0, 3, 4]
    assert len(node.ask(lambda n: n.of("acknowledgements"))) == 2
    with pytest.raises(StaleReceiptError):
        orders.acknowledge_all(rest)


def test_two_threads_that_name_a_queue_at_once_get_the_same_one(node: ServedNode) -> None:
    both = threading.Barrier(2)
    asked = threading.local()

    class Name(str):
        """Looked up, and then stored only when the other thread has looked it up as well."""

        __slots__ = ()

        def __hash__(self) -> int:
            asked.count = getattr(asked, "count", 0) + 1
            if asked.count == 2:
                both.wait(DEADLINE_S)
            return str.__hash__(self)

    client = headrace.AsyncClient(node.server)
    found: list[headrace.AsyncQueue] = []
    threads = [threading.Thread(target=lambda: found.append(client.queue(Name("orders")))) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(DEADLINE_S)
    first, second = found
    assert first is second is client.queue("orders")


def test_messages_come_without_end_until_the_loop_is_left(client: headrace.Client, node: ServedNode) -> None:
    orders = client.queue("orders")
    orders.send_many([b"%d" % number for number in range(6)])
    for message in orders.messages(batch=4):
        message.ack()
        if message.text == "2":
            break
    node.wait(lambda n: n.queue("orders").given_back == [3], "the message that was left over is given back")
    assert [m.text for m in orders.messages(wait=0.02, until_empty=True)] == ["3", "4", "5"]


def test_threads_share_a_client_and_their_sends_leave_together(client: headrace.Client, node: ServedNode) -> None:
    orders = client.queue("orders")
    orders.send("first")
    threads = [threading.Thread(target=lambda: [orders.send("x") for _ in range(20)]) for _ in range(10)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(node.ask(lambda n: n.queue("orders").messages)) == 201
    assert len(node.ask(lambda n: n.of("POST"))) < 201


def test_the_queue_itself(client: headrace.Client) -> None:
    orders = client.queue("orders")
    orders.create(lease=5)
    assert orders.update(lease=6).config == {"lease": 6}
    assert orders.describe().name == "orders"
    assert orders.purge() == 0


def test_an_error_leaves_the_client_usable(client: headrace.Client) -> None:
    with pytest.raises(headrace.HeadraceError, match="there is no queue"):
        client.queue("absent").receive()
    client.queue("orders").send("tea")


def test_an_address_where_nobody_listens_is_known_at_once_and_leaves_nothing_running() -> None:
    before = threading.active_count()
    with serving_fake() as node:
        server = node.server
    with pytest.raises(UnreachableError), headrace.Client(server):
        pass
    assert threading.active_count() == before


def test_a_closed_client_says_so_and_may_be_closed_again(node: ServedNode) -> None:
    client = headrace.Client(node.server)
    orders = client.queue("orders")
    orders.send_many(["tea", "coffee"])
    messages = orders.messages()
    assert next(messages).text == "tea"
    client.close()
    client.close()
    with pytest.raises(ClosedError):
        orders.send("milk")
    messages.close()  # type: ignore[attr-defined]  # a generator, as the loop's end finds it too


def in_thread(work: Callable[[], object]) -> "Future[object]":
    """What becomes of some work in a thread, which is left behind if it hangs."""
    future: Future[object] = Future()

    def run() -> None:
        try:
            future.set_result(work())
        except BaseException as error:  # noqa: BLE001 - the test looks at it
            future.set_exception(error)

    threading.Thread(target=run, daemon=True).start()
    return future


def test_a_receive_that_waits_ends_when_another_thread_closes_the_client(node: ServedNode) -> None:
    client = headrace.Client(node.server)
    client.queue("orders").create()
    waiting = in_thread(lambda: client.queue("orders").receive(wait=60))
    node.wait(lambda n: bool(n.of("GET /queues/orders/messages")), "the receive is under way")
    client.close()
    with pytest.raises(ClosedError):
        waiting.result(DEADLINE_S)


def test_a_call_that_tries_again_ends_when_another_thread_closes_the_client() -> None:
    with serving_fake() as node:
        server = node.server
    client = headrace.Client(server, config=QueueClientConfig(retry_pause_ms=600_000, deadline_ms=3_600_000))
    waiting = in_thread(lambda: client.queue("orders").receive(wait=1))
    tried = in_thread(lambda: client.connect())
    assert isinstance(tried.exception(DEADLINE_S), UnreachableError)
    client.close()
    with pytest.raises(ClosedError):
        waiting.result(DEADLINE_S)


def test_threads_that_close_and_call_at_once_never_hang(node: ServedNode) -> None:
    def call(orders: headrace.Queue) -> None:
        with suppress(ClosedError):
            while True:
                orders.send("tea")

    for _ in range(20):
        client = headrace.Client(node.server)
        calls = [in_thread(partial(call, client.queue("orders"))) for _ in range(4)]
        calls += [in_thread(client.close) for _ in range(2)]
        for called in calls:
            called.result(DEADLINE_S)


def test_an_error_in_a_block_is_seen_although_the_client_was_closed_in_it(node: ServedNode) -> None:
    client = headrace.Client(node.server)
    orders = client.queue("orders")
    orders.send_many(["tea", "coffee"])
    tea, coffee = orders.receive()

    def close_and_fail() -> None:
        client.close()
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError), tea, client.transaction():
        close_and_fail()
    with coffee:
        raise headrace.Reject("cold")


def test_a_client_that_came_through_a_fork_says_so_instead_of_hanging(node: ServedNode) -> None:
    program = (
        "import os, sys, headrace\n"
        "with headrace.Client(sys.argv[1]) as client:\n"
        "    client.queue('orders').send('of the parent')\n"
        "    child = os.fork()\n"
        "    if child == 0:\n"
        "        try:\n"
        "            client.queue('orders').send('of the child')\n"
        "        except headrace.HeadraceError as error:\n"
        "            print(error, flush=True)\n"
        "        client.close()\n"
        "        os._exit(0)\n"
        "    os.waitpid(child, 0)\n"
        "    client.queue('orders').send('of the parent again')\n"
    )
    ran = subprocess.run(
        [sys.executable, "-c", program, node.server], check=True, timeout=60, capture_output=True, text=True
    )
    assert "made in another process; make one in each" in ran.stdout
    assert [m["body"] for m in node.ask(lambda n: n.queue("orders").messages)] == [
        b"of the parent",
        b"of the parent again",
    ]


def test_waiting_for_itself_is_refused_instead_of_standing_still(client: headrace.Client, node: ServedNode) -> None:
    def misuse(_: FakeNode) -> type[HeadraceError]:
        with pytest.raises(InvalidRequestError, match="AsyncClient"):
            client_of_loop.run(asyncio.sleep(0))
        return InvalidRequestError

    client_of_loop = node._loop
    assert node.ask(misuse) is InvalidRequestError


def test_importing_the_package_imports_no_client() -> None:
    program = (
        "import sys, headrace\n"
        "assert not [name for name in sys.modules if name.startswith('headrace.')]\n"
        "streams = {'ClientConfig', 'Outgoing', 'StreamClient', 'TopicPartition'}\n"
        "for name in set(headrace.__all__) - streams: getattr(headrace, name)\n"
        "assert not [name for name in sys.modules if name.startswith('headrace.wire')]\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True, timeout=60)
    with pytest.raises(AttributeError, match="no attribute 'Kettle'"):
        headrace.Kettle  # type: ignore[attr-defined]  # noqa: B018
