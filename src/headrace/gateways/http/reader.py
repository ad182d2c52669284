"""Requests out of bytes, without I/O: what has arrived goes in, whole requests come out, in order.

A head is cut from the front at its empty line, checked and routed; then its body, if there is one, is taken. Whatever
cannot be understood or taken raises RefusedError, and after that nothing that follows can be trusted: the reader is not
asked again.

What the transport gives is read in place and copied only where a request is not there in full.

Clients repeat themselves on a connection. What a head says is a pure function of its bytes, so the last one is kept,
with what it said: a request that begins with the same bytes and is as long as its head says is read by comparing them.
"""

from typing import NamedTuple

from headrace.gateways.http.body import Body, ChunkedBody, FixedBody
from headrace.gateways.http.head import END, Head, check_line_ends
from headrace.gateways.http.head_reader import HeadReader
from headrace.gateways.http.limits import HttpLimits
from headrace.gateways.http.message import RefusedError

# A longer head is not kept for the next request, which would cost memory in every idle connection.
_LAST_HEAD_BYTES_MAX = 2048


class Arrived(NamedTuple):
    """A whole request."""

    head: Head
    body: bytes


# The tuple's own constructor: that of a named one is a Python function, at twice the time.
_make = tuple.__new__


class RequestReader:
    def __init__(self, limits: HttpLimits, *, heads: HeadReader) -> None:
        self._limits = limits
        self._heads = heads
        self._buffer: bytes | bytearray = b""
        self._at = 0  # where what has not been taken begins
        self._scanned = 0  # from there on, bytes in which the head's end is known not to be
        self._has_skipped_line = False
        # The request whose head has been read and whose body has not.
        self.head: Head | None = None
        self._body: Body | None = None
        # The last head whose request came in one piece, its bytes, and how long they and their body are together.
        self._last: Head | None = None
        self._last_block = b""
        self._last_size = -1
        self._last_end = -1  # where the last head ended whose request came in one piece

    @property
    def is_empty(self) -> bool:
        """Whether nothing of a next request has arrived."""
        return self._at == len(self._buffer) and self.head is None

    @property
    def wants_continue(self) -> bool:
        """Whether the peer holds its body back until it is asked for it."""
        return (
            self.head is not None
            and self.head.fields.framing.expects_continue
            and self._at == len(self._buffer)
            and self.body_bytes == 0
        )

    @property
    def body_bytes(self) -> int:
        """How much of an unfinished body is held."""
        return len(self._body.data) if self._body is not None else 0

    def feed(self, data: bytes) -> None:
        if self._at == len(self._buffer):
            self._buffer, self._at = data, 0
            return
        if isinstance(self._buffer, bytes):
            self._buffer = bytearray(self._buffer[self._at :])
        else:
            del self._buffer[: self._at]
        self._at = 0
        self._buffer += data

    def clear(self) -> None:
        self._buffer, self._at, self._scanned = b"", 0, 0
        self.head = self._body = None

    def next(self) -> Arrived | None:
        """The next request; None as long as it is not there in full."""
        if self.head is None:
            if self._scanned == 0 and (known := self._next_known()) is not None:
                return known
            block = self._cut_head()
            if block is None:
                return None
            self.head = self._heads.read(block)
            whole = self._begin_body(self.head)
            if whole is not None:
                head, self.head = self.head, None
                self._keep(head, block, len(whole))
                return Arrived(head, whole)
        head, body = self.head, self._body
        assert body is not None
        self._at = body.take(self._buffer, self._at)
        if not body.is_done:
            return None
        self.head = self._body = None
        return Arrived(head, bytes(body.data))

    def whole(self, data: bytes) -> Arrived | None:
        """The request that these bytes are, no more and no less, if nothing came before and its head is known."""
        if len(self._buffer) > self._at or self.head is not None:
            return None
        block = self._last_block
        if len(data) == self._last_size and data.startswith(block):
            self._has_skipped_line = False
            return _make(Arrived, (self._last, data[len(block) :]))
        end = self._last_end  # many heads of one client are as long as each other, and only words differ
        head = self._heads.trace(data, end) if data.startswith(END, end) else None
        is_like_last = head is not None
        if head is None:
            end = self._last_end = data.find(END)
            if end < 0 or (head := self._known(data, 0, end)) is None:
                return None
        start, framing = end + len(END), head.fields.framing
        size = framing.content_length
        if start + size != len(data) or framing.is_chunked or size > self._limits.body_bytes_max:
            return None
        self._has_skipped_line = False
        if not is_like_last:
            self._keep(head, data[:start], size)
        return _make(Arrived, (head, data[start:]))

    def _known(self, buffer: bytes | bytearray, at: int, end: int) -> Head | None:
        """The head between here and its empty line, if nothing in it is unusual and its request line is known."""
        heads = self._heads
        head = heads.trace(bytes(buffer[at:end]), end - at)
        return head or heads.recall(buffer, at, end) or heads.glance(buffer, at, end)

    def _keep(self, head: Head, block: bytes, body_size: int) -> None:
        if len(block) <= _LAST_HEAD_BYTES_MAX:
            self._last, self._last_block, self._last_size = head, block, len(block) + body_size

    def _next_known(self) -> Arrived | None:
        """The next request, if all of it is there and its head has been seen before: the road of most requests."""
        buffer, at = self._buffer, self._at
        end = buffer.find(END, at)
        if end < 0:
            return None
        if (head := self._known(buffer, at, end)) is None:
            return None
        start, framing = end + len(END), head.fields.framing
        size = framing.content_length
        if framing.is_chunked or size > self._limits.body_bytes_max or start + size > len(buffer):
            return None
        self._at = start + size
        self._has_skipped_line = False
        return Arrived(head, bytes(buffer[start : self._at]) if size else b"")

    def _cut_head(self) -> bytes | None:
        buffer = self._buffer
        if not self._has_skipped_line and buffer.startswith(b"\r\n", self._at):
            # Some clients end a body with a line that they do not count (RFC 9112 section 2.2).
            self._has_skipped_line = True
            self._at += 2
            self._scanned = 0
        at = self._at
        end = buffer.find(END, at + max(self._scanned - len(END) + 1, 0))
        size = (len(buffer) if end < 0 else end + len(END)) - at
        if size > self._limits.head_bytes_max:
            bytes_max = self._limits.head_bytes_max
            if buffer.find(b"\r\n", at, at + bytes_max) < 0:
                raise RefusedError(414, "target_too_long", f"the request line alone has more than {bytes_max} bytes")
            raise RefusedError(431, "head_too_large", f"request line and headers may have {bytes_max} bytes together")
        if end < 0:
            # Whoever speaks something else would otherwise wait for an answer until the deadline.
            rest = buffer[at:]
            check_line_ends(rest)
            if rest and not 0x21 <= rest[0] <= 0x7E and rest != b"\r":
                raise RefusedError(400, "malformed_request", "this is not HTTP; is this the right port?")
            self._scanned = len(rest)
            return None
        self._at = at + size
        self._scanned = 0
        self._has_skipped_line = False
        return bytes(buffer[at : at + size])

    def _begin_body(self, head: Head) -> bytes | None:
        """The body, if it is there in full."""
        limits, framing = self._limits, head.fields.framing
        if not framing.has_body:
            return b""
        if head.target.refusal is not None:
            # Not worth reading a body for.
            raise head.target.refusal
        if framing.is_chunked:
            self._body = ChunkedBody(
                bytes_max=limits.body_bytes_max, overhead_bytes_max=limits.chunk_overhead_bytes_max
            )
            return None
        end = self._at + framing.content_length
        if framing.content_length <= limits.body_bytes_max and end <= len(self._buffer):
            whole = bytes(self._buffer[self._at : end])
            self._at = end
            return whole
        self._body = FixedBody(framing.content_length, bytes_max=limits.body_bytes_max)
        return None
