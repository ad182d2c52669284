"""Readers of the Kafka protocol's primitive types, in both encodings; `primitives.py` says how they are used.

A reader trusts nothing: every length and every count is held against the bytes that remain before anything of that
size is made, so a lie costs its sender a connection and us nothing.
"""

from collections.abc import Callable, Iterator
from functools import lru_cache
from struct import Struct, unpack_from
from typing import Any, TypeVar
from uuid import UUID

from headrace.model.batch import Buffer
from headrace.model.errors import InvalidRequestError

T = TypeVar("T")

ZERO_UUID = UUID(int=0)

INT8 = Struct(">b")
INT16 = Struct(">h")
INT32 = Struct(">i")
INT64 = Struct(">q")
_UINT16 = Struct(">H")
_FLOAT64 = Struct(">d")

_NULL = -1
_UVARINT_BITS_MAX = 32


@lru_cache(maxsize=4096)
def _cached_uuid(data: bytes) -> UUID:
    return UUID(bytes=data)


class MalformedError(InvalidRequestError):
    """Bytes that are no message of the protocol: truncated, lying about a length, or with something left over."""


class Reader:
    """Reads the classic encoding from `position` up to `end`."""

    __slots__ = ("buffer", "end", "position")

    def __init__(self, buffer: Buffer, position: int = 0, end: int | None = None) -> None:
        self.buffer = buffer
        self.position = position
        self.end = len(buffer) if end is None else end

    def _take(self, size: int, what: str) -> int:
        """Step over `size` bytes that must be there; returns where they begin."""
        at = self.position
        if size < 0 or size > self.end - at:
            raise MalformedError(f"{what} of {size} bytes at byte {at}, where {self.end - at} remain")
        self.position = at + size
        return at

    def fixed(self, layout: Struct) -> tuple[Any, ...]:
        """A run of fixed-width fields in one step."""
        at = self.position
        end = at + layout.size
        if end > self.end:
            raise MalformedError(f"fields of {layout.size} bytes at byte {at}, where {self.end - at} remain")
        self.position = end
        return layout.unpack_from(self.buffer, at)

    def boolean(self) -> bool:
        return self.buffer[self._take(1, "a boolean")] != 0

    def int8(self) -> int:
        value: int = self.fixed(INT8)[0]
        return value

    def int16(self) -> int:
        value: int = self.fixed(INT16)[0]
        return value

    def uint16(self) -> int:
        value: int = self.fixed(_UINT16)[0]
        return value

    def int32(self) -> int:
        value: int = self.fixed(INT32)[0]
        return value

    def int64(self) -> int:
        value: int = self.fixed(INT64)[0]
        return value

    def float64(self) -> float:
        value: float = self.fixed(_FLOAT64)[0]
        return value

    def uuid(self) -> UUID:
        at = self._take(16, "a uuid")
        return UUID(bytes=bytes(self.buffer[at : at + 16]))

    def topic_id(self) -> UUID:
        """A uuid of which the same few come again and again."""
        at = self._take(16, "a uuid")
        return _cached_uuid(bytes(self.buffer[at : at + 16]))

    def uvarint(self) -> int:
        """An unsigned varint of at most 32 bits."""
        start = at = self.position
        value = shift = 0
        while at < self.end:
            byte = self.buffer[at]
            at += 1
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                if value >> _UVARINT_BITS_MAX:
                    break
                self.position = at
                return value
            shift += 7
            if shift >= 35:
                break
        raise MalformedError(f"a varint at byte {start} that is cut off or longer than {_UVARINT_BITS_MAX} bits")

    def _string_size(self) -> int:
        return self.int16()

    def _bytes_size(self) -> int:
        return self.int32()

    def _count(self) -> int:
        return self.int32()

    def _text(self, size: int) -> str:
        at = self._take(size, "a string")
        try:
            return str(self.buffer[at : at + size], "utf-8")
        except UnicodeDecodeError as error:
            raise MalformedError(f"a string at byte {at} that is not UTF-8: {error.reason}") from None

    def string(self) -> str:
        return self._text(self._string_size())

    def nullable_string(self) -> str | None:
        size = self._string_size()
        return None if size == _NULL else self._text(size)

    def byte_string(self) -> bytes:
        size = self._bytes_size()
        at = self._take(size, "a byte string")
        return bytes(self.buffer[at : at + size])

    def nullable_byte_string(self) -> bytes | None:
        size = self._bytes_size()
        if size == _NULL:
            return None
        at = self._take(size, "a byte string")
        return bytes(self.buffer[at : at + size])

    def _records(self, size: int) -> memoryview:
        at = self._take(size, "a record set")
        return memoryview(self.buffer)[at : at + size]

    def records(self) -> Buffer:
        """A record set, as a view into the frame: nothing is copied, and it is writable when the frame is."""
        return self._records(self._bytes_size())

    def nullable_records(self) -> Buffer | None:
        size = self._bytes_size()
        return None if size == _NULL else self._records(size)

    def count(self, element_size_min: int) -> int:
        """The count of an array that is not null."""
        return self._checked_count(self._count(), element_size_min)

    def _checked_count(self, count: int, element_size_min: int) -> int:
        if count < 0 or count * element_size_min > self.end - self.position:
            raise MalformedError(
                f"an array of {count} elements of at least {element_size_min} bytes at byte {self.position}, "
                f"where {self.end - self.position} remain"
            )
        return count

    def array(self, read: Callable[["Reader", int], T], version: int, element_size_min: int) -> tuple[T, ...]:
        """An array of structs, each at least `element_size_min` bytes long in any version."""
        return tuple([read(self, version) for _ in range(self.count(element_size_min))])

    def nullable_array(
        self, read: Callable[["Reader", int], T], version: int, element_size_min: int
    ) -> tuple[T, ...] | None:
        count = self._count()
        if count == _NULL:
            return None
        return tuple([read(self, version) for _ in range(self._checked_count(count, element_size_min))])

    def nullable_struct(self, read: Callable[["Reader", int], T], version: int) -> T | None:
        """A struct behind an int8: -1 for null, else present."""
        return None if self.int8() < 0 else read(self, version)

    def _numbers(self, count: int, letter: str, size: int) -> tuple[int, ...]:
        self._checked_count(count, size)
        at = self._take(count * size, "an array")
        return unpack_from(f">{count}{letter}", self.buffer, at) if count else ()

    def int8_array(self) -> tuple[int, ...]:
        return self._numbers(self._count(), "b", 1)

    def int16_array(self) -> tuple[int, ...]:
        return self._numbers(self._count(), "h", 2)

    def int32_array(self) -> tuple[int, ...]:
        return self._numbers(self._count(), "i", 4)

    def nullable_int32_array(self) -> tuple[int, ...] | None:
        count = self._count()
        return None if count == _NULL else self._numbers(count, "i", 4)

    def int64_array(self) -> tuple[int, ...]:
        return self._numbers(self._count(), "q", 8)

    def string_array(self) -> tuple[str, ...]:
        return tuple([self.string() for _ in range(self.count(1))])

    def nullable_string_array(self) -> tuple[str, ...] | None:
        count = self._count()
        if count == _NULL:
            return None
        return tuple([self.string() for _ in range(self._checked_count(count, 1))])

    def uuid_array(self) -> tuple[UUID, ...]:
        return tuple([self.uuid() for _ in range(self.count(16))])

    def tags(self) -> Iterator[int]:
        """The tagged fields that close a struct: none in this encoding."""
        return iter(())

    def end_struct(self) -> None:
        """Close a struct none of whose tagged fields we know."""

    def end_message(self) -> None:
        """Make sure that nothing follows the message."""
        if self.position != self.end:
            raise MalformedError(f"{self.end - self.position} bytes left over at byte {self.position}")


class FlexibleReader(Reader):
    """Reads the flexible encoding."""

    __slots__ = ()

    def _size(self) -> int:
        # Nearly every length fits one byte, and the general loop costs four times as much.
        at = self.position
        if at < self.end:
            byte = self.buffer[at]
            if byte < 0x80:
                self.position = at + 1
                return byte - 1
        return self.uvarint() - 1

    _string_size = _size
    _bytes_size = _size
    _count = _size

    def tags(self) -> Iterator[int]:
        """Each tag that is present, the reader bounded to its value meanwhile. A value left unread is skipped."""
        outer_end = self.end
        previous = -1
        for _ in range(self._checked_count(self.uvarint(), 2)):
            tag = self.uvarint()
            if tag <= previous:
                raise MalformedError(f"tag {tag} after tag {previous} at byte {self.position}")
            previous = tag
            size = self.uvarint()
            start = self._take(size, f"tagged field {tag}")
            self.position = start
            self.end = start + size
            yield tag
            if self.position == start:
                self.position = self.end
            elif self.position != self.end:
                raise MalformedError(f"tagged field {tag} at byte {start} is longer than its value")
            self.end = outer_end

    def end_struct(self) -> None:
        at = self.position
        if at < self.end and self.buffer[at] == 0:
            self.position = at + 1
            return
        for _ in self.tags():
            pass
