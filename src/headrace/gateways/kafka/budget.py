"""The node's memory for request frames: one number that all connections share."""

from collections.abc import Callable


class ByteBudget:
    """Bytes taken and given back. Who finds nothing left is called, first come first served, when there is some again.

    A frame that has already arrived is charged by force: its bytes are in memory whatever the number says. Only bytes
    that are not read yet can wait.
    """

    def __init__(self, total_bytes: int) -> None:
        self.total_bytes = total_bytes
        self.used_bytes = 0
        # A dict for its order and for leaving early when a connection is lost.
        self._waiting: dict[Callable[[], None], None] = {}

    @property
    def exhausted(self) -> bool:
        return self.used_bytes >= self.total_bytes

    def try_take(self, size: int) -> bool:
        if self.used_bytes + size > self.total_bytes:
            return False
        self.used_bytes += size
        return True

    def take(self, size: int) -> None:
        self.used_bytes += size

    def give(self, size: int) -> None:
        self.used_bytes -= size
        assert self.used_bytes >= 0, "more bytes given back than taken"
        if self._waiting and not self.exhausted:
            self._wake()

    def wait(self, callback: Callable[[], None]) -> None:
        self._waiting[callback] = None

    def leave(self, callback: Callable[[], None]) -> None:
        self._waiting.pop(callback, None)

    def _wake(self) -> None:
        # Each is asked once: one that still finds too little waits again, at the end.
        for callback in list(self._waiting):
            if self.exhausted:
                return
            if callback in self._waiting:
                del self._waiting[callback]
                callback()
