"""A request's body, taken from the front of what has arrived. It never holds more than its limit."""

import re
from typing import Protocol

from headrace.gateways.http.message import RefusedError

# One line of the chunked encoding: a size with its extensions, or a trailer.
_LINE_BYTES_MAX = 4096
_SIZE_LINE = re.compile(rb"([0-9A-Fa-f]{1,8})(?:[ \t]*;[\t -~]*)?")
_TRAILER_LINE = re.compile(rb"[!#$%&'*+.^_`|~0-9A-Za-z-]+:[\t -~\x80-\xff]*")


class Body(Protocol):
    @property
    def data(self) -> bytearray: ...

    @property
    def is_done(self) -> bool: ...

    def take(self, buffer: bytes | bytearray, at: int) -> int:
        """Copy what belongs to this body from there on, and say where the rest begins. Raises RefusedError."""


def too_large(bytes_max: int) -> RefusedError:
    return RefusedError(413, "body_too_large", f"a request's body may have {bytes_max} bytes; send less at a time")


def _malformed(what: str) -> RefusedError:
    return RefusedError(400, "malformed_chunk", f"{what}; send chunks as RFC 9112 section 7.1 has them")


class FixedBody:
    """A body whose length was said in the head."""

    def __init__(self, length: int, *, bytes_max: int) -> None:
        if length > bytes_max:
            raise too_large(bytes_max)
        self.data = bytearray()
        self._left = length

    @property
    def is_done(self) -> bool:
        return self._left == 0

    def take(self, buffer: bytes | bytearray, at: int) -> int:
        piece = buffer[at : at + self._left]
        self.data += piece
        self._left -= len(piece)
        return at + len(piece)


class ChunkedBody:
    """A body in chunks. Extensions and trailers are read strictly, counted, and dropped."""

    def __init__(self, *, bytes_max: int, overhead_bytes_max: int) -> None:
        self.data = bytearray()
        self.is_done = False
        self._bytes_max = bytes_max
        self._overhead_left = overhead_bytes_max
        self._chunk_left = 0
        self._chunk_ends = False  # the CRLF behind a chunk's data is next
        self._in_trailers = False

    def take(self, buffer: bytes | bytearray, at: int) -> int:
        while not self.is_done:
            if self._chunk_left:
                if at == len(buffer):
                    break
                at = self._take_data(buffer, at)
                continue
            line = self._take_line(buffer, at)
            if line is None:
                break
            at += len(line) + 2
            if self._chunk_ends:
                if line:
                    raise _malformed("a chunk is longer than its size says")
                self._chunk_ends = False
            elif self._in_trailers:
                self._end_or_trailer(line)
            else:
                self._begin_chunk(line)
        return at

    def _take_data(self, buffer: bytes | bytearray, at: int) -> int:
        piece = buffer[at : at + self._chunk_left]
        self.data += piece
        self._chunk_left -= len(piece)
        self._chunk_ends = self._chunk_left == 0
        return at + len(piece)

    def _take_line(self, buffer: bytes | bytearray, at: int) -> bytes | None:
        end = buffer.find(b"\r\n", at, at + _LINE_BYTES_MAX + 2)
        line = bytes(buffer[at : at + _LINE_BYTES_MAX] if end < 0 else buffer[at:end])
        if b"\n" in line or b"\r" in (line if end >= 0 else line[:-1]):
            raise _malformed("a line ends with CR or LF alone")
        if end < 0:
            if self._chunk_ends and len(line) > 1:
                raise _malformed("a chunk is longer than its size says")
            if len(line) >= _LINE_BYTES_MAX:
                raise _malformed("a chunk's line is too long")
            return None
        self._overhead_left -= len(line) + 2
        if self._overhead_left < 0:
            raise RefusedError(413, "chunks_too_small", "the chunks' own lines are too many bytes; send larger chunks")
        return line

    def _begin_chunk(self, line: bytes) -> None:
        match = _SIZE_LINE.fullmatch(line)
        if match is None:
            raise _malformed("a chunk's size cannot be read")
        size = int(match[1], 16)
        if len(self.data) + size > self._bytes_max:
            raise too_large(self._bytes_max)
        self._chunk_left = size
        self._in_trailers = size == 0

    def _end_or_trailer(self, line: bytes) -> None:
        if not line:
            self.is_done = True
        elif _TRAILER_LINE.fullmatch(line) is None:
            raise _malformed("a trailer cannot be read")
