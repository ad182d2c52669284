"""What a request's head says, and how it is read from its bytes.

The connection cuts the head out of the stream at its empty line, so this sees all of it or nothing, and a fresh parser
reads each one: no state is carried from one request to the next, which is what smuggling lives on. llhttp (in
httptools) reads the headers; what it tolerates and proxies read differently is refused before: bare CR or LF, folded
lines, request lines with anything but single spaces, versions other than 1.0 and 1.1, two ways to say a body's length
(RFC 9112 sections 2.2, 5.2, 6.3; 8-security, HTTP smuggling).
"""

import re
from typing import NamedTuple

import httptools
import msgspec

from headrace.gateways.http.message import RefusedError
from headrace.gateways.http.origin import Hosts
from headrace.gateways.http.router import Found

END = b"\r\n\r\n"
TOKEN = rb"[!#$%&'*+.^_`|~0-9A-Za-z-]+"
# A fragment is never sent, so a target has no "#".
_REQUEST_LINE = re.compile(rb"(" + TOKEN + rb') ([!"$-~]+) HTTP/(\d)\.(\d)')
_ABSOLUTE = re.compile(r"https?://([^/?]+)", re.IGNORECASE)
_LENGTH = re.compile(r"[0-9]{1,18}")
# Headers that mean something different when a second one is read, or is not.
_ONCE = frozenset({"host", "content-length", "transfer-encoding", "content-type", "authorization", "expect"})
_REQUEST_ID = re.compile(r"[A-Za-z0-9._:/+=@-]{1,128}")


class Framing(msgspec.Struct, frozen=True, kw_only=True):
    """What the lines behind the request line say of the connection and the body."""

    keep_alive: bool
    is_http_1_0: bool
    content_length: int
    is_chunked: bool
    expects_continue: bool
    is_visit: bool = False  # a browser may have sent this for a page of another site

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


def read_request_id(headers: dict[str, str]) -> str | None:
    given = headers.get("x-request-id")
    return given if given is not None and _REQUEST_ID.fullmatch(given) else None


def check_lines(block: bytes) -> None:
    """Refuse lines that some would take for two, and others for one."""
    check_line_ends(block)
    if b"\r\n " in block or b"\r\n\t" in block:
        raise RefusedError(400, "folded_header", "a header continues on a second line; send each header on one line")


def read_request_line(line: bytes) -> tuple[str, str, int]:
    """Method, target and minor version."""
    match = _REQUEST_LINE.fullmatch(line)
    if match is None:
        raise RefusedError(400, "malformed_request", "the first line is not `METHOD /path HTTP/1.1`")
    method, target, major, minor = match.groups()
    if major != b"1" or minor not in (b"0", b"1"):
        raise RefusedError(505, "unsupported_version", "HTTP/1.1 and HTTP/1.0 are spoken here; use one of them")
    return method.decode(), target.decode(), int(minor)


def read_headers(block: bytes, *, count_max: int) -> dict[str, str]:
    """The headers of a head, its request line and its empty line included, by their names in lower case."""
    collected = _parse(block)
    if len(collected) > count_max:
        raise RefusedError(431, "head_too_large", f"more than {count_max} headers; send fewer")
    headers: dict[str, str] = {}
    for raw_name, raw_value in collected:
        # llhttp strips the blanks in front of a value and leaves those behind it (RFC 9112 section 5.1).
        name, value = raw_name.decode("latin-1").lower(), raw_value.rstrip(b" \t").decode("latin-1")
        if name not in headers:
            headers[name] = value
        elif name in _ONCE:
            raise RefusedError(400, "repeated_header", f"{name} was sent more than once; send it once")
        else:
            headers[name] += f", {value}"
    return headers


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


def origin_form(target: str) -> str:
    """The path and query of a target. Clients of proxies send the whole address (RFC 9112 section 3.2.2)."""
    match = _ABSOLUTE.match(target)
    if match is None:
        return target
    rest = target[match.end() :]
    return rest if rest.startswith("/") else f"/{rest}"


def authority_of(target: str) -> str | None:
    """The host that a target names itself, which only whole addresses do."""
    match = _ABSOLUTE.match(target)
    return match[1] if match else None


def read_framing(headers: dict[str, str], authority: str | None, hosts: Hosts | None, *, is_http_1_0: bool) -> Framing:
    """What the headers say of connection and body, if they may be served at all."""
    if "host" not in headers and not is_http_1_0:
        raise RefusedError(400, "missing_host", "HTTP/1.1 requires a Host header; send one")
    is_visit = hosts is not None and hosts.check(headers, authority=authority)
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
        is_visit=is_visit,
    )


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
