"""Random messages of any API and version, by running its reader on a source of values instead of bytes.

The generated readers know which fields a version has. Given a reader that invents what it is asked for, they build a
value that this version can carry in full, without a second description of the protocol.
"""

from collections.abc import Callable, Iterator
from random import Random
from struct import Struct
from typing import Any, TypeVar
from uuid import UUID

from headrace.model.batch import Buffer
from headrace.wire.kafka.api import Api
from headrace.wire.kafka.primitives import Reader

T = TypeVar("T")

_BITS = {"b": 8, "h": 16, "H": 16, "i": 32, "q": 64}
_ALPHABET = "aZ0-._ é漢😀"
_TAGS_KNOWN_MAX = 4


class DrawingReader(Reader):
    """A reader that invents values. With `tame`, only those that every library can represent."""

    __slots__ = ("flexible", "random", "tame")

    def __init__(self, random: Random, *, flexible: bool, tame: bool = False) -> None:
        super().__init__(b"")
        self.random = random
        self.flexible = flexible
        self.tame = tame

    def _number(self, letter: str) -> int | float | bool:
        if letter == "?":
            return self.random.random() < 0.5
        if letter == "d":
            return self.random.randrange(-1000, 1000) / 8
        if self.tame:
            return self.random.randrange(0, 100)
        bits = _BITS[letter]
        low = 0 if letter == "H" else -(1 << bits - 1)
        high = low + (1 << bits) - 1
        return self.random.choice((low, high, self.random.randrange(0, 100), self.random.randrange(low, high)))

    def fixed(self, layout: Struct) -> tuple[Any, ...]:
        return tuple(self._number(letter) for letter in layout.format.lstrip(">"))

    def boolean(self) -> bool:
        return self.random.random() < 0.5

    def uuid(self) -> UUID:
        return UUID(int=self.random.choice((0, self.random.getrandbits(128))))

    def string(self) -> str:
        size = 200 if self.random.random() < 0.02 else self.random.randrange(0, 5)
        return "".join(self.random.choice(_ALPHABET) for _ in range(size))

    def nullable_string(self) -> str | None:
        return None if self._is_null() else self.string()

    def byte_string(self) -> bytes:
        return self.random.randbytes(self.random.randrange(0, 20))

    def nullable_byte_string(self) -> bytes | None:
        return None if self._is_null() else self.byte_string()

    def records(self) -> Buffer:
        return self.byte_string()

    def nullable_records(self) -> Buffer | None:
        return self.nullable_byte_string()

    def _is_null(self) -> bool:
        return self.random.random() < 0.3

    def count(self, element_size_min: int) -> int:
        return self.random.randrange(0, 4)

    def nullable_array(self, read: Callable[[Reader, int], T], version: int, size_min: int) -> tuple[T, ...] | None:
        return None if self._is_null() else self.array(read, version, size_min)

    def nullable_struct(self, read: Callable[[Reader, int], T], version: int) -> T | None:
        return None if self._is_null() else read(self, version)

    def _count(self) -> int:
        return self.random.randrange(0, 4)

    def _numbers(self, count: int, letter: str, size: int) -> tuple[int, ...]:
        return tuple(int(self._number(letter)) for _ in range(count))

    def nullable_int32_array(self) -> tuple[int, ...] | None:
        return None if self._is_null() else self.int32_array()

    def nullable_string_array(self) -> tuple[str, ...] | None:
        return None if self._is_null() else self.string_array()

    def tags(self) -> Iterator[int]:
        if self.flexible:
            yield from (tag for tag in range(_TAGS_KNOWN_MAX) if self.random.random() < 0.5)


def draw_message(api: Api, version: int, kind: str, random: Random, *, tame: bool = False) -> Any:
    reader = DrawingReader(random, flexible=api.is_flexible(version), tame=tame)
    read = api.codec.read_request if kind == "request" else api.codec.read_response
    return read(reader, version)


def encode(api: Api, version: int, kind: str, value: Any) -> bytes:
    writer = api.writer(version)()
    write = api.codec.write_request if kind == "request" else api.codec.write_response
    write(writer, value, version)
    return writer.getvalue()


def decode(api: Api, version: int, kind: str, data: Buffer) -> Any:
    reader = api.reader(version)(data)
    value = (api.codec.read_request if kind == "request" else api.codec.read_response)(reader, version)
    reader.end_message()
    return value
