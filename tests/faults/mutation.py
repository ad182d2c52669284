"""Ways in which bytes that a client sent are spoilt."""

import random
from collections.abc import Callable, Sequence

_LENGTHS = (0, 1, 3, 0x7F, 0xFF, 0x7FFF, 0xFFFF, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFE, 0xFFFFFFFF)
_CUTS = (
    b"\r\n",
    b"\n",
    b"\0",
    b"\xff" * 8,
    b"{" * 200,
    b"[" * 200,
    b"%00",
    b"../",
    b"\xf0\x9f\x92\xa9",
    b"1e999",
    b"-1",
)


def flip(data: bytearray, chance: random.Random) -> None:
    for _ in range(chance.randint(1, 8)):
        data[chance.randrange(len(data))] ^= 1 << chance.randrange(8)


def overwrite(data: bytearray, chance: random.Random) -> None:
    """A length, or what may be one, becomes a number that means trouble."""
    at = chance.randrange(len(data))
    size = chance.choice((1, 2, 4))
    number = chance.choice(_LENGTHS) & (256**size - 1)
    data[at : at + size] = number.to_bytes(size, "big")


def cut(data: bytearray, chance: random.Random) -> None:
    del data[chance.randrange(len(data)) :]


def drop(data: bytearray, chance: random.Random) -> None:
    at = chance.randrange(len(data))
    del data[at : at + chance.randint(1, 16)]


def double(data: bytearray, chance: random.Random) -> None:
    at = chance.randrange(len(data))
    data[at:at] = data[at : at + chance.randint(1, 64)] * chance.randint(1, 20)


def insert(data: bytearray, chance: random.Random) -> None:
    at = chance.randrange(len(data))
    data[at:at] = chance.choice(_CUTS) if chance.random() < 0.5 else chance.randbytes(chance.randint(1, 32))


def noise(data: bytearray, chance: random.Random) -> None:
    data[:] = chance.randbytes(len(data))


MUTATIONS: Sequence[Callable[[bytearray, random.Random], None]] = (
    *(flip, flip, overwrite, overwrite, overwrite, cut, drop, double, insert, insert, noise),
)


def spoil(data: bytes, chance: random.Random) -> bytes:
    spoilt = bytearray(data)
    for _ in range(chance.choice((1, 1, 1, 2, 3, 5))):
        if spoilt:
            chance.choice(MUTATIONS)(spoilt, chance)
    return bytes(spoilt)


def spoil_frame(frame: bytes, chance: random.Random) -> bytes:
    """A Kafka frame: mostly what is in it, behind a length that is right, so that the spoilt part is read."""
    if chance.random() < 0.2:
        return spoil(frame, chance)
    body = bytearray(spoil(frame[4:], chance))
    if chance.random() < 0.3 and len(body) >= 4:
        body[0:2] = chance.randrange(100).to_bytes(2, "big")  # another API
    if chance.random() < 0.3 and len(body) >= 4:
        body[2:4] = chance.randrange(20).to_bytes(2, "big")  # another version
    return len(body).to_bytes(4, "big") + body
