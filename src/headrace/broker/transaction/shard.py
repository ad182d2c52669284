"""One partition of the internal topic: its transactional ids, what is written about them, and when they are due.

Time-outs are counted on the monotonic clock, from when the transaction began here: a transaction that an earlier
process began gets its whole time-out again, since nobody knows for how long the node was gone (row 36).
"""

import logging

from headrace.broker.promise import Promise
from headrace.broker.state_log import StateLog
from headrace.folds.transaction.codec import Forgotten, Op, Stored
from headrace.folds.transaction.fold import TransactionFold
from headrace.folds.transaction.transaction import State, Transaction
from headrace.host.clock import Clock
from headrace.model.errors import CoordinatorUnavailableError, HeadraceError

_logger = logging.getLogger(__name__)

_RETRY_MS = 200


class Shard:
    def __init__(self, log: StateLog[TransactionFold, Op], *, clock: Clock) -> None:
        self.fold = log.fold
        self._log = log
        self._clock = clock
        self._due_ms: dict[str, int] = {}
        for transaction in self.fold:
            self._note(transaction)

    @property
    def epoch(self) -> int:
        """Of whoever writes markers: it is raised with every new leader of this partition."""
        return self._log.partition.epoch

    def check_open(self) -> None:
        try:
            self._log.partition.log.check_usable()
        except HeadraceError as error:
            raise CoordinatorUnavailableError(f"the coordinator of these transactions is offline: {error}") from error

    def store(self, transaction: Transaction) -> Promise[None]:
        """Let a transaction be so from now on; kept when that is committed."""
        self._note(transaction)
        return self._decide(Stored(transaction))

    def forget(self, id: str) -> None:
        self._decide(Forgotten(id))

    def _decide(self, op: Op) -> Promise[None]:
        self.check_open()
        promise: Promise[None] = Promise()
        self.fold.apply(op)
        self._log.write(op, lambda error: promise.keep(None) if error is None else promise.fail(error))
        return promise

    async def committed(self) -> None:
        """Until everything that was decided so far is committed. A full disk is waited for, a broken one is not."""
        while True:
            promise: Promise[HeadraceError | None] = Promise()
            self._log.tell_written(promise.keep)
            error = await promise
            if error is None:
                return
            self.check_open()
            _logger.warning("a transaction's decision waits for the disk", extra={"error": str(error)})
            await self._clock.sleep(_RETRY_MS)

    def _note(self, transaction: Transaction) -> None:
        if transaction.state is not State.ONGOING:
            self._due_ms.pop(transaction.id, None)
        elif transaction.id not in self._due_ms:
            self._due_ms[transaction.id] = self._clock.monotonic_ms() + transaction.timeout_ms

    def overdue(self) -> list[str]:
        """Transactions whose time is over."""
        now_ms = self._clock.monotonic_ms()
        return [id for id, due_ms in self._due_ms.items() if due_ms <= now_ms]

    @property
    def open_count(self) -> int:
        return len(self._due_ms)
