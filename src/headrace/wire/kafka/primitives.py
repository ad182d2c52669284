"""Readers and writers of the Kafka protocol's primitive types.

The protocol has two encodings. The classic one counts with fixed-width integers, the flexible one (KIP-482) with
varints of "count plus one" and ends every struct with tagged fields. A message version uses one of them throughout, so
the choice is made once, by taking `Reader` or `FlexibleReader` (`Writer` or `FlexibleWriter`), and the code of the
messages says `string()` and `end()` without asking which.

A reader trusts nothing: every length and every count is held against the bytes that remain before anything of that
size is made, so a lie costs its sender a connection and us nothing. A writer collects pieces and joins them once.
"""

from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from struct import Struct, pack, unpack_from
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
_INT16_MAX = 0x7FFF


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

    def records(self) -> Buffer | None:
        """A record set, as a view into the frame: nothing is copied, and it is writable when the frame is."""
        size = self._bytes_size()
        if size == _NULL:
            return None
        at = self._take(size, "a record set")
        return memoryview(self.buffer)[at : at + size]

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


def uvarint_bytes(value: int) -> bytes:
    """The varint of a non-negative number."""
    if value < 0x80:
        return _SMALL_UVARINTS[value]
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


_INT32_RUNS = [Struct(f">{count}i") for count in range(8)]
_SMALL_UVARINTS = [bytes((value,)) for value in range(0x80)]


class Writer:
    """Collects the pieces of a message in the classic encoding."""

    __slots__ = ("pieces", "put")

    def __init__(self) -> None:
        self.pieces: list[Buffer] = []
        self.put = self.pieces.append

    def getvalue(self) -> bytes:
        return b"".join(self.pieces)

    def nested(self) -> "Writer":
        """An empty writer of the same encoding, for a value whose size goes before it."""
        return type(self)()

    def uuid(self, value: UUID) -> None:
        self.put(value.bytes)

    def string(self, value: str) -> None:
        data = value.encode()
        if len(data) > _INT16_MAX:
            raise ValueError(f"a string of {len(data)} bytes does not fit this version, which allows {_INT16_MAX}")
        self.put(INT16.pack(len(data)))
        self.put(data)

    def nullable_string(self, value: str | None) -> None:
        if value is None:
            self.put(b"\xff\xff")
        else:
            self.string(value)

    def byte_string_size(self, size: int) -> None:
        self.put(INT32.pack(size))

    def byte_string(self, value: Buffer) -> None:
        self.byte_string_size(len(value))
        self.put(value)

    def nullable_byte_string(self, value: Buffer | None) -> None:
        if value is None:
            self.put(b"\xff\xff\xff\xff")
        else:
            self.byte_string(value)

    def records(self, value: Buffer | None) -> None:
        self.nullable_byte_string(value)

    def count(self, value: int) -> None:
        self.put(INT32.pack(value))

    def null_array(self) -> None:
        self.put(b"\xff\xff\xff\xff")

    def array(self, values: Sequence[T], write: Callable[["Writer", T, int], None], version: int) -> None:
        self.count(len(values))
        for value in values:
            write(self, value, version)

    def nullable_array(
        self, values: Sequence[T] | None, write: Callable[["Writer", T, int], None], version: int
    ) -> None:
        if values is None:
            self.null_array()
        else:
            self.array(values, write, version)

    def nullable_struct(self, value: T | None, write: Callable[["Writer", T, int], None], version: int) -> None:
        if value is None:
            self.put(b"\xff")
        else:
            self.put(b"\x01")
            write(self, value, version)

    def _numbers(self, values: Sequence[int], letter: str) -> None:
        self.count(len(values))
        self.put(pack(f">{len(values)}{letter}", *values))

    def int8_array(self, values: Sequence[int]) -> None:
        self._numbers(values, "b")

    def int16_array(self, values: Sequence[int]) -> None:
        self._numbers(values, "h")

    def int32_array(self, values: Sequence[int]) -> None:
        count = len(values)
        self.count(count)
        # Replica lists are short and make up most of a Metadata answer: their layouts are kept ready.
        if count < len(_INT32_RUNS):
            self.put(_INT32_RUNS[count].pack(*values))
        else:
            self.put(pack(f">{count}i", *values))

    def nullable_int32_array(self, values: Sequence[int] | None) -> None:
        if values is None:
            self.null_array()
        else:
            self.int32_array(values)

    def int64_array(self, values: Sequence[int]) -> None:
        self._numbers(values, "q")

    def string_array(self, values: Sequence[str]) -> None:
        self.count(len(values))
        for value in values:
            self.string(value)

    def nullable_string_array(self, values: Sequence[str] | None) -> None:
        if values is None:
            self.null_array()
        else:
            self.string_array(values)

    def uuid_array(self, values: Sequence[UUID]) -> None:
        self.count(len(values))
        for value in values:
            self.uuid(value)

    def tags(self, fields: Sequence[tuple[int, "Writer"]]) -> None:
        """Close a struct with its tagged fields, in rising order of tag."""
        assert not fields, "the classic encoding has no tagged fields"

    def end_struct(self) -> None:
        """Close a struct without tagged fields."""


class FlexibleWriter(Writer):
    """Collects the pieces of a message in the flexible encoding."""

    __slots__ = ()

    def string(self, value: str) -> None:
        data = value.encode()
        self.put(uvarint_bytes(len(data) + 1))
        self.put(data)

    def nullable_string(self, value: str | None) -> None:
        if value is None:
            self.put(b"\x00")
        else:
            self.string(value)

    def byte_string_size(self, size: int) -> None:
        self.put(uvarint_bytes(size + 1))

    def nullable_byte_string(self, value: Buffer | None) -> None:
        if value is None:
            self.put(b"\x00")
        else:
            self.byte_string(value)

    def count(self, value: int) -> None:
        self.put(_SMALL_UVARINTS[value + 1] if value < 0x7F else uvarint_bytes(value + 1))

    def null_array(self) -> None:
        self.put(b"\x00")

    def tags(self, fields: Sequence[tuple[int, Writer]]) -> None:
        self.put(uvarint_bytes(len(fields)))
        for tag, field in fields:
            value = field.getvalue()
            self.put(uvarint_bytes(tag))
            self.put(uvarint_bytes(len(value)))
            self.put(value)

    def end_struct(self) -> None:
        self.put(b"\x00")


def required(value: T | None, field: str, version: int) -> T:
    """The value of a field that may be null in other versions than this one."""
    if value is None:
        raise ValueError(f"{field} must not be null in version {version}")
    return value


def unwritable(field: str, version: int) -> ValueError:
    """The error for a field that matters and that this version has no place for."""
    return ValueError(f"{field} is set, and version {version} cannot carry it")
