"""What a queue keeps of transactions that are open.

A message that is sent in a transaction has its place from the start: in the order of offsets, and in the lane of its
key, which does not go on before it is decided. It is handed out once the transaction commits, and never if it aborts.
Whether it repeats another one is asked when it commits: what never came to be repeats nothing.

A message that is acknowledged in a transaction stays leased until the transaction ends, however long the lease was: the
transaction has a time-out of its own.
"""

from typing import NamedTuple

from pyroaring import BitMap64

from headrace.model.message import Properties


class Identified(NamedTuple):
    """A message that is known by an id, when it will be remembered by it."""

    offset: int
    sent_ms: int
    own: Properties


class OpenTransaction:
    """What one producer has sent in its transaction."""

    __slots__ = ("identified", "offsets")

    def __init__(self) -> None:
        self.offsets = BitMap64()
        self.identified: dict[int, Identified] = {}


class HeldLease(NamedTuple):
    producer_id: int
    lease: int
