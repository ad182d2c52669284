"""A receive: it waits in its queue's line, is handed messages under leases, and ends once."""

from headrace.broker.promise import Promise
from headrace.broker.queue.partition_queue import PartitionQueue
from headrace.folds.queue.fold import Lease
from headrace.host.clock import Timer
from headrace.model.errors import HeadraceError
from headrace.model.message import Received

Taken = list[tuple[PartitionQueue, list[Lease]]]


class PendingReceive:
    """Made by a queue for each receive. Exactly one of three ends it: messages, the end of its time, its consumer."""

    __slots__ = ("_is_cancelled", "attempt_id", "count_max", "lease_ms", "line", "promise", "taken", "timer")

    def __init__(self, *, count_max: int, lease_ms: int, attempt_id: str | None) -> None:
        self.promise: Promise[list[Received]] = Promise()
        self.count_max = count_max
        self.lease_ms = lease_ms
        self.attempt_id = attempt_id
        self.timer: Timer | None = None
        # Where it waits, and under which leases it holds what is on its way to it.
        self.line: dict[PendingReceive, None] | None = None
        self.taken: Taken = []
        self._is_cancelled = False

    @property
    def is_cancelled(self) -> bool:
        return self._is_cancelled

    def leave(self) -> None:
        """Wait no longer."""
        if self.line is not None:
            self.line.pop(self, None)
            self.line = None
        if self.timer is not None:
            self.timer.cancel()
            self.timer = None

    def time_out(self) -> None:
        self.timer = None
        if self.line is not None:
            self.leave()
            self.promise.keep([])

    def keep(self, received: list[Received]) -> None:
        if self._is_cancelled:
            self.give_back()
            return
        self.taken = []
        self.promise.keep(received)

    def fail(self, error: HeadraceError) -> None:
        self.leave()
        self.promise.fail(error)

    def cancel(self) -> None:
        if self.promise.done():
            return
        self._is_cancelled = True
        if self.line is not None:
            self.leave()

    def give_back(self) -> None:
        """Release what nobody took, at once and for everybody."""
        taken, self.taken = self.taken, []
        for partition, leases in taken:
            partition.give_back(leases)
