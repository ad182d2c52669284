"""A head whose bytes were seen before, by anybody or on the same connection, is read as if they had not been."""

from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.gateways.http.head_reader import HeadReader
from headrace.gateways.http.limits import HttpLimits
from headrace.gateways.http.message import RefusedError, Request, Response
from headrace.gateways.http.origin import Hosts
from headrace.gateways.http.reader import RequestReader
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


NAMES = st.sampled_from(
    [
        *(b"Host", b"host", b"Content-Length", b"Transfer-Encoding", b"Connection", b"Expect", b"Content-Encoding"),
        *(
            b"Origin",
            b"Sec-Fetch-Site",
            b"User-Agent",
            b"X-Request-Id",
            b"Authorization",
            b"X-Amz-Date",
            b"A",
            b"",
            b"a b",
            b"\xe9",
        ),
    ]
)
VALUES = st.one_of(
    st.sampled_from([b"localhost", b"evil", b"5", b"05", b"+5", b"5, 5", b"chunked", b"close", b"keep-alive"])
    | st.sampled_from([b"100-continue", b"gzip", b"http://localhost", b"cross-site", b"Mozilla/5.0", b"", b"x" * 300]),
    st.lists(
        st.sampled_from([b" ", b"\t", b"\r", b"\n", b"\0", b"\x7f", b"\x80", b":", b"a", b"~", b"!"]), max_size=4
    ).map(b"".join),
)
ANY_LINES = st.one_of(
    HEADERS,
    st.builds(lambda name, colon, value: name + colon + value, NAMES, st.sampled_from([b": ", b":", b":  "]), VALUES),
)


@settings(max_examples=1000, deadline=None)
@given(LINES, st.lists(st.lists(ANY_LINES, max_size=4), min_size=1, max_size=4))
def test_a_head_that_is_read_line_by_line_says_what_llhttp_says(line: bytes, heads: list[list[bytes]]) -> None:
    reader = _reader()
    _outcome(reader, line + b"\r\nHost: localhost\r\n\r\n")  # so that its request line is known
    for headers in [[b"Host: localhost", *headers] for headers in heads] + heads:
        block = b"\r\n".join([line, *headers, b"", b""])
        end = block.index(b"\r\n\r\n")
        glanced = reader.glance(b"before" + block + b"behind", 6, 6 + end)
        if glanced is not None:
            said = glanced if glanced.target.refusal is None else glanced.target.refusal.code
            assert said == _outcome(_reader(), block[: end + 4])


@settings(max_examples=1000, deadline=None)
@given(LINES, LINES, st.lists(HEADERS, max_size=3))
def test_a_head_whose_headers_are_known_says_what_llhttp_says_behind_any_request_line(
    first: bytes, line: bytes, headers: list[bytes]
) -> None:
    reader = _reader()
    rest = b"\r\n".join([b"", b"Host: localhost", *headers, b"", b""])
    _outcome(reader, first + rest)
    block = line + rest
    end = block.index(b"\r\n\r\n")
    recalled = reader.recall(b"before" + block + b"behind", 6, 6 + end)
    if recalled is not None:
        assert recalled == _outcome(_reader(), block[: end + 4])


def test_an_acknowledgement_is_recalled_though_its_receipt_is_new() -> None:
    reader = _reader()
    rest = b" HTTP/1.1\r\nHost: localhost\r\n\r\n"
    reader.read(b"POST /a" + rest)
    block = b"POST /a?b=new" + rest
    recalled = reader.recall(block, 0, len(block) - 4)
    assert recalled is not None
    assert recalled.target.query == "b=new"


def test_a_signed_request_is_read_line_by_line_and_nothing_of_its_signature_is_kept() -> None:
    reader = _reader()
    opening = b"POST /a HTTP/1.1\r\nHost: localhost\r\nContent-Length: 5\r\nAuthorization: "
    reader.read(opening + b"first\r\n\r\n")
    for number in range(3):
        block = opening + b"%d" % number
        head = reader.glance(block + b"\r\n\r\n", 0, len(block))
        assert head is not None
        assert head.fields.headers["authorization"] == str(number)
        assert head.fields.framing.content_length == 5
    assert not any(b"Authorization" in line for line in reader._lines)


def test_what_is_remembered_is_bounded() -> None:
    reader = _reader()
    for number in range(5_000):
        block = b"GET /a HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\nA: %d" % (number, number)
        reader.read(block.replace(b"/a", b"/%d" % number) + b"\r\n\r\n")
        reader.read(block + b"\r\n\r\n")
        assert reader.glance(block + b"\r\n\r\n", 0, len(block)) is not None
    kept = (reader._fields, reader._targets, reader._lines, reader._framings)
    assert all(100 < len(one) <= 512 for one in kept if one is not reader._targets)
    assert len(reader._targets) <= 512


# On one connection, where the last head is kept whole.


def _said(reader: RequestReader, data: bytes) -> object:
    """What a reader makes of bytes that came in one piece: the whole request, or what is left to be waited for."""
    try:
        arrived = reader.whole(data)
        if arrived is None:
            reader.feed(data)
            arrived = reader.next()
    except RefusedError as error:
        return (error.status, error.code)
    return None if arrived is None else (arrived.head.target[:3], arrived.head.fields, arrived.body)


REQUESTS = st.builds(
    lambda line, headers, body: b"\r\n".join([line, b"Host: localhost", *headers, b"", body]),
    LINES,
    st.lists(HEADERS, max_size=2),
    st.sampled_from([b"", b"hello", b"other", b"more than it says", b"\r\n\r\n+"]),
)


@settings(max_examples=300, deadline=None)
@given(st.lists(REQUESTS, min_size=1, max_size=8))
def test_what_a_connection_sent_before_changes_nothing(requests: list[bytes]) -> None:
    reader = RequestReader(HttpLimits(), heads=_reader())
    for request in requests * 2:
        fresh = RequestReader(HttpLimits(), heads=_reader())
        assert _said(reader, request) == _said(fresh, request)
        reader.clear()  # what was left over is another test's affair


def test_a_head_that_came_before_is_read_once_on_a_connection_and_its_bodies_are_its_own() -> None:
    head = b"POST /a HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer x\r\nContent-Length: 5\r\n\r\n"
    reader = RequestReader(HttpLimits(), heads=_reader())
    assert reader.whole(head + b"first") is None, "nobody has read this head yet"
    reader.feed(head + b"first")
    first = reader.next()
    second = reader.whole(head + b"other")
    assert first is not None
    assert second is not None
    assert second.head is first.head
    assert (first.body, second.body) == (b"first", b"other")
    assert reader.whole(head + b"other" + head) is None, "two requests are not one"
    assert reader.whole(head + b"othe") is None, "nor is a part of one"


# Heads that differ in words alone, as those of a client that signs them.

OPEN_LINES = st.sampled_from(
    [
        (b"Authorization: AWS4 Credential=a/b, Signature=", b"0123"),
        (b"Authorization: ", b"x"),
        (b"X-Amz-Date: ", b"20260101T000000Z"),
        (b"amz-sdk-invocation-id:", b"b2a5-77"),
        (b"X-Request-Id: ", b"one"),
        (b"X-Request-Id: not an id ", b"one"),
        (b"Content-Length: ", b"15"),
    ]
)
WORDS = st.one_of(
    st.text(st.sampled_from("0123456789abc:,;=\"'@"), min_size=1, max_size=4).map(str.encode),
    st.binary(min_size=1, max_size=4),
    st.sampled_from([b" a", b"a ", b"\r\n", b"a\r\nb", b"\r\n\r\n", b"\t", b"\x7f", b"007", b"+1", b"a b"]),
)
OTHER_LINES = st.sampled_from([b"Host: localhost", b"A: b", b"Connection: close", b"Host: evil", b"Expect: x"])


@settings(max_examples=500, deadline=None)
@given(
    st.sampled_from([b"POST /a HTTP/1.1", b"GET /no HTTP/1.1"]),
    st.lists(OPEN_LINES, min_size=1, max_size=4, unique_by=lambda line: line[0][:9].lower()),
    st.lists(OTHER_LINES, max_size=2, unique=True),
    st.lists(st.lists(WORDS, min_size=4, max_size=4), min_size=1, max_size=8),
)
def test_a_head_that_differs_in_words_alone_says_what_llhttp_says(
    line: bytes, opened: list[tuple[bytes, bytes]], others: list[bytes], changes: list[list[bytes]]
) -> None:
    def block(words: list[bytes]) -> bytes:
        lines = [opening + word for (opening, _), word in zip(opened, words, strict=False)]
        return b"\r\n".join([line, *(others or [b"Host: localhost"]), *lines, b"", b""])

    reader = _reader()
    first = block([word for _, word in opened])
    _outcome(reader, first)
    for _ in range(7):
        reader.glance(first, 0, len(first) - 4)
    for words in changes:
        # As long as the words that they stand for, mostly: another length is another stencil's.
        fitting = [(word * 16)[: len(was)] for (_, was), word in zip(opened, words, strict=False)]
        for changed in (block(fitting), block(words)):
            traced = reader.trace(changed, changed.index(b"\r\n\r\n"))
            if traced is not None:
                said = traced if traced.target.refusal is None else traced.target.refusal.code
                assert said == _outcome(_reader(), changed[: changed.index(b"\r\n\r\n") + 4])


SIGNED = (
    b"POST /a HTTP/1.1\r\nHost: localhost\r\nX-Amz-Date: 20260101T000000Z\r\n"
    b"Authorization: AWS4 Credential=a, Signature=%04d\r\nContent-Length: %02d\r\n\r\n"
)


def test_the_heads_of_a_client_that_signs_are_read_by_a_stencil_after_a_few() -> None:
    heads = _reader()
    reader = RequestReader(HttpLimits(), heads=heads)
    for number in range(30):
        # Bodies whose lengths have as many digits, and are not the same.
        body = b"x" * (10 + number)
        _said(reader, SIGNED % (number, len(body)) + body)
    block = SIGNED % (1234, 77)
    traced = heads.trace(block, len(block) - 4)
    assert traced is not None
    assert traced.fields.headers["authorization"] == "AWS4 Credential=a, Signature=1234"
    assert traced.fields.framing.content_length == 77
    later = heads.trace(block.replace(b"=1234", b"=5678"), len(block) - 4)
    assert later is not None
    assert traced.fields.headers["authorization"].endswith("1234"), "what one request said is not another's"
    assert heads.trace(block.replace(b"Credential=a", b"Credential=b"), len(block) - 4) is None
    assert heads.trace(block.replace(b"=1234", b"=1\r\n4"), len(block) - 4) is None
    assert heads.trace(block.replace(b": 77", b": -7"), len(block) - 4) is None


def test_requests_that_are_signed_and_come_in_one_piece_are_whole_whatever_came_before() -> None:
    reader = RequestReader(HttpLimits(), heads=_reader())
    for number in range(40):
        body = b"x" * (number % 3 + 10) + b"\r\n\r\n" * (number % 2)
        whole = SIGNED % (number, len(body)) + body
        assert _said(reader, whole) == _said(RequestReader(HttpLimits(), heads=_reader()), whole)


def test_stencils_are_bounded() -> None:
    reader = _reader()
    for number in range(3_000):
        block = b"POST /a HTTP/1.1\r\nHost: localhost\r\nAuthorization: %s\r\n\r\n" % (b"x" * number)
        if number < 2:
            reader.read(block)
        reader.glance(block, 0, len(block) - 4)
    assert 0 < len(reader._stencils) <= 128
