"""A receive: it waits in its queue's line, is handed messages under leases, and ends once."""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, TypeVar

from headrace.broker.promise import Promise
from headrace.broker.queue.partition_queue import PartitionQueue
from headrace.folds.queue.fold import Lease
from headrace.host.clock import Timer
from headrace.model.errors import HeadraceError, ShuttingDownError
from headrace.model.message import Received
from headrace.wire.message import StoredMessage

Opened = TypeVar("Opened")
Taken = list[tuple[PartitionQueue, list[Lease]]]
Found = dict[tuple[int, int], StoredMessage]  # by partition and offset


class PendingReceive:
    """Made by a queue for each receive. Exactly one of three ends it: messages, the end of its time, its consumer."""

    __slots__ = (
        "_is_cancelled",
        "attempt_id",
        "count_max",
        "found",
        "lease_ms",
        "line",
        "number",
        "partitions",
        "promise",
        "taken",
        "timer",
        "until_ms",
    )

    def __init__(
        self, *, count_max: int, lease_ms: int, attempt_id: str | None, partitions: frozenset[int] | None = None
    ) -> None:
        self.promise: Promise[list[Received]] = Promise()
        self.count_max = count_max
        self.lease_ms = lease_ms
        self.attempt_id = attempt_id
        self.partitions = partitions  # None: whichever has something
        self.number = 0  # in the order in which receives came
        self.until_ms = 0  # how long it may wait, by the monotonic clock
        self.timer: Timer | None = None
        # Where it waits, and under which leases it holds what is on its way to it.
        self.line: dict[PendingReceive, None] | None = None
        self.taken: Taken = []
        self.found: Found | None = None  # what was taken, where that was read before
        self._is_cancelled = False

    @property
    def is_cancelled(self) -> bool:
        return self._is_cancelled

    @property
    def is_waiting(self) -> bool:
        return self.line is not None

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

    def keep_first(self, count: int) -> None:
        """Release all but the first so many of what is on its way."""
        taken, self.taken = self.taken, []
        for partition, leases in taken:
            kept = leases[:count]
            count -= len(kept)
            if kept:
                self.taken.append((partition, kept))
            if len(kept) < len(leases):
                partition.give_back(leases[len(kept) :])

    def give_back(self) -> None:
        """Release what nobody took, at once and for everybody."""
        taken, self.taken = self.taken, []
        for partition, leases in taken:
            partition.give_back(leases)


class LeaseReceive(PendingReceive):
    """A receive by somebody who reads the messages himself: it ends with `taken`, which is his from then on."""

    __slots__ = ()

    def keep_leases(self) -> None:
        if self.is_cancelled:
            self.give_back()
        else:
            self.promise.keep([])


class OpeningReceive:
    """A receive from a queue that is being opened: it begins when that is done."""

    def __init__(
        self,
        opening: Awaitable[Opened],
        begin: Callable[[Opened], PendingReceive],
        *,
        spawn: Callable[[Coroutine[Any, Any, None]], object],
    ) -> None:
        self.promise: Promise[list[Received]] = Promise()
        self._receive: PendingReceive | None = None
        self._is_cancelled = False
        spawn(self._run(opening, begin))

    async def _run(self, opening: Awaitable[Opened], begin: Callable[[Opened], PendingReceive]) -> None:
        try:
            opened = await opening
            if self._is_cancelled:
                return
            self._receive = begin(opened)
        except HeadraceError as error:
            self.promise.fail(error)
            return
        except asyncio.CancelledError:
            self.promise.fail(ShuttingDownError("the node is stopping; reconnect and retry"))
            raise
        self._receive.promise.then(self._ended)

    def _ended(self, promise: Promise[list[Received]]) -> None:
        error = promise.exception()
        if error is None:
            self.promise.keep(promise.result())
        else:
            self.promise.fail(error)

    @property
    def is_waiting(self) -> bool:
        return self._receive is None or self._receive.is_waiting

    def cancel(self) -> None:
        self._is_cancelled = True
        if self._receive is not None:
            self._receive.cancel()
