"""The node's memory for request frames: one number that all connections share.

A frame that has already arrived is charged by force: its bytes are in memory whatever the number says. Only bytes that
are not read yet can wait. There are two ways to wait: a connection between two frames waits until the budget is no
longer exhausted, and one inside a frame waits for room to read more of it.

Frames that are not whole could hold all memory and wait for each other for ever. So one of them, the first that asks,
may go beyond the total; the next one may when the budget is whole again. Memory is bounded by the total and one frame.
"""

from collections.abc import Callable

Wake = Callable[[], None]


class ByteBudget:
    def __init__(self, total_bytes: int, *, slack_bytes: int) -> None:
        self.total_bytes = total_bytes
        # By how much the first bytes of a frame, which are charged by force, may have exceeded the total.
        self.slack_bytes = slack_bytes
        self.used_bytes = 0
        # Dicts for their order, and for leaving early when a connection is lost.
        self._readers: dict[Wake, None] = {}
        self._growers: dict[Wake, None] = {}
        # Who may go beyond the total now, by its callback.
        self._overdrawn: Wake | None = None

    @property
    def exhausted(self) -> bool:
        return self.used_bytes >= self.total_bytes

    def take(self, size: int) -> None:
        self.used_bytes += size

    def try_grow(self, size: int, wake: Wake) -> bool:
        """Take bytes for more of a frame, or be woken when that is worth another try."""
        if self.used_bytes + size > self.total_bytes:
            if self._overdrawn != wake and not self._may_overdraw():
                self._growers[wake] = None
                return False
            self._overdrawn = wake
        self.used_bytes += size
        return True

    def _may_overdraw(self) -> bool:
        return self._overdrawn is None and self.used_bytes <= self.total_bytes + self.slack_bytes

    def wait(self, wake: Wake) -> None:
        """Be woken when the budget is no longer exhausted."""
        self._readers[wake] = None

    def give(self, size: int) -> None:
        self.used_bytes -= size
        assert self.used_bytes >= 0, "more bytes given back than taken"
        if self._readers or self._growers:
            self._wake()

    def end_frame(self, wake: Wake) -> None:
        """A frame is whole or dropped."""
        self._growers.pop(wake, None)
        if self._overdrawn == wake:
            self._overdrawn = None
            self._wake()

    def leave(self, wake: Wake) -> None:
        self._readers.pop(wake, None)
        self.end_frame(wake)

    def _wake(self) -> None:
        # Each is asked once: one that still finds too little waits again, at the end.
        for wake in list(self._growers):
            if self.exhausted and not self._may_overdraw():
                break
            if self._growers.pop(wake, self) is None:
                wake()
        for wake in list(self._readers):
            if self.exhausted:
                return
            if self._readers.pop(wake, self) is None:
                wake()
