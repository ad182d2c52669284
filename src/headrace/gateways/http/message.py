"""What a route gets and what it gives: a request, an answer, or a refusal in the form of RFC 9457."""

from collections.abc import Mapping
from http import HTTPStatus
from typing import Any

import msgspec

JSON = "application/json"
PROBLEM_JSON = "application/problem+json"
PLAIN_TEXT = "text/plain; charset=utf-8"


# Structs, because one of each is made for every request, and a frozen dataclass takes several times as long to make.
class Request(msgspec.Struct, frozen=True, gc=False):
    method: str
    path: str  # as sent
    query: str  # as sent
    # Names in lower case; several of one name are joined with ", ", where that is allowed at all. Shared by requests
    # with the same headers.
    headers: Mapping[str, str]
    body: bytes
    values: tuple[str, ...] = ()  # what stands in the placeholders of the route's path, decoded, in their order
    id: str = ""  # known to the client as x-request-id


class Response(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    status: int = 200
    content_type: str = PLAIN_TEXT
    body: bytes = b""
    headers: tuple[tuple[str, str], ...] = ()
    id_header: str = "X-Request-Id"  # what the request's id is called

    def __post_init__(self) -> None:
        for _, value in self.headers:
            if not value.isprintable() or not value.isascii():
                raise ValueError(f"a header's value would split or spoil the answer: {value!r}")


class RefusedError(Exception):
    """A request that is not served: the status, a code that does not change, and what to do about it."""

    def __init__(
        self,
        status: int,
        code: str,
        detail: str,
        *,
        headers: tuple[tuple[str, str], ...] = (),
        more: Mapping[str, Any] = {},
    ) -> None:
        super().__init__(detail)
        self.status = status
        self.code = code
        self.detail = detail
        self.headers = headers
        self.more = more  # members of the problem beside the usual ones


def json_response(value: Any, *, status: int = 200) -> Response:
    return Response(status=status, content_type=JSON, body=msgspec.json.encode(value) + b"\n")


# Refusals of the server's own after which the same request can succeed; errors from below say so themselves.
_RETRIABLE = frozenset({408, 429, 503})


def problem(
    status: int, code: str, detail: str, *, headers: tuple[tuple[str, str], ...] = (), more: Mapping[str, Any] = {}
) -> Response:
    """A refusal as the client sees it."""
    value = {
        "type": f"urn:headrace:problem:{code}",
        "title": HTTPStatus(status).phrase,
        "status": status,
        "code": code,
        "detail": detail,
        "retriable": status in _RETRIABLE,
        **more,
    }
    return Response(status=status, content_type=PROBLEM_JSON, body=msgspec.json.encode(value) + b"\n", headers=headers)


def refusal(error: RefusedError) -> Response:
    return problem(error.status, error.code, error.detail, headers=error.headers, more=error.more)


# Answers describe a moment, and nothing in them is for a browser to guess at.
_ALWAYS = b"Cache-Control: no-store\r\nX-Content-Type-Options: nosniff\r\n"
_STATUS_LINES = {status.value: f"HTTP/1.1 {status.value} {status.phrase}\r\n".encode() for status in HTTPStatus}
_WITHOUT_CONTENT = frozenset({204, 304})
CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"
_OPENINGS_MAX = 256
_LENGTH_REMEMBERED_MAX = 4096


class _Lengths(dict[int, bytes]):
    """By a body's length: the line that says it, and the empty line behind."""

    def __missing__(self, length: int) -> bytes:
        line = b"\r\nContent-Length: %d\r\n\r\n" % length
        if length <= _LENGTH_REMEMBERED_MAX:
            self[length] = line
        return line


class Encoder:
    """Answers to bytes. What answers of one second have in common is put together once."""

    def __init__(self) -> None:
        self._date = b""
        # Up to the request's id, by status, type and what the id is called.
        self._openings: dict[tuple[int, str, str], bytes] = {}
        self._lengths = _Lengths()

    def set_date(self, date: str) -> None:
        line = f"Date: {date}\r\n".encode()
        if line != self._date:
            self._date = line
            self._openings.clear()

    def encode(self, response: Response, request: Request, connection: str | None) -> bytes:
        """The answer's bytes. An answer to HEAD says how long the body would be and leaves it out."""
        status, body = response.status, response.body
        opening = self._openings.get((status, response.content_type, response.id_header))
        if opening is None:
            opening = self._open(status, response.content_type, response.id_header)
        if connection is None and not response.headers and status not in _WITHOUT_CONTENT and request.method != "HEAD":
            return b"".join((opening, request.id.encode(), self._lengths[len(body)], body))  # nearly all of them
        opening += request.id.encode()
        if connection is not None or response.headers:
            opening += _lines(response.headers, connection)
        if status in _WITHOUT_CONTENT:
            return opening + b"\r\n\r\n"
        opening += self._lengths[len(body)]
        return opening if request.method == "HEAD" else opening + body

    def _open(self, status: int, content_type: str, id_header: str) -> bytes:
        opening = _STATUS_LINES[status] + self._date + _ALWAYS
        if status not in _WITHOUT_CONTENT:
            opening += f"Content-Type: {content_type}\r\n".encode("latin-1")
        opening += f"{id_header}: ".encode("latin-1")
        if len(self._openings) < _OPENINGS_MAX:
            self._openings[status, content_type, id_header] = opening
        return opening


def _lines(headers: tuple[tuple[str, str], ...], connection: str | None) -> bytes:
    """Lines that follow another, which has no end yet and gets it here."""
    lines = [f"\r\n{name}: {value}" for name, value in headers]
    if connection is not None:
        lines.append(f"\r\nConnection: {connection}")
    return "".join(lines).encode("latin-1")
