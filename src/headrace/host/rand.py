"""Entropy, passed in: ids and nonces from `bytes`, jitter from `uniform`."""

import os
import random
from typing import Protocol
from uuid import UUID


class Rand(Protocol):
    def bytes(self, count: int) -> bytes:
        """Unpredictable bytes."""

    def uniform(self, low: float, high: float) -> float:
        """For jitter; not for secrets."""

    def uuid(self) -> UUID: ...


class SystemRand:
    def bytes(self, count: int) -> bytes:
        return os.urandom(count)

    def uniform(self, low: float, high: float) -> float:
        return random.uniform(low, high)

    def uuid(self) -> UUID:
        return UUID(bytes=os.urandom(16), version=4)
