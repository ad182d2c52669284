"""Reads the heads of one listener, and remembers what many of them have in common.

Clients repeat themselves, and what the bytes of a head mean is a pure function of them, so the latest are remembered:
request lines with where they lead, all that stood behind one, and single headers. There are four ways to read a head,
from the shortest to the one that knows everything:

- `trace`: it differs from an earlier one in words that always do, as that of every signed or traced request does, and
  is read by a stencil;
- `recall`: all that stands behind its request line was seen before, and that line is plain;
- `glance`: it is read line by line, what is new in it by an expression that takes less than llhttp does;
- `read`: llhttp reads it.

The first three know heads with nothing unusual in them only, and a test holds that their answers are those of the last.
"""

import re
from collections.abc import Callable
from typing import TypeVar

from headrace.gateways.http.head import (
    END,
    TOKEN,
    Fields,
    Framing,
    Head,
    Target,
    authority_of,
    check_lines,
    origin_form,
    read_framing,
    read_headers,
    read_request_id,
    read_request_line,
)
from headrace.gateways.http.limits import HttpLimits
from headrace.gateways.http.message import RefusedError
from headrace.gateways.http.origin import Hosts, is_browser
from headrace.gateways.http.router import Found, refusing
from headrace.gateways.http.stencil import Stencil

K = TypeVar("K")
T = TypeVar("T")

# Of these llhttp has nothing to say that the request line's own expression does not.
_COMMON = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})
# Lines that are different each time, so that remembering them would only push others out; and a line that is for a
# second the same.
_FLEETING_LINES = frozenset(
    {"x-request-id", "authorization", "amz-sdk-invocation-id", "traceparent", "x-amzn-trace-id"}
)
_FLEETING = _FLEETING_LINES | {"x-amz-date"}
# What a stencil leaves open: the body's length too, which is no reason to cut one.
_OPEN = _FLEETING | {"content-length"}
# To cut a stencil costs as much as to read two heads line by line, so not every head is worth one. Clients that do
# several things in turn come round to each of them, since this is a prime.
_CUT_EVERY = 7
# What `read_framing` looks at beside Host, Content-Length and Connection. Few requests have it.
_UNUSUAL = frozenset(
    {"transfer-encoding", "content-encoding", "expect", "origin", "referer", "sec-fetch-site", "sec-fetch-dest"}
)
# A request line that says all by itself. A receipt makes that of an acknowledgement a new one each time.
_PLAIN_TARGET = re.compile(rb'(GET|HEAD|POST|PUT|PATCH|DELETE|OPTIONS) (/[!"$-~]*) HTTP/1\.1')
# A line whose value is printable ASCII without blanks around it, as nearly all are.
_PLAIN_LINE = re.compile(rb"(" + TOKEN + rb"): ?([!-~](?:[ -~]*[!-~])?)")
_REMEMBERED_MAX = 512
_REMEMBERED_BYTES_MAX = 1024
_STENCILS_MAX = 128
_LINE_BYTES_MAX = 128
_HEADER_BYTES_MAX = 256


class _Lines(dict[bytes, tuple[str, str]]):
    """Header lines, and the name and value that each is. KeyError for one that is not plain, or is a browser's."""

    def __missing__(self, line: bytes) -> tuple[str, str]:
        match = _PLAIN_LINE.fullmatch(line)
        if match is None:
            raise KeyError(line)
        name = match[1].decode().lower()
        found = name, match[2].decode()
        if name == "user-agent" and is_browser(found[1]):
            raise KeyError(line)  # what such a request may do depends on headers that are not looked at here
        if len(line) <= _HEADER_BYTES_MAX and name not in _FLEETING_LINES:
            _remember(self, line, found)
        return found


class HeadReader:
    def __init__(self, limits: HttpLimits, *, find: Callable[[str, str], Found], hosts: Hosts | None = None) -> None:
        self._limits = limits
        self._find = find
        self._hosts = hosts
        self._fields: dict[bytes, Fields] = {}
        self._targets: dict[bytes, Target] = {}
        self._lines = _Lines()
        self._framings: dict[tuple[str | None, ...], Framing] = {}  # by the headers that say it
        self._stencils: dict[int, Stencil] = {}  # by the length of their heads
        self._glance_count = 0

    def trace(self, data: bytes, end: int) -> Head | None:
        """The head in front of its empty line there, if it differs from an earlier one in words that always do."""
        stencil = self._stencils.get(end)
        return None if stencil is None else stencil.read(data)

    def recall(self, buffer: bytes | bytearray, at: int, end: int) -> Head | None:
        """The head between here and its empty line, if its bytes are remembered. It is no longer than those were."""
        line_end = buffer.find(b"\r\n", at, end + 2)
        if end - line_end > _REMEMBERED_BYTES_MAX or line_end - at > _LINE_BYTES_MAX:
            return None
        fields = self._fields.get(bytes(buffer[line_end : end + len(END)]))
        if fields is None:
            return None
        line = bytes(buffer[at:line_end])
        target = self._targets.get(line)
        if target is None:
            match = _PLAIN_TARGET.fullmatch(line)
            if match is None:
                return None
            target = self._read_target(line, match[1].decode(), match[2].decode(), 1)
            if target.refusal is not None:
                return None
        return Head(target, fields)

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
        framing = self._framing_of(headers)
        if framing is None:
            return None
        request_id = read_request_id(headers) if "x-request-id" in headers else None
        head = Head(target, Fields(headers, framing, request_id))
        self._glance_count += 1
        if self._glance_count % _CUT_EVERY == 0 and not _FLEETING.isdisjoint(headers):
            self._cut(bytes(buffer[at:end]), lines, head)
        return head

    def _cut(self, block: bytes, lines: list[bytes], head: Head) -> None:
        stencil = Stencil(block, lines, head, open_names=_OPEN, framing_of=self._framing_of)
        _remember(self._stencils, len(block), stencil, count_max=_STENCILS_MAX)

    def _framing_of(self, headers: dict[str, str]) -> Framing | None:
        """What the headers of a head with nothing unusual say of connection and body; None where that is refused."""
        get = headers.get
        said = (get("host"), get("content-length"), get("connection"))
        framing = self._framings.get(said)
        if framing is None:
            try:
                framing = read_framing(headers, None, self._hosts, is_http_1_0=False)
            except RefusedError:
                return None
            _remember(self._framings, said, framing)
        return framing

    def read(self, block: bytes) -> Head:
        """Read a head, its empty line included. Raises RefusedError for what is refused whatever the route."""
        end = block.index(b"\r\n")
        line, rest = block[:end], block[end:]
        fields = self._fields.get(rest)
        check_lines(block)
        method, form, minor = read_request_line(line)
        if fields is None or minor == 0 or method not in _COMMON or not form.startswith("/"):
            fields = self._read_fields(block, form, is_http_1_0=minor == 0)
            self._remember_fields(rest, fields)
        return Head(self._read_target(line, method, form, minor), fields)

    def _read_fields(self, block: bytes, form: str, *, is_http_1_0: bool) -> Fields:
        headers = read_headers(block, count_max=self._limits.headers_max)
        framing = read_framing(headers, authority_of(form), self._hosts, is_http_1_0=is_http_1_0)
        return Fields(headers, framing, read_request_id(headers))

    def _remember_fields(self, rest: bytes, fields: Fields) -> None:
        is_usual = not fields.framing.is_http_1_0 and len(rest) <= _REMEMBERED_BYTES_MAX
        if is_usual and _FLEETING.isdisjoint(fields.headers):
            _remember(self._fields, rest, fields)

    def _read_target(self, line: bytes, method: str, form: str, minor: int) -> Target:
        path, _, query = origin_form(form).partition("?")
        try:
            target = Target(method, path, query, self._find(method, path))
        except RefusedError as error:
            return Target(method, path, query, refusing(error), error)
        # Only what needs nothing else of the head to be read the same way again.
        if minor == 1 and len(line) <= _LINE_BYTES_MAX and method in _COMMON and form.startswith("/"):
            _remember(self._targets, line, target)
        return target


def _remember(latest: dict[K, T], said: K, meaning: T, *, count_max: int = _REMEMBERED_MAX) -> None:
    if len(latest) >= count_max and said not in latest:
        latest.clear()
    latest[said] = meaning
