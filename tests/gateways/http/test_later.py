"""Answers that a promise brings, and waits that end when nobody waits."""

import json

import pytest
from tests.gateways.http.serving import UNSPEAKABLE, Client, Server, get, serving

from headrace.model.errors import UnknownQueueError


def wait_served(server: Server, *names: str) -> None:
    server.wait(lambda: set(names) <= set(server.served), f"{names} are being served")


def test_a_kept_promise_is_answered_in_the_order_of_the_requests() -> None:
    with serving() as server, Client(server) as client:
        client.send(get("/promised?a") + get("/promised?b") + get("/hello"))
        wait_served(server, "a", "b", "/hello")
        server.call(lambda: server.promises["b"].keep("second"))
        server.call(lambda: server.promises["a"].keep("first"))
        assert [client.answer().body for _ in range(2)] == [b"first", b"second"]
        assert client.answer().status == 200
        assert server.ended == []


def test_a_broken_promise_is_answered_with_its_error() -> None:
    with serving() as server, Client(server) as client:
        client.send(get("/promised?a"))
        wait_served(server, "a")
        server.call(lambda: server.promises["a"].fail(UnknownQueueError("there is no queue orders; create it")))
        assert client.answer().problem["code"] == "unknown_queue"


@pytest.mark.parametrize("gate", ["a", "b"])
def test_a_client_that_goes_away_ends_its_waits_whether_kept_or_not(gate: str) -> None:
    with serving() as server:
        with Client(server) as client:
            client.send(get("/gated?ahead") + get("/promised?a") + get("/promised?b"))
            wait_served(server, "ahead", "a", "b")
            # Kept, and not written, since the one ahead is not answered: what it hands out must not be lost.
            server.call(lambda: server.promises[gate].keep("messages"))

        def has_ended() -> bool:
            server.elapse(server.limits.linger_ms)
            return set(server.ended) == {"a", "b"}

        server.wait(has_ended, "both waits have ended")


def test_a_client_that_closes_its_half_ends_its_wait_at_once() -> None:
    with serving() as server, Client(server) as client:
        client.send(get("/promised?a"))
        wait_served(server, "a")
        client.socket.shutdown(1)
        assert client.answer().problem["code"] == "shutting_down"
        assert server.ended == ["a"]
        assert client.is_at_end()


def test_stopping_ends_waits_and_answers_them() -> None:
    with serving() as server, Client(server) as client:
        client.send(get("/promised?a"))
        wait_served(server, "a")
        server.run(server.listener.stop())
        answer = client.answer()
        assert (answer.status, answer.headers["connection"]) == (503, "close")
        assert server.ended == ["a"]


def test_a_promise_that_is_not_kept_in_time_is_given_up_and_may_be_kept_later() -> None:
    with serving() as server, Client(server) as client:
        client.send(get("/promised?a"))
        wait_served(server, "a")
        server.elapse(server.limits.answer_deadline_ms)
        assert client.answer().problem["code"] == "timed_out"
        assert server.ended == ["a"]
        server.call(lambda: server.promises["a"].keep("too late"))
        client.send(get())
        assert client.answer().status == 200


def test_a_request_id_is_taken_over_if_it_is_sane_and_else_made() -> None:
    with serving() as server, Client(server) as client:
        client.send(get("/named/a/of/b%2Fc", "X-Request-Id: trace-7"))
        answer = client.answer()
        assert (answer.headers["x-request-id"], json.loads(answer.body)) == ("trace-7", ["trace-7", "a", "b/c"])
        made = set()
        for headers in ((), ("X-Request-Id: a b",), ("X-Request-Id: " + "a" * 200,), ()):
            client.send(get("/nowhere", *headers))
            made.add(client.answer().headers["x-request-id"])
        assert len(made) == 4
        assert not made & {"a b", "a" * 200}


def test_a_client_that_sends_one_by_one_without_reading_is_held_back_too() -> None:
    with serving(requests_in_flight_max=2) as server, Client(server) as client:
        for number in range(4):
            client.send(get(f"/promised?{number}"))
            server.wait(lambda: len(server.served) >= min(number + 1, 2), "what may be in flight is being served")  # noqa: B023
        assert server.served == ["0", "1"]
        for number in range(4):
            server.wait(lambda: str(number) in server.promises, "it is being served")  # noqa: B023
            server.call(lambda: server.promises[str(number)].keep("done"))  # noqa: B023
            assert client.answer().body == b"done"


def test_an_answer_that_was_made_before_its_promise_is_kept_is_sent_when_it_is() -> None:
    with serving() as server, Client(server) as client:
        client.send(get("/promised?a") + get("/hello"))
        wait_served(server, "a", "/hello")
        server.call(lambda: server.promises["a"].foresee("first"))
        assert server.call(lambda: list(server.rendered)) == ["first"]
        assert not client.has_answer(), "it is not certain yet"
        server.call(lambda: server.promises["a"].keep("first"))
        assert client.answer().body == b"first"
        assert client.answer().status == 200
        assert server.rendered == ["first"], "it was made once"


def test_an_answer_that_was_made_is_not_sent_if_its_promise_is_broken() -> None:
    with serving() as server, Client(server) as client:
        client.send(get("/promised?a"))
        wait_served(server, "a")
        server.call(lambda: server.promises["a"].foresee("first"))
        server.call(lambda: server.promises["a"].fail(UnknownQueueError("there is no queue orders; create it")))
        assert client.answer().problem["code"] == "unknown_queue"


def test_an_answer_that_could_not_be_made_before_is_a_failure_when_it_is_due() -> None:
    with serving() as server, Client(server) as client:
        client.send(get("/promised?a"))
        wait_served(server, "a")
        server.call(lambda: server.promises["a"].foresee(UNSPEAKABLE))
        assert server.call(lambda: server.counters.handler_failures) == 0
        server.call(lambda: server.promises["a"].keep(UNSPEAKABLE))
        assert client.answer().status == 500
        assert server.call(lambda: server.counters.handler_failures) == 1
