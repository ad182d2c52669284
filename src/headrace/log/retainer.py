"""Who says what of a log must stay: the border between the log, which drops, and whoever knows what is dead."""

from collections.abc import Sequence
from typing import Protocol

from headrace.model.ids import Offset


class Retainer(Protocol):
    """Asked on the event loop, where it answers at once. What it has once called dead stays dead."""

    def limit(self) -> Offset:
        """Nothing at or above it is dropped: the lowest of the high watermark, open transactions, named readers and
        history. What durable snapshots cover and what recovery needs, the log sees to itself."""

    def live_count(self, start: Offset, end: Offset) -> int:
        """How many messages from one offset up to another must stay."""

    def live_offsets(self, start: Offset, end: Offset) -> Sequence[int]:
        """Their offsets, rising. A thread works with them afterwards, so they are a copy that nobody changes."""
