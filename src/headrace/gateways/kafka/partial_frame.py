"""A frame of which not all bytes have arrived: where the next ones go, and what of the node's memory it holds.

The buffer grows with what arrives, so that a length that lies costs its sender's node little.
"""

from headrace.gateways.kafka.budget import ByteBudget, Wake
from headrace.host.memory import unfilled_buffer


class PartialFrame:
    __slots__ = ("_budget", "_wake", "buffer", "have", "size")

    def __init__(self, size: int, start: memoryview, *, ahead_bytes: int, budget: ByteBudget, wake: Wake) -> None:
        allocated = min(size, max(ahead_bytes, 2 * len(start)))
        self.buffer = unfilled_buffer(allocated)
        self.buffer[: len(start)] = start
        self.size = size
        self.have = len(start)
        self._budget = budget
        self._wake = wake
        budget.take(allocated)

    @property
    def is_full(self) -> bool:
        """Whether the next byte has no place yet."""
        return self.have == len(self.buffer)

    def rest(self) -> memoryview:
        """Where the next bytes go."""
        return memoryview(self.buffer)[self.have :]

    def grow(self) -> bool:
        """Make room for more. False if the node has no memory for it now; then `wake` is called when it may have."""
        allocated = len(self.buffer)
        wanted = min(self.size, 2 * allocated)
        if not self._budget.try_grow(wanted - allocated, self._wake):
            return False
        # A new buffer, because the event loop may still hold a view of the old one.
        buffer = unfilled_buffer(wanted)
        buffer[:allocated] = self.buffer
        self.buffer = buffer
        return True

    def release(self) -> None:
        """It is whole and charged to somebody else, or will never be."""
        self._budget.give(len(self.buffer))
        self._budget.end_frame(self._wake)
