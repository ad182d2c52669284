"""Entropy from a seed, so that seed and commit reproduce a failure."""

import random  # noqa: TID251 -- this is where simulated entropy comes from
from typing import Protocol
from uuid import UUID


class Chooser(Protocol):
    """What a simulated host asks when the world could go one way or another. `random.Random` is one."""

    def random(self) -> float:
        """At least 0 and below 1."""

    def randint(self, a: int, b: int, /) -> int:
        """A whole number from the first to the second, both included."""


class SeededRand:
    """A `headrace.host.rand.Rand` that gives the same bytes, jitter and ids for the same seed."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)

    def bytes(self, count: int) -> bytes:
        return self._random.randbytes(count)

    def uniform(self, low: float, high: float) -> float:
        return self._random.uniform(low, high)

    def uuid(self) -> UUID:
        return UUID(bytes=self._random.randbytes(16), version=4)
