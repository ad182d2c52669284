"""What a route gets and what it gives: a request, an answer, or a refusal in the form of RFC 9457."""

from collections.abc import Mapping
from http import HTTPStatus
from typing import Any

import msgspec

JSON = "application/json"
PROBLEM_JSON = "application/problem+json"
PLAIN_TEXT = "text/plain; charset=utf-8"


# Structs, because one of each is made for every request, and a frozen dataclass takes several times as long to make.
class Request(msgspec.Struct, frozen=True, kw_only=True):
    method: str
    path: str  # as sent: percent-encoding is the route's to decode
    query: str
    # Names in lower case; several of one name are joined with ", ", where that is allowed at all.
    headers: Mapping[str, str]
    body: bytes


class Response(msgspec.Struct, frozen=True, kw_only=True):
    status: int = 200
    content_type: str = PLAIN_TEXT
    body: bytes = b""
    headers: tuple[tuple[str, str], ...] = ()

    def __post_init__(self) -> None:
        for _, value in self.headers:
            if not value.isprintable() or not value.isascii():
                raise ValueError(f"a header's value would split or spoil the answer: {value!r}")


class RefusedError(Exception):
    """A request that is not served: the status, a code that does not change, and what to do about it."""

    def __init__(self, status: int, code: str, detail: str, *, headers: tuple[tuple[str, str], ...] = ()) -> None:
        super().__init__(detail)
        self.status = status
        self.code = code
        self.detail = detail
        self.headers = headers


def json_response(value: Any, *, status: int = 200) -> Response:
    return Response(status=status, content_type=JSON, body=msgspec.json.encode(value) + b"\n")


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
        **more,
    }
    return Response(status=status, content_type=PROBLEM_JSON, body=msgspec.json.encode(value) + b"\n", headers=headers)


def refusal(error: RefusedError) -> Response:
    return problem(error.status, error.code, error.detail, headers=error.headers)


# Answers describe a moment, and nothing in them is for a browser to guess at.
_ALWAYS = b"Cache-Control: no-store\r\nX-Content-Type-Options: nosniff\r\n"
_STATUS_LINES = {status.value: f"HTTP/1.1 {status.value} {status.phrase}\r\n".encode() for status in HTTPStatus}
CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"


def encode(response: Response, *, date: bytes, connection: str | None, without_body: bool) -> bytes:
    """The answer's bytes. An answer to HEAD says how long the body would be and leaves it out."""
    lines = [f"Content-Type: {response.content_type}\r\nContent-Length: {len(response.body)}\r\n"]
    for name, value in response.headers:
        lines.append(f"{name}: {value}\r\n")
    if connection is not None:
        lines.append(f"Connection: {connection}\r\n")
    head = b"%b%b%b%b\r\n" % (_STATUS_LINES[response.status], date, _ALWAYS, "".join(lines).encode("latin-1"))
    return head if without_body else head + response.body
