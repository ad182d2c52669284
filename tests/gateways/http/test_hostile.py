"""Hostile input: whatever arrives, the answer is a refusal with its code or a close, and everybody else is served."""

import random
import socket
from collections.abc import Iterator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.gateways.http.serving import BIG_BYTES, Client, Server, ask, get, serving

from headrace.gateways.http.head_reader import HeadReader
from headrace.gateways.http.limits import HttpLimits
from headrace.gateways.http.message import RefusedError, Request, Response
from headrace.gateways.http.reader import RequestReader
from headrace.gateways.http.router import Found, Route

POST = b"POST /echo HTTP/1.1\r\nHost: x\r\n"
CHUNKED = POST + b"Transfer-Encoding: chunked\r\n\r\n"

REFUSED: dict[str, tuple[bytes, int, str]] = {
    "both lengths": (
        POST + b"Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        400,
        "ambiguous_length",
    ),
    "both lengths, the other way round": (
        POST + b"Transfer-Encoding: chunked\r\nContent-Length: 5\r\n\r\n0\r\n\r\n",
        400,
        "ambiguous_length",
    ),
    "two lengths": (POST + b"Content-Length: 5\r\nContent-Length: 5\r\n\r\nhello", 400, "malformed_request"),
    "a list of lengths": (POST + b"Content-Length: 5, 5\r\n\r\nhello", 400, "malformed_request"),
    "a length with a sign": (POST + b"Content-Length: +5\r\n\r\nhello", 400, "malformed_request"),
    "a length in hexadecimal": (POST + b"Content-Length: 0x5\r\n\r\nhello", 400, "malformed_request"),
    "an empty length": (POST + b"Content-Length:\r\n\r\n", 400, "malformed_request"),
    "a length of forty digits": (POST + b"Content-Length: " + b"9" * 40 + b"\r\n\r\n", 400, "malformed_request"),
    "an encoding beside chunked": (
        POST + b"Transfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n",
        501,
        "unsupported_transfer_encoding",
    ),
    "an encoding that is almost chunked": (POST + b"Transfer-Encoding: xchunked\r\n\r\n", 400, "malformed_request"),
    "chunked twice": (
        POST + b"Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        400,
        "malformed_request",
    ),
    "chunked in HTTP/1.0": (CHUNKED.replace(b"1.1", b"1.0") + b"0\r\n\r\n", 400, "malformed_request"),
    "bare LF": (b"GET /hello HTTP/1.1\nHost: x\n\n", 400, "bare_line_end"),
    "bare LF between headers": (b"GET /hello HTTP/1.1\r\nHost: x\nA: b\r\n\r\n", 400, "bare_line_end"),
    "bare CR in a value": (b"GET /hello HTTP/1.1\r\nHost: x\rA: b\r\n\r\n", 400, "bare_line_end"),
    "a folded header": (b"GET /hello HTTP/1.1\r\nHost: x\r\nA: b\r\n c\r\n\r\n", 400, "folded_header"),
    "a first header that is folded": (b"GET /hello HTTP/1.1\r\n\tHost: x\r\n\r\n", 400, "folded_header"),
    "a space before the colon": (b"GET /hello HTTP/1.1\r\nHost : x\r\n\r\n", 400, "malformed_request"),
    "a header without a name": (b"GET /hello HTTP/1.1\r\nHost: x\r\n: y\r\n\r\n", 400, "malformed_request"),
    "a header without a colon": (b"GET /hello HTTP/1.1\r\nHost: x\r\nfoo\r\n\r\n", 400, "malformed_request"),
    "NUL in a value": (b"GET /hello HTTP/1.1\r\nHost: x\r\nA: b\x00c\r\n\r\n", 400, "malformed_request"),
    "a control character in a value": (b"GET /hello HTTP/1.1\r\nHost: x\x01\r\n\r\n", 400, "malformed_request"),
    "no host": (b"GET /hello HTTP/1.1\r\n\r\n", 400, "missing_host"),
    "two hosts": (b"GET /hello HTTP/1.1\r\nHost: x\r\nHost: y\r\n\r\n", 400, "repeated_header"),
    "two spaces in the first line": (b"GET  /hello HTTP/1.1\r\nHost: x\r\n\r\n", 400, "malformed_request"),
    "a space in the target": (b"GET /hel lo HTTP/1.1\r\nHost: x\r\n\r\n", 400, "malformed_request"),
    "a control character in the target": (b"GET /hel\x07lo HTTP/1.1\r\nHost: x\r\n\r\n", 400, "malformed_request"),
    "bytes above ASCII in the target": (b"GET /h\xc3\xa9llo HTTP/1.1\r\nHost: x\r\n\r\n", 400, "malformed_request"),
    "a fragment in the target": (b"GET /hello#x HTTP/1.1\r\nHost: x\r\n\r\n", 400, "malformed_request"),
    "no version": (b"GET /hello\r\n\r\n", 400, "malformed_request"),
    "another protocol's name": (b"GET /hello RTSP/1.0\r\nHost: x\r\n\r\n", 400, "malformed_request"),
    "HTTP/2 with prior knowledge": (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 505, "unsupported_version"),
    "HTTP/1.2": (b"GET /hello HTTP/1.2\r\nHost: x\r\n\r\n", 505, "unsupported_version"),
    "an unknown method": (b"BREW /hello HTTP/1.1\r\nHost: x\r\n\r\n", 501, "unknown_method"),
    "a method in small letters": (b"get /hello HTTP/1.1\r\nHost: x\r\n\r\n", 501, "unknown_method"),
    "a TLS handshake": (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", 400, "malformed_request"),
    "a Kafka request": (b"\x00\x00\x00\x1a\x00\x12\x00\x03\x00\x00\x00\x01", 400, "malformed_request"),
    "two empty lines": (b"\r\n\r\nGET /hello HTTP/1.1\r\nHost: x\r\n\r\n", 400, "malformed_request"),
    "a compressed body": (
        POST + b"Content-Encoding: gzip\r\nContent-Length: 2\r\n\r\nhi",
        415,
        "unsupported_content_encoding",
    ),
    "a compressed body in chunks": (
        POST + b"Content-Encoding: br\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nhi\r\n0\r\n\r\n",
        415,
        "unsupported_content_encoding",
    ),
    "another expectation": (POST + b"Expect: a-miracle\r\nContent-Length: 1\r\n\r\nx", 417, "unknown_expectation"),
    "a chunk size that is not one": (CHUNKED + b"xyz\r\n", 400, "malformed_chunk"),
    "a chunk size with a sign": (CHUNKED + b"-1\r\n", 400, "malformed_chunk"),
    "a chunk size with a prefix": (CHUNKED + b"0x5\r\nhello\r\n0\r\n\r\n", 400, "malformed_chunk"),
    "no chunk size": (CHUNKED + b"\r\nhello\r\n", 400, "malformed_chunk"),
    "a chunk size of seventeen digits": (CHUNKED + b"1" * 17 + b"\r\n", 400, "malformed_chunk"),
    "a chunk that is longer than it says": (CHUNKED + b"2\r\nhello\r\n0\r\n\r\n", 400, "malformed_chunk"),
    "a chunk size that ends with LF": (CHUNKED + b"5\nhello\r\n0\r\n\r\n", 400, "malformed_chunk"),
    "a bare LF in an extension": (CHUNKED + b"5;a\nb\r\nhello\r\n0\r\n\r\n", 400, "malformed_chunk"),
    "a bare CR in an extension": (CHUNKED + b"5;a\rb\r\nhello\r\n0\r\n\r\n", 400, "malformed_chunk"),
    "an endless extension": (CHUNKED + b"5;" + b"a" * 5000, 400, "malformed_chunk"),
    "a folded trailer": (CHUNKED + b"0\r\nA: b\r\n c\r\n\r\n", 400, "malformed_chunk"),
    "a trailer without a name": (CHUNKED + b"0\r\nnonsense\r\n\r\n", 400, "malformed_chunk"),
    "a body behind a path that is not there": (
        POST.replace(b"echo", b"x") + b"Content-Length: 9\r\n\r\n",
        404,
        "not_found",
    ),
}


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with serving() as started:
        yield started


@pytest.mark.parametrize("name", REFUSED)
def test_it_is_refused_with_its_code(server: Server, name: str) -> None:
    raw, status, code = REFUSED[name]
    answer = ask(server, raw)
    assert (answer.status, answer.problem["code"]) == (status, code)


@pytest.mark.parametrize("name", REFUSED)
def test_nothing_behind_a_refused_request_is_served(server: Server, name: str) -> None:
    served = len(server.served)
    with Client(server) as client:
        client.send(get("/hello?before") + REFUSED[name][0] + get("/hello?smuggled"))
        assert client.answer().status == 200
        assert client.answer().status == REFUSED[name][1]
        assert client.is_at_end()
    assert len(server.served) == served + 1


def test_a_body_that_says_it_is_not_compressed_is_taken(server: Server) -> None:
    plain = POST + b"Connection: close\r\nContent-Encoding: identity\r\nContent-Length: 2\r\n\r\nhi"
    assert ask(server, plain).status == 200
    nothing = get("/hello", "Connection: close", "Content-Encoding: gzip")
    assert ask(server, nothing).status == 200, "there is no body to speak of"


def test_a_refused_head_request_gets_no_body(server: Server) -> None:
    with Client(server) as client:
        client.send(b"HEAD /x HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n\r\n")
        assert client.answer(to_head=True).status == 404
        assert client.is_at_end()


def test_a_head_above_its_limit_is_refused_wherever_its_bytes_are() -> None:
    with serving(head_bytes_max=1000) as server:
        for raw, refused in (
            (b"GET /" + b"a" * 1000, (414, "target_too_long")),
            (get("/" + "a" * 1000), (414, "target_too_long")),
            (b"A" * 1001, (414, "target_too_long")),
            (get("/hello", "A: " + "b" * 1000), (431, "head_too_large")),
            (get("/" + "a" * 900, "A: " + "b" * 100), (431, "head_too_large")),
            (get("/hello", *(f"A{n}: b" for n in range(200))), (431, "head_too_large")),
        ):
            answer = ask(server, raw)
            assert (answer.status, answer.problem["code"]) == refused
        with Client(server) as client:
            client.send(get("/hello", "A: " + "b" * 900))
            assert client.answer().status == 200


def test_too_many_headers_are_refused(server: Server) -> None:
    answer = ask(server, get("/hello", *(f"A{n}: b" for n in range(100))))
    assert (answer.status, answer.problem["code"]) == (431, "head_too_large")


def test_a_body_above_its_limit_is_refused_before_it_is_sent_and_by_its_sum() -> None:
    with serving(body_bytes_max=1000) as server:
        answer = ask(server, POST + b"Content-Length: 1001\r\n\r\n")
        assert (answer.status, answer.problem["code"]) == (413, "body_too_large")
        assert ask(server, CHUNKED + b"3e9\r\n").problem["code"] == "body_too_large"
        assert ask(server, CHUNKED + b"c8\r\n%b\r\n" % (b"x" * 200) * 6).problem["code"] == "body_too_large"
        assert ask(server, CHUNKED + b"ffffffff\r\n").problem["code"] == "body_too_large"
        with Client(server) as client:
            client.send(POST + b"Content-Length: 1000\r\n\r\n" + b"x" * 1000)
            assert client.answer().body == b"x" * 1000


def test_a_client_that_sends_a_refused_body_all_the_same_reads_the_refusal() -> None:
    with serving(body_bytes_max=1000) as server, Client(server) as client:
        client.send(POST + b"Content-Length: 3000000\r\n\r\n" + b"x" * 3_000_000)
        assert client.answer().status == 413
        assert client.is_at_end()


def test_a_client_that_never_stops_sending_is_cut() -> None:
    with serving(body_bytes_max=1000, linger_bytes_max=100_000) as server, Client(server) as client:
        client.send(POST + b"Content-Length: 100000000\r\n\r\n")
        with pytest.raises(OSError):
            client.send(b"x" * 100_000_000)


def test_chunks_of_one_byte_are_refused_by_what_they_cost() -> None:
    with serving(chunk_overhead_bytes_max=1000) as server:
        answer = ask(server, CHUNKED + b"1\r\nx\r\n" * 1000)
        assert (answer.status, answer.problem["code"]) == (413, "chunks_too_small")
        assert ask(server, CHUNKED + b"0\r\n" + b"A: b\r\n" * 1000).problem["code"] == "chunks_too_small"


def test_bodies_of_all_connections_together_are_bounded_and_given_back() -> None:
    with serving(bodies_in_flight_bytes_max=1000) as server:
        with Client(server) as holder:
            holder.send(POST + b"Content-Length: 900\r\n\r\n" + b"x" * 899)
            server.wait(lambda: server.listener.bodies_in_flight_bytes == 899, "the body is held")
            answer = ask(server, POST + b"Content-Length: 200\r\n\r\n" + b"y" * 200)
            assert (answer.status, answer.problem["code"]) == (503, "overloaded")
            assert answer.headers["retry-after"] == "1"
            holder.send(b"x")
            assert holder.answer().body == b"x" * 900
            holder.send(POST + b"Content-Length: 900\r\n\r\n" + b"x" * 500)
            server.wait(lambda: server.listener.bodies_in_flight_bytes == 500, "the next body is held")
        server.wait(lambda: server.listener.bodies_in_flight_bytes == 0, "the body is given back")


def test_a_head_that_comes_a_byte_at_a_time_ends_at_its_deadline() -> None:
    with serving() as server, Client(server) as slow:
        raw = get("/hello", "A: " + "b" * 100)
        for position in range(20):
            slow.send(raw[position : position + 1])
            server.wait_received(position + 1)
            server.elapse(server.limits.head_deadline_ms // 20 - server.limits.sweep_ms)
        server.elapse(server.limits.sweep_ms)
        answer = slow.answer()
        assert (answer.status, answer.problem["code"]) == (408, "request_timeout")
        assert slow.is_at_end()
        server.elapse(server.limits.linger_ms)
        server.wait(lambda: server.listener.connection_count == 0, "the connection is gone")


@pytest.mark.parametrize("head", [POST + b"Content-Length: 10\r\n\r\n", CHUNKED + b"A\r\n"])
def test_a_body_that_does_not_come_ends_at_its_deadline(head: bytes) -> None:
    with serving() as server, Client(server) as slow:
        slow.send(head + b"12345")
        server.wait_received(len(head) + 5)
        server.elapse(server.limits.body_deadline_ms)
        assert slow.answer().problem["code"] == "request_timeout"
        assert slow.is_at_end()


def test_an_idle_connection_is_closed_without_a_word() -> None:
    with serving() as server, Client(server) as fresh, Client(server) as used:
        used.send(get())
        assert used.answer().status == 200
        server.wait(lambda: server.listener.connection_count == 2, "both are connected")
        server.elapse(server.limits.idle_ms_max)
        assert fresh.is_at_end()
        assert used.is_at_end()


def test_an_answer_that_does_not_come_is_given_up_at_its_deadline() -> None:
    with serving() as server, Client(server) as client:
        client.send(get("/gated?never") + get("/hello"))
        server.wait(lambda: "/hello" in server.served, "both are served")
        server.elapse(server.limits.answer_deadline_ms)
        answer = client.answer()
        assert (answer.status, answer.problem["code"]) == (504, "timed_out")
        assert client.answer().status == 200
        server.wait(lambda: server.cancelled == ["never"], "the route is cancelled")


def test_a_change_that_is_overdue_is_carried_out_all_the_same() -> None:
    with serving() as server, Client(server) as client:
        client.send(get("/gated?late", "Content-Length: 4", method="POST") + b"body")
        server.wait(lambda: "late" in server.served, "it is served")
        server.elapse(server.limits.answer_deadline_ms)
        answer = client.answer()
        assert (answer.status, answer.problem["code"]) == (504, "timed_out")
        assert server.listener.bodies_in_flight_bytes == 4
        server.open_gate("late")
        server.wait(lambda: server.finished == ["late"], "it is carried out")
        server.wait(lambda: server.listener.bodies_in_flight_bytes == 0, "its body is let go")


def test_a_reader_that_never_reads_is_held_back_and_then_cut() -> None:
    with serving(write_pause_bytes=64 * 1024) as server, Client(server, receive_bytes=4096) as deaf:
        asked = 200
        deaf.send(get("/big") * asked)
        server.wait(lambda: server.counters.requests.get(("/big", 200), 0) > 0, "the first is answered")
        with Client(server) as other:
            other.send(get())
            assert other.answer().status == 200
        # What is not taken is not produced: all of it would be 200 MiB.
        assert server.counters.bytes_out < 20 * BIG_BYTES
        server.elapse(server.limits.write_deadline_ms)
        server.elapse(server.limits.write_deadline_ms)
        server.wait(lambda: server.counters.closed_for_cause == {"answers_not_taken": 1}, "it is cut")


def test_a_slow_reader_that_makes_progress_gets_everything() -> None:
    with serving(write_pause_bytes=64 * 1024) as server, Client(server, receive_bytes=4096) as slow:
        slow.send(get("/big") * 5)
        for _ in range(5):
            assert len(slow.answer().body) == BIG_BYTES


def test_connections_above_the_cap_are_refused_and_those_below_served() -> None:
    with serving(connections_max=3) as server:
        clients = [Client(server) for _ in range(3)]
        for client in clients:
            client.send(get())
            assert client.answer().status == 200
        with Client(server) as above:
            answer = above.answer()
            assert (answer.status, answer.problem["code"]) == (503, "overloaded")
            assert above.is_at_end()
        assert server.counters.connections_refused == 1
        clients.pop().__exit__()
        server.wait(lambda: server.listener.connection_count == 2, "one has gone")
        with Client(server) as again:
            again.send(get())
            assert again.answer().status == 200
        for client in clients:
            client.__exit__()


def test_connections_of_one_address_have_a_cap_of_their_own() -> None:
    with serving(connections_for_address_max=1) as server, Client(server) as first:
        first.send(get())
        assert first.answer().status == 200
        with Client(server) as second:
            assert second.answer().status == 503
        with socket.create_connection(server.address, timeout=10, source_address=("127.0.0.2", 0)) as other:
            other.sendall(get())
            assert other.recv(12) == b"HTTP/1.1 200"


def test_random_bytes_and_cut_requests_disturb_nobody() -> None:
    with serving() as server:
        _disturb(server)


def _disturb(server: Server) -> None:
    rand = random.Random(8)
    whole = get() + CHUNKED + b"5\r\nhello\r\n0\r\n\r\n" + POST + b"Content-Length: 3\r\n\r\nabc"
    with Client(server) as witness:
        for _ in range(200):
            raw = bytearray(whole[: rand.randrange(len(whole))])
            for _ in range(rand.randrange(3)):
                raw[rand.randrange(len(raw) or 1) : rand.randrange(len(raw) or 1)] = rand.randbytes(2)
            with Client(server) as client:
                client.send(bytes(raw))
        witness.send(get())
        assert witness.answer().status == 200
    assert server.counters.handler_failures == 0
    server.wait(lambda: server.listener.connection_count <= 1, "all of them are gone")


# Without a socket: how the stream is cut into reads changes nothing.


def _answer(request: Request) -> Response:
    return Response()


def _outcomes(pieces: list[bytes]) -> list[object]:
    limits = HttpLimits(body_bytes_max=50, head_bytes_max=200)
    heads = HeadReader(limits, find=lambda method, path: Found((Route(method, path, _answer),), ()))
    reader = RequestReader(limits, heads=heads)
    found: list[object] = []
    for piece in pieces:
        reader.feed(piece)
        try:
            while (arrived := reader.next()) is not None:
                found.append((arrived.head.target, arrived.head.fields.headers, arrived.body))
        except RefusedError:
            # Which of two reasons is found first may depend on the cut.
            found.append("refused")
            return found
    return found


PARTS = st.sampled_from(
    [
        get("/a"),
        POST + b"Content-Length: 5\r\n\r\nhello",
        CHUNKED + b"5;x=y\r\nhello\r\n0\r\nA: b\r\n\r\n",
        CHUNKED + b"ff\r\n",
        POST + b"Content-Length: 51\r\n\r\n",
        b"\r\n",
        b"GET /" + b"a" * 300,
        b"\n",
        b"\r",
        b"0",
    ]
)


@settings(max_examples=150, deadline=None)
@given(parts=st.lists(PARTS, max_size=5), data=st.data())
def test_how_the_stream_is_cut_changes_nothing(parts: list[bytes], data: st.DataObject) -> None:
    stream = b"".join(parts)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(stream)), max_size=6)))
    pieces = [stream[start:end] for start, end in zip([0, *cuts], [*cuts, len(stream)], strict=True)]
    assert _outcomes(pieces) == _outcomes([stream]) == _outcomes([bytes([byte]) for byte in stream])
