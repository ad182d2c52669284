"""A request's head: one block of bytes in, a checked value out.

The connection cuts the head out of the stream at its empty line, so this sees all of it or nothing, and a fresh parser
reads each one: no state is carried from one request to the next, which is what smuggling lives on. llhttp (in
httptools) reads the headers; what it tolerates and proxies read differently is refused before: bare CR or LF, folded
lines, request lines with anything but single spaces, versions other than 1.0 and 1.1, two ways to say a body's length
(RFC 9112 sections 2.2, 5.2, 6.3; 8-security, HTTP smuggling).

Clients repeat themselves, and what the bytes of a head mean is a pure function of them, so `HeadReader` remembers the
latest: request lines with where they lead, all that stood behind one, and single headers. A head that is remembered is
read by two look-ups (`recall`). One that differs in a line or two, as every signed or traced request does, is read
line by line (`glance`), what is new in it by an expression that takes less than llhttp does. Both know heads with
nothing unusual in them only, and a test holds that their answers are those of `read`.
"""

import re
from collections.abc import Callable
from typing import NamedTuple, TypeVar

import httptools
import msgspec

from headrace.gateways.http.limits import HttpLimits
from headrace.gateways.http.message import RefusedError
from headrace.gateways.http.origin import Hosts
from headrace.gateways.http.router import Found, refusing

K = TypeVar("K")
T = TypeVar("T")

END = b"\r\n\r\n"

_TOKEN = rb"[!#$%&'*+.^_`|~0-9A-Za-z-]+"
# A fragment is never sent, so a target has no "#".
_REQUEST_LINE = re.compile(rb"(" + _TOKEN + rb') ([!"$-~]+) HTTP/(\d)\.(\d)')
_ABSOLUTE = re.compile(r"https?://([^/?]+)", re.IGNORECASE)
_LENGTH = re.compile(r"[0-9]{1,18}")
# Headers that mean something different when a second one is read, or is not.
_ONCE = frozenset({"host", "content-length", "transfer-encoding", "content-type", "authorization", "expect"})


# Of these llhttp has nothing to say that the request line's own expression does not.
_COMMON = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})
_REQUEST_ID = re.compile(r"[A-Za-z0-9._:/+=@-]{1,128}")
# Lines that are different each time, so that remembering them would only push others out; and a line that is for a
# second the same.
_FLEETING_LINES = frozenset(
    {"x-request-id", "authorization", "amz-sdk-invocation-id", "traceparent", "x-amzn-trace-id"}
)
_FLEETING = _FLEETING_LINES | {"x-amz-date"}
# What `_read_framing` looks at beside Host, Content-Length and Connection. Few requests have it.
_UNUSUAL = frozenset({"transfer-encoding", "content-encoding", "expect", "origin", "sec-fetch-site", "sec-fetch-dest"})
# A line whose value is printable ASCII without blanks around it, as nearly all are.
_PLAIN_LINE = re.compile(rb"(" + _TOKEN + rb"): ?([!-~](?:[ -~]*[!-~])?)")
_REMEMBERED_MAX = 512
_REMEMBERED_BYTES_MAX = 1024
_LINE_BYTES_MAX = 128
_HEADER_BYTES_MAX = 256


class Framing(msgspec.Struct, frozen=True, kw_only=True):
    """What the lines behind the request line say of the connection and the body."""

    keep_alive: bool
    is_http_1_0: bool
    content_length: int
    is_chunked: bool
    expects_continue: bool

    @property
    def has_body(self) -> bool:
        return self.is_chunked or self.content_length > 0


class Fields(msgspec.Struct, frozen=True):
    """What the lines behind the request line say."""

    headers: dict[str, str]
    framing: Framing
    request_id: str | None


class Target(NamedTuple):
    """What the request line says, and where it leads: to a route that refuses, where it leads nowhere."""

    method: str
    path: str
    query: str
    found: Found
    refusal: RefusedError | None = None


class Head(NamedTuple):
    target: Target
    fields: Fields


class _Lines(dict[bytes, tuple[str, str]]):
    """Header lines, and the name and value that each is. KeyError for one that is not plain."""

    def __missing__(self, line: bytes) -> tuple[str, str]:
        match = _PLAIN_LINE.fullmatch(line)
        if match is None:
            raise KeyError(line)
        name = match[1].decode().lower()
        found = name, match[2].decode()
        if len(line) <= _HEADER_BYTES_MAX and name not in _FLEETING_LINES:
            _remember(self, line, found)
        return found


class _Collector:
    """llhttp's callbacks."""

    __slots__ = ("headers",)

    def __init__(self) -> None:
        self.headers: list[tuple[bytes, bytes]] = []

    def on_header(self, name: bytes, value: bytes) -> None:
        self.headers.append((name, value))


def check_line_ends(block: bytes | bytearray) -> None:
    """Refuse bare CR and bare LF, also in a head that has not arrived in full."""
    pairs = block.count(b"\r\n")
    open_end = 1 if block.endswith(b"\r") else 0
    if block.count(b"\n") != pairs or block.count(b"\r") != pairs + open_end:
        raise RefusedError(400, "bare_line_end", "a line of the request ends with CR or LF alone; end lines with CRLF")


class HeadReader:
    """Reads the heads of one listener."""

    def __init__(self, limits: HttpLimits, *, find: Callable[[str, str], Found], hosts: Hosts | None = None) -> None:
        self._limits = limits
        self._find = find
        self._hosts = hosts
        self._fields: dict[bytes, Fields] = {}
        self._targets: dict[bytes, Target] = {}
        self._lines = _Lines()
        self._framings: dict[tuple[str | None, ...], Framing] = {}  # by the headers that say it

    def recall(self, buffer: bytes | bytearray, at: int, end: int) -> Head | None:
        """The head between here and its empty line, if its bytes are remembered. It is no longer than those were."""
        line_end = buffer.find(b"\r\n", at, end + 2)
        if end - line_end > _REMEMBERED_BYTES_MAX or line_end - at > _LINE_BYTES_MAX:
            return None
        fields = self._fields.get(bytes(buffer[line_end : end + len(END)]))
        if fields is None:
            return None
        target = self._targets.get(bytes(buffer[at:line_end]))
        return None if target is None else Head(target, fields)

    def glance(self, buffer: bytes | bytearray, at: int, end: int) -> Head | None:
        """The head between here and its empty line, if its request line is remembered and nothing in it is unusual."""
        line_end = buffer.find(b"\r\n", at, end + 2)
        target = self._targets.get(bytes(buffer[at:line_end]))
        if target is None or end - at > self._limits.head_bytes_max:
            return None
        lines = bytes(buffer[line_end + 2 : end]).split(b"\r\n")
        try:
            headers = dict(map(self._lines.__getitem__, lines))
        except KeyError:
            return None
        if len(headers) < len(lines) or len(lines) > self._limits.headers_max or not _UNUSUAL.isdisjoint(headers):
            return None
        get = headers.get
        said = (get("host"), get("content-length"), get("connection"))
        framing = self._framings.get(said)
        if framing is None:
            try:
                framing = self._read_framing(headers, None, is_http_1_0=False)
            except RefusedError:
                return None
            _remember(self._framings, said, framing)
        return Head(target, Fields(headers, framing, _request_id(headers) if "x-request-id" in headers else None))

    def read(self, block: bytes) -> Head:
        """Read a head, its empty line included. Raises RefusedError for what is refused whatever the route."""
        end = block.index(b"\r\n")
        line, rest = block[:end], block[end:]
        fields = self._fields.get(rest)
        method, form, minor = _check(block, line)
        if fields is None or minor == 0 or method not in _COMMON or not form.startswith("/"):
            fields = self._read_fields(block, form, is_http_1_0=minor == 0)
            self._remember_fields(rest, fields)
        return Head(self._read_target(line, method, form, minor), fields)

    def _read_fields(self, block: bytes, form: str, *, is_http_1_0: bool) -> Fields:
        collected = _parse(block)
        if len(collected) > self._limits.headers_max:
            raise RefusedError(431, "head_too_large", f"more than {self._limits.headers_max} headers; send fewer")
        headers = _by_name(collected)
        absolute = _ABSOLUTE.match(form)
        framing = self._read_framing(headers, absolute[1] if absolute else None, is_http_1_0=is_http_1_0)
        return Fields(headers, framing, _request_id(headers))

    def _read_framing(self, headers: dict[str, str], authority: str | None, *, is_http_1_0: bool) -> Framing:
        """What the headers say of connection and body, if they may be served at all."""
        if "host" not in headers and not is_http_1_0:
            raise RefusedError(400, "missing_host", "HTTP/1.1 requires a Host header; send one")
        if self._hosts is not None:
            self._hosts.check(headers, authority=authority)
        length, is_chunked = _body_length(headers, is_http_1_0=is_http_1_0)
        if (length or is_chunked) and headers.get("content-encoding", "identity").lower() != "identity":
            # Read as if it were not, it would be refused as nonsense, or kept as a message that nobody can read.
            raise RefusedError(
                415,
                "unsupported_content_encoding",
                "the body is compressed, as Content-Encoding says, and is not decompressed here; send it as it is",
                headers=(("Accept-Encoding", "identity"),),
            )
        expect = headers.get("expect")
        if expect is not None and expect.lower() != "100-continue":
            raise RefusedError(417, "unknown_expectation", "Expect takes 100-continue and nothing else; leave it out")
        return Framing(
            keep_alive=_keeps_alive(headers, is_http_1_0=is_http_1_0),
            is_http_1_0=is_http_1_0,
            content_length=length,
            is_chunked=is_chunked,
            expects_continue=expect is not None and not is_http_1_0,
        )

    def _remember_fields(self, rest: bytes, fields: Fields) -> None:
        is_usual = not fields.framing.is_http_1_0 and len(rest) <= _REMEMBERED_BYTES_MAX
        if is_usual and _FLEETING.isdisjoint(fields.headers):
            _remember(self._fields, rest, fields)

    def _read_target(self, line: bytes, method: str, form: str, minor: int) -> Target:
        path, _, query = _origin_form(form).partition("?")
        try:
            target = Target(method, path, query, self._find(method, path))
        except RefusedError as error:
            return Target(method, path, query, refusing(error), error)
        # Only what needs nothing else of the head to be read the same way again.
        if minor == 1 and len(line) <= _LINE_BYTES_MAX and method in _COMMON and form.startswith("/"):
            _remember(self._targets, line, target)
        return target


def _remember(latest: dict[K, T], said: K, meaning: T) -> None:
    if len(latest) >= _REMEMBERED_MAX:
        latest.clear()
    latest[said] = meaning


def _request_id(headers: dict[str, str]) -> str | None:
    given = headers.get("x-request-id")
    return given if given is not None and _REQUEST_ID.fullmatch(given) else None


def _check(block: bytes, line: bytes) -> tuple[str, str, int]:
    check_line_ends(block)
    if b"\r\n " in block or b"\r\n\t" in block:
        raise RefusedError(400, "folded_header", "a header continues on a second line; send each header on one line")
    return _request_line(line)


def _request_line(line: bytes) -> tuple[str, str, int]:
    match = _REQUEST_LINE.fullmatch(line)
    if match is None:
        raise RefusedError(400, "malformed_request", "the first line is not `METHOD /path HTTP/1.1`")
    method, target, major, minor = match.groups()
    if major != b"1" or minor not in (b"0", b"1"):
        raise RefusedError(505, "unsupported_version", "HTTP/1.1 and HTTP/1.0 are spoken here; use one of them")
    return method.decode(), target.decode(), int(minor)


def _parse(block: bytes) -> list[tuple[bytes, bytes]]:
    collector = _Collector()
    parser = httptools.HttpRequestParser(collector)
    try:
        parser.feed_data(block)
    except httptools.HttpParserUpgrade:
        # Offers to upgrade (h2c, which Java's client always makes) are declined by answering in HTTP/1.1.
        pass
    except httptools.HttpParserInvalidMethodError:
        raise RefusedError(501, "unknown_method", "there is no such HTTP method; they are in capitals") from None
    except httptools.HttpParserError as error:
        lower = block.lower()
        if b"\r\ncontent-length:" in lower and b"\r\ntransfer-encoding:" in lower:
            raise _ambiguous_length() from None
        raise RefusedError(400, "malformed_request", f"the request's head cannot be read: {error}") from None
    return collector.headers


def _ambiguous_length() -> RefusedError:
    return RefusedError(
        400, "ambiguous_length", "both Content-Length and Transfer-Encoding were sent; send exactly one of them"
    )


def _by_name(collected: list[tuple[bytes, bytes]]) -> dict[str, str]:
    headers: dict[str, str] = {}
    for raw_name, raw_value in collected:
        name, value = raw_name.decode("latin-1").lower(), raw_value.decode("latin-1")
        if name not in headers:
            headers[name] = value
        elif name in _ONCE:
            raise RefusedError(400, "repeated_header", f"{name} was sent more than once; send it once")
        else:
            headers[name] += f", {value}"
    return headers


def _origin_form(target: str) -> str:
    """The path and query of a target. Clients of proxies send the whole address (RFC 9112 section 3.2.2)."""
    match = _ABSOLUTE.match(target)
    if match is None:
        return target
    rest = target[match.end() :]
    return rest if rest.startswith("/") else f"/{rest}"


def _keeps_alive(headers: dict[str, str], *, is_http_1_0: bool) -> bool:
    options = {option.strip() for option in headers.get("connection", "").lower().split(",")}
    return "close" not in options and (not is_http_1_0 or "keep-alive" in options)


def _body_length(headers: dict[str, str], *, is_http_1_0: bool) -> tuple[int, bool]:
    """How long the body is, or that it is chunked."""
    length, encoding = headers.get("content-length"), headers.get("transfer-encoding")
    if encoding is not None:
        if length is not None:
            raise _ambiguous_length()
        if is_http_1_0:
            raise RefusedError(400, "malformed_request", "HTTP/1.0 has no Transfer-Encoding; send Content-Length")
        if encoding.lower() != "chunked":
            raise RefusedError(501, "unsupported_transfer_encoding", "Transfer-Encoding takes chunked and nothing else")
        return 0, True
    if length is None:
        return 0, False
    if _LENGTH.fullmatch(length) is None:
        raise RefusedError(400, "malformed_request", "Content-Length is not a whole number")
    return int(length), False
