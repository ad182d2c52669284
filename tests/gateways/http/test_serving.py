"""Well-behaved clients: routes, keep-alive, pipelining, HEAD, bodies, errors as problems."""

import http.client
import json
import logging
from collections.abc import Iterator

import pytest
from tests.gateways.http.serving import Client, Server, ask, get, serving


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with serving() as started:
        yield started


def test_a_common_client_gets_answers_over_one_connection(server: Server) -> None:
    connections = server.counters.connections_total
    client = http.client.HTTPConnection(*server.address, timeout=10)
    for number in range(3):
        client.request("GET", f"/hello?n={number}")
        answer = client.getresponse()
        assert answer.status == 200
        assert answer.headers["Content-Type"] == "application/json"
        assert answer.headers["Date"].endswith("GMT")
        assert json.loads(answer.read()) == {"query": f"n={number}"}
    client.close()
    assert server.counters.connections_total == connections + 1


def test_a_body_arrives_with_a_length_and_in_chunks(server: Server) -> None:
    client = http.client.HTTPConnection(*server.address, timeout=10)
    body = b"0123456789" * 20_000
    client.request("POST", "/echo", body=body)
    assert client.getresponse().read() == body
    client.request("PUT", "/echo", body=iter([b"one ", b"two ", b"three"]), encode_chunked=True)
    assert client.getresponse().read() == b"one two three"
    client.request("GET", "/hello")
    assert client.getresponse().status == 200
    client.close()


@pytest.mark.parametrize(
    ("headers", "body"),
    [
        (("Content-Length: \t3 \t ",), b"abc"),
        (("Transfer-Encoding: chunked  ",), b"3\r\nabc\r\n0\r\n\r\n"),
        (("Content-Length: 3", "Content-Encoding: identity ", "Expect: 100-continue\t"), b"abc"),
    ],
    ids=["length", "chunked", "other headers"],
)
def test_blanks_around_the_value_of_a_header_are_no_part_of_it(
    server: Server, headers: tuple[str, ...], body: bytes
) -> None:
    with Client(server) as client:
        client.send(get("/echo", "X-Request-Id: \tseven \t", *headers, method="POST") + body)
        answer = client.answer()
        while answer.status == 100:
            answer = client.answer()
        assert (answer.status, answer.body) == (200, b"abc")
        assert answer.headers["x-request-id"] == "seven"


def test_chunks_arrive_a_byte_at_a_time_with_extensions_and_trailers(server: Server) -> None:
    raw = get("/echo", "Transfer-Encoding: chunked", method="POST")
    raw += b'3;name="value"\r\nabc\r\nA\r\n0123456789\r\n0\r\nDigest: none\r\n\r\n' + get()
    with Client(server) as client:
        for position in range(len(raw)):
            client.send(raw[position : position + 1])
        assert client.answer().body == b"abc0123456789"
        assert client.answer().status == 200


def test_head_says_what_get_would_without_the_body(server: Server) -> None:
    with Client(server) as client:
        client.send(get("/hello", method="HEAD") + get("/hello") + get("/nowhere", method="HEAD") + get("/hello"))
        head, whole = client.answer(to_head=True), client.answer()
        assert head.headers.pop("x-request-id") != whole.headers.pop("x-request-id")
        assert (head.status, head.headers) == (whole.status, whole.headers)
        assert client.answer(to_head=True).status == 404
        assert client.answer().body == whole.body


def test_pipelined_requests_are_answered_in_their_order(server: Server) -> None:
    count = 500
    with Client(server) as client:
        client.send(b"".join(get(f"/hello?{number}") for number in range(count)))
        for number in range(count):
            assert json.loads(client.answer().body) == {"query": str(number)}


def test_a_slow_answer_holds_back_the_answers_behind_it(server: Server) -> None:
    with Client(server) as client:
        client.send(get("/gated?first") + get("/gated?second") + get("/hello?third"))
        server.wait(lambda: "second" in server.served and "/hello" in server.served, "all three are being served")
        server.open_gate("second")
        server.open_gate("first")
        assert [client.answer().body[:6] for _ in range(3)] == [b"first", b"second", b'{"quer']


def test_more_pipelined_requests_than_may_be_in_flight_wait_their_turn() -> None:
    with serving(requests_in_flight_max=2) as server, Client(server) as client:
        client.send(b"".join(get(f"/gated?{number}") for number in range(5)))
        server.wait(lambda: len(server.served) == 2, "two are being served")
        for number in range(5):
            server.open_gate(str(number))
            assert client.answer().body == str(number).encode()
        assert server.served == ["0", "1", "2", "3", "4"]


def test_connection_close_is_obeyed_and_nothing_behind_it_is_served(server: Server) -> None:
    with Client(server) as client:
        client.send(get("/hello", "Connection: close") + get("/hello?ignored"))
        answer = client.answer()
        assert answer.status == 200
        assert answer.headers["connection"] == "close"
        assert client.is_at_end()


def test_http_1_0_closes_unless_it_asks_to_stay(server: Server) -> None:
    assert ask(server, get(version="1.0")).status == 200
    assert ask(server, b"GET /hello HTTP/1.0\r\n\r\n").status == 200
    with Client(server) as client:
        client.send(get("/hello", "Connection: keep-alive", version="1.0") * 2)
        assert client.answer().headers["connection"] == "keep-alive"
        assert client.answer().status == 200


def test_a_client_that_closes_its_half_still_gets_its_answer(server: Server) -> None:
    with Client(server) as client:
        client.send(get("/gated?half"))
        server.wait(lambda: "half" in server.served, "the request is being served")
        client.socket.shutdown(1)
        server.open_gate("half")
        assert client.answer().body == b"half"
        assert client.is_at_end()


@pytest.mark.parametrize(("method", "path"), [("POST", "/gated"), ("GET", "/gated-change")])
def test_a_change_goes_on_to_its_end_though_its_client_goes_away(server: Server, method: str, path: str) -> None:
    name = f"change-by-{method}"
    with Client(server) as client:
        client.send(get(f"{path}?{name}", "Content-Length: 4", method=method) + b"body")
        server.wait(lambda: name in server.served, "the request is being served")

    def is_alone() -> bool:
        server.elapse(server.limits.linger_ms)
        return server.listener.connection_count == 0

    server.wait(is_alone, "the connection is gone")
    assert server.listener.bodies_in_flight_bytes == 4
    server.open_gate(name)
    server.wait(lambda: name in server.finished, "the change is carried out")
    assert name not in server.cancelled
    server.wait(lambda: server.listener.bodies_in_flight_bytes == 0, "its body is let go")


def test_a_client_that_goes_away_ends_what_only_looks(server: Server) -> None:
    with Client(server) as client:
        client.send(get("/gated?gone"))
        server.wait(lambda: "gone" in server.served, "the request is being served")

    def is_cancelled() -> bool:
        # Its end may be noticed after any of these steps; time counts from there.
        server.elapse(server.limits.linger_ms)
        return "gone" in server.cancelled

    server.wait(is_cancelled, "the request is cancelled")


def test_an_absolute_target_is_read_by_its_path(server: Server) -> None:
    with Client(server) as client:
        client.send(get("http://localhost:1/hello?a=b") + get("http://localhost"))
        assert json.loads(client.answer().body) == {"query": "a=b"}
        assert client.answer().problem["code"] == "not_found"


def test_an_offer_to_upgrade_is_declined_by_answering(server: Server) -> None:
    upgrade = ("Connection: Upgrade, HTTP2-Settings", "Upgrade: h2c", "HTTP2-Settings: AAMAAABkAAQ")
    with Client(server) as client:
        client.send(get("/hello", *upgrade) + get("/hello?next"))
        assert client.answer().status == 200
        assert json.loads(client.answer().body) == {"query": "next"}


def test_one_empty_line_before_a_request_is_passed_over(server: Server) -> None:
    with Client(server) as client:
        client.send(b"\r\n" + get() + b"\r\n" + get())
        assert client.answer().status == client.answer().status == 200


def test_a_client_that_waits_to_be_asked_for_its_body_is_asked_in_order(server: Server) -> None:
    waiting = get("/echo", "Content-Length: 4", "Expect: 100-continue", method="POST")
    with Client(server) as client:
        client.send(get("/gated?ahead") + waiting)
        server.wait(lambda: "ahead" in server.served, "the request ahead is being served")
        server.open_gate("ahead")
        assert client.answer().body == b"ahead"
        assert client.answer().status == 100
        client.send(b"body")
        assert client.answer().body == b"body"
        # One that does not wait is not asked.
        client.send(waiting + b"more")
        assert client.answer().body == b"more"


def test_a_body_that_would_be_refused_is_not_asked_for(server: Server) -> None:
    raw = get("/nowhere", "Content-Length: 4", "Expect: 100-continue", method="POST")
    assert ask(server, raw).problem["code"] == "not_found"


def test_an_unknown_path_and_method_are_refused_and_the_connection_stays(server: Server) -> None:
    with Client(server) as client:
        client.send(
            get("/nowhere") + get("/echo") + get("/hello", method="DELETE") + get("*", method="OPTIONS") + get()
        )
        unknown = client.answer()
        assert (unknown.status, unknown.problem["code"]) == (404, "not_found")
        wrong = client.answer()
        assert (wrong.status, wrong.problem["code"]) == (405, "method_not_allowed")
        assert wrong.headers["allow"] == "POST, PUT"
        assert client.answer().headers["allow"] == "GET, HEAD"
        assert client.answer().status == 404
        assert client.answer().status == 200


def test_errors_of_a_route_are_problems_with_its_code(server: Server, caplog: pytest.LogCaptureFixture) -> None:
    with Client(server) as client, caplog.at_level(logging.ERROR):
        client.send(get("/refuse") + get("/fail-later") + get("/fail") + get())
        assert client.answer().problem["code"] == "busy"
        unknown = client.answer()
        assert (unknown.status, unknown.problem["code"], unknown.problem["retriable"]) == (404, "unknown_topic", True)
        failed = client.answer()
        assert (failed.status, failed.problem["code"]) == (500, "internal")
        assert b"nobody expected" not in failed.body
        assert client.answer().status == 200
    assert "HTTP request failed" in caplog.messages
    assert server.counters.handler_failures == 1


def test_stopping_answers_what_is_being_served_and_closes_the_rest() -> None:
    with serving() as server, Client(server) as busy, Client(server) as idle:
        busy.send(get("/gated?last"))
        server.wait(lambda: "last" in server.served, "the request is being served")
        server.loop.call_soon_threadsafe(lambda: server.loop.call_soon(lambda: server.gates["last"].set()))
        server.run(server.listener.stop())
        answer = busy.answer()
        assert (answer.body, answer.headers["connection"]) == (b"last", "close")
        assert idle.is_at_end()
        assert server.listener.connection_count == 0
