"""Writers of the Kafka protocol's primitive types: the mirror of `reader.py`, with the same two encodings.

A writer collects pieces and joins them once, or hands them on as they are to a gathering write.
"""

from collections.abc import Callable, Sequence
from struct import Struct, pack
from typing import TypeVar
from uuid import UUID

from headrace.model.batch import Buffer
from headrace.wire.kafka.reader import INT16, INT32

T = TypeVar("T")

_INT16_MAX = 0x7FFF


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

    def records(self, value: Buffer) -> None:
        self.byte_string(value)

    def nullable_records(self, value: Buffer | None) -> None:
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
