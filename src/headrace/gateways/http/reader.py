"""Requests out of bytes, without I/O: what has arrived goes in, whole requests come out, in order.

A head is cut from the buffer's front at its empty line, checked and routed; then its body, if there is one, is taken
from the front. Whatever cannot be understood or taken raises RefusedError, and after that nothing that follows can be
trusted: the reader is not asked again.
"""

from collections.abc import Callable
from typing import NamedTuple

from headrace.gateways.http.body import Body, ChunkedBody, FixedBody
from headrace.gateways.http.head import END, Head, check_line_ends, parse_head
from headrace.gateways.http.limits import HttpLimits
from headrace.gateways.http.message import RefusedError
from headrace.gateways.http.router import Route


class Arrived(NamedTuple):
    """A whole request, and the route that serves it or why none does."""

    head: Head
    route: Route | RefusedError
    body: bytes


class RequestReader:
    def __init__(self, limits: HttpLimits, *, find: Callable[[str, str], Route]) -> None:
        self._limits = limits
        self._find = find
        self._buffer = bytearray()
        self._scanned = 0  # bytes of the buffer in which the head's end is known not to be
        self._has_skipped_line = False
        # The request whose head has been read and whose body has not.
        self.head: Head | None = None
        self._route: Route | RefusedError | None = None
        self._body: Body | None = None

    @property
    def is_empty(self) -> bool:
        """Whether nothing of a next request has arrived."""
        return not self._buffer and self.head is None

    @property
    def wants_continue(self) -> bool:
        """Whether the peer holds its body back until it is asked for it."""
        return self.head is not None and self.head.expects_continue and not self._buffer and self.body_bytes == 0

    @property
    def body_bytes(self) -> int:
        """How much of an unfinished body is held."""
        return len(self._body.data) if self._body is not None else 0

    def feed(self, data: bytes) -> None:
        self._buffer += data

    def clear(self) -> None:
        self._buffer.clear()
        self.head = self._route = self._body = None

    def next(self) -> Arrived | None:
        """The next request; None as long as it is not there in full."""
        if self.head is None:
            block = self._cut_head()
            if block is None:
                return None
            self._begin(block)
        head, route, body = self.head, self._route, self._body
        assert head is not None
        assert route is not None
        if body is not None:
            body.take(self._buffer)
            if not body.is_done:
                return None
        self.head = self._route = self._body = None
        return Arrived(head, route, bytes(body.data) if body is not None else b"")

    def _cut_head(self) -> bytes | None:
        buffer = self._buffer
        if not self._has_skipped_line and buffer.startswith(b"\r\n"):
            # Some clients end a body with a line that they do not count (RFC 9112 section 2.2).
            self._has_skipped_line = True
            del buffer[:2]
            self._scanned = 0
        end = buffer.find(END, max(self._scanned - len(END) + 1, 0))
        size = len(buffer) if end < 0 else end + len(END)
        if size > self._limits.head_bytes_max:
            raise RefusedError(
                431, "head_too_large", f"request line and headers may have {self._limits.head_bytes_max} bytes together"
            )
        if end < 0:
            # Whoever speaks something else would otherwise wait for an answer until the deadline.
            check_line_ends(buffer)
            if buffer and not 0x21 <= buffer[0] <= 0x7E and buffer != b"\r":
                raise RefusedError(400, "malformed_request", "this is not HTTP; is this the right port?")
            self._scanned = len(buffer)
            return None
        block = bytes(buffer[:size])
        del buffer[:size]
        self._scanned = 0
        self._has_skipped_line = False
        return block

    def _begin(self, block: bytes) -> None:
        limits = self._limits
        head = self.head = parse_head(block, limits)
        try:
            self._route = self._find(head.method, head.path)
        except RefusedError as error:
            if head.has_body:
                # Not worth reading a body for.
                raise
            self._route = error
        if head.is_chunked:
            self._body = ChunkedBody(
                bytes_max=limits.body_bytes_max, overhead_bytes_max=limits.chunk_overhead_bytes_max
            )
        elif head.content_length:
            self._body = FixedBody(head.content_length, bytes_max=limits.body_bytes_max)
