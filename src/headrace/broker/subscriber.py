"""Who takes part in a partition's turns: the queue over it, or the state that an internal topic holds."""

from collections.abc import Sequence
from typing import NamedTuple, Protocol

from headrace.log.partition_log import Incoming
from headrace.log.snapshots import TakenSnapshot
from headrace.model.errors import HeadraceError
from headrace.model.ids import Offset


class Subscriber(Protocol):
    """A fold over this partition that also writes to it, and those who wait for it."""

    def contribute(self) -> "Contribution":
        """What it wants written in this turn."""

    def contributed(self, entries: Sequence[Offset], messages: Sequence[Offset]) -> None:
        """Its batches were written at these offsets."""

    def refused(self, error: HeadraceError) -> None:
        """Its batches were not written."""

    def refused_messages(self, error: HeadraceError) -> None:
        """The messages among its batches will not be written, for lack of space. Its entries may be yet."""

    def admit(self, batches: Sequence[Incoming]) -> None:
        """Refuse a producer's batches, all of them and before any is written, by raising why.

        Those that it lets pass come back by `written`, in the same order and in the same turn, unless that is refused.
        """

    def written(self, batch: Incoming, base_offset: Offset) -> None:
        """A producer's batch was written: one that was admitted, or the end of a transaction."""

    def advanced(self) -> None:
        """The high watermark has moved, or the log has broken."""

    @property
    def has_pending(self) -> bool:
        """Whether it has something to write, though it may not have asked for a turn."""

    @property
    def pending_count(self) -> int:
        """How much it has to write."""

    def snapshot(self) -> TakenSnapshot | None:
        """Its state at the log's end; None while it has something to write."""


class Contribution(NamedTuple):
    """A subscriber's part of a turn."""

    entries: Sequence[Incoming]
    messages: Sequence[Incoming]


NOTHING = Contribution((), ())
