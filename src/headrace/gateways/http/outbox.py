"""Answers on their way to one client: how much of them it has taken, and what the node keeps until it has."""

import asyncio

from headrace.gateways.answers import Untaken
from headrace.gateways.http.shared import Shared


class Outbox:
    __slots__ = (
        "_big_bytes",
        "_mark_bytes",
        "_mark_ms",
        "_shared",
        "_transport",
        "_untaken",
        "_written_bytes",
        "is_paused",
    )

    def __init__(self, transport: asyncio.Transport, shared: Shared) -> None:
        self._transport = transport
        self._shared = shared
        self._untaken = Untaken(shared.answers)
        self._written_bytes = 0
        self._big_bytes = 0  # of the answer that is being written, if it is large
        # Since when what the client takes is counted, and how much it had taken then.
        self._mark_ms = shared.now_ms
        self._mark_bytes = 0
        self.is_paused = False  # the transport has had enough
        self._set_limits()

    @property
    def untaken_bytes(self) -> int:
        return self._transport.get_write_buffer_size()

    def write(self, data: bytes) -> None:
        size = len(data)
        self._shared.counters.bytes_out += size
        self._written_bytes += size
        if self.is_paused and not self._big_bytes:
            self._untaken.add(size)
        self._transport.write(data)

    def write_big(self, data: bytes) -> None:
        """Have the transport pause unless the kernel takes it all: it is in memory until the last byte is taken."""
        self._big_bytes = len(data)
        self._transport.set_write_buffer_limits(high=0)
        self.write(data)
        self._big_bytes = 0
        if not self.is_paused:
            self._set_limits()

    def pause(self) -> None:
        self.is_paused = True
        self.mark()
        self._untaken.pause(max(self.untaken_bytes, self._big_bytes))

    def resume(self) -> None:
        """All is taken."""
        self.is_paused = False
        self._untaken.resume()
        self._set_limits()

    def end(self) -> None:
        """The transport has let go of everything."""
        self._untaken.resume()

    def mark(self) -> None:
        """Begin to count what the client takes."""
        self._mark_ms = self._shared.now_ms
        self._mark_bytes = self._written_bytes - self.untaken_bytes

    def settle(self, waiting_bytes: int) -> int:
        """Charge what is in memory, with answers that wait for those ahead of them. Returns what is not taken."""
        untaken_bytes = self.untaken_bytes
        self._untaken.settle(untaken_bytes, waiting_bytes)
        if not untaken_bytes:
            self.mark()
        return untaken_bytes

    def is_overdue(self, now_ms: int) -> bool:
        """Whether the client has had its time and has not taken what it has to in that."""
        shared, limits = self._shared, self._shared.limits
        if now_ms - self._mark_ms < shared.write_deadline_ms(limits.write_deadline_ms):
            return False
        taken_bytes = self._written_bytes - self.untaken_bytes - self._mark_bytes
        if taken_bytes < self._untaken.progress_bytes_min(limits.write_progress_bytes_min):
            return True
        self.mark()
        return False

    def _set_limits(self) -> None:
        self._transport.set_write_buffer_limits(high=self._shared.limits.write_pause_bytes, low=0)
