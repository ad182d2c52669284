"""What compaction has to know about transactions: the border between the log and whoever keeps their index."""

from collections.abc import Collection, Sequence
from typing import Protocol

from headrace.model.ids import Offset

# The producer of a transaction that was aborted, and its first and last offset: all that it wrote between is void.
Aborted = tuple[int, Offset, Offset]


class Transactions(Protocol):
    """Asked on the event loop, where it answers at once."""

    @property
    def last_stable_offset(self) -> Offset:
        """The end of each transaction that began below it is known, and committed."""

    def aborted(self, start: Offset, end: Offset) -> Sequence[Aborted]:
        """The aborted transactions with an offset from one up to another. A thread works with the answer."""

    def forget_aborted(self, marker_offsets: Collection[int]) -> None:
        """Nothing is left of the transactions that ended at these offsets, nor of their markers."""
