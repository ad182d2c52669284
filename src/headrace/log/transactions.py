"""What compaction has to know about transactions: the border between the log and whoever keeps their index."""

from collections.abc import Sequence
from typing import NamedTuple, Protocol

from headrace.model.ids import Offset


class Aborted(NamedTuple):
    """A transaction of one producer that was aborted: all that it wrote from one offset to another, both included."""

    producer_id: int
    first_offset: Offset
    last_offset: Offset


class Transactions(Protocol):
    """Asked on the event loop, where it answers at once."""

    @property
    def last_stable_offset(self) -> Offset:
        """The end of each transaction that began below it is known, and committed."""

    def aborted(self, start: Offset, end: Offset) -> Sequence[Aborted]:
        """The aborted transactions with an offset from one up to another. A thread works with the answer."""
