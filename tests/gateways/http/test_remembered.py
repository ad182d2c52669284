"""A head whose bytes were seen before is read as if they had not been."""

from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.gateways.http.head import HeadReader
from headrace.gateways.http.limits import HttpLimits
from headrace.gateways.http.message import RefusedError, Request, Response
from headrace.gateways.http.origin import Hosts
from headrace.gateways.http.router import Found, Route


def _answer(request: Request) -> Response:
    return Response()


def _find(method: str, path: str) -> Found:
    if path.startswith("/no"):
        raise RefusedError(404, "not_found", "nothing here")
    return Found((Route(method, path, _answer),), (path,))


def _reader() -> HeadReader:
    return HeadReader(HttpLimits(), find=_find, hosts=Hosts(is_loopback=True))


def _outcome(reader: HeadReader, block: bytes) -> object:
    try:
        head = reader.read(block)
    except RefusedError as error:
        return (error.status, error.code)
    return head if head.target.refusal is None else head.target.refusal.code


LINES = st.sampled_from(
    [
        b"GET /a HTTP/1.1",
        b"GET /a HTTP/1.0",
        b"GET /no HTTP/1.1",
        b"POST /a?b=c HTTP/1.1",
        b"GET http://localhost/a HTTP/1.1",
        b"GET http://evil/a HTTP/1.1",
        b"BREW /a HTTP/1.1",
        b"CONNECT /a HTTP/1.1",
        b"GET a HTTP/1.1",
        b"GET /a HTTP/1.2",
        b"GET  /a HTTP/1.1",
        b'GET /a"|{ HTTP/1.1',
    ]
)
HEADERS = st.sampled_from(
    [
        b"Host: localhost",
        b"Host: evil",
        b"Content-Length: 5",
        b"Transfer-Encoding: chunked",
        b"Connection: close",
        b"Connection: keep-alive",
        b"X-Request-Id: 7",
        b"Expect: 100-continue",
        b"A: b",
        b" folded",
        b"A : b",
    ]
)
BLOCKS = st.builds(lambda line, headers: b"\r\n".join([line, *headers, b"", b""]), LINES, st.lists(HEADERS, max_size=3))


@settings(max_examples=300, deadline=None)
@given(st.lists(BLOCKS, min_size=1, max_size=12))
def test_the_order_in_which_heads_were_read_changes_nothing(blocks: list[bytes]) -> None:
    remembering = _reader()
    for block in blocks * 2:
        assert _outcome(remembering, block) == _outcome(_reader(), block)


def test_what_is_remembered_is_bounded() -> None:
    reader = _reader()
    for number in range(5_000):
        reader.read(b"GET /%d HTTP/1.1\r\nHost: localhost\r\nA: %d\r\n\r\n" % (number, number))
    assert len(reader._fields) + len(reader._targets) <= 1_024
